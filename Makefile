# Two commands: `make demo` runs a real training job end to end, `make test` runs the whole suite.
# Both set up all that they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
ENV_DEV := $(VENV)/.ready-dev
ENV_DOCS := $(VENV)/.ready-docs
ENV_CONSOLE := $(VENV)/.ready-console
CONSOLE := src/trainshed/console
NPM_BIN := PATH="$(CURDIR)/$(BIN):$$PATH" $(VENV)/console/node_modules/.bin
PRETTIER := $(NPM_BIN)/prettier --log-level warn "$(CONSOLE)/**/*.{js,css,ts,json}"

START := $(shell date +%s)

# The lock files name exact releases with their hashes, and no index: packages come from the one that the machine has.
LOCKS := requirements
UV := PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" uv
UV_INSTALL := $(UV) pip install --quiet --compile-bytecode --no-deps --build-constraint $(LOCKS)/build.lock
UV_COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
	--custom-compile-command "make lock" $(UPGRADE)

.PHONY: demo test test-light install lint lint-types lint-rest format soak bench parity conformance docs screenshots wheel lock update-lock clean

demo: $(STAMP)
	$(BIN)/trainshed demo --home .demo

install: $(STAMP)

# The last line tells apart what set-up, lint and tests took. The lines before it: time by folder, the ten slowest tests.
# Set-up builds what tests share, in .cache; where it was built before, it takes seconds.
test: $(ENV_DEV) $(ENV_CONSOLE)
	bash tests/needs.sh
	$(BIN)/python -m trainshed.testing.prepare
	@ready=$$(date +%s); $(MAKE) --no-print-directory lint && linted=$$(date +%s) || exit 1; \
	$(BIN)/python -m pytest -m "not soak" -q -n 3 --dist loadfile --no-loadscope-reorder --durations=10; code=$$?; \
	echo "Set-up: $$((ready - $(START))) s. Lint: $$((linted - ready)) s. Tests: $$(($$(date +%s) - linted)) s."; exit $$code

# What needs nothing but Python: no PostgreSQL, no browser, no containers, no TensorFlow.
test-light: $(ENV_DEV)
	$(BIN)/python -m pytest -m "not soak" -q -n 2 --dist loadfile --durations=10 tests/unit tests/contract -k "not (contract and postgresql)"

# mypy takes longest, so the others run beside it.
lint: $(ENV_DEV) $(ENV_CONSOLE)
	@$(MAKE) --no-print-directory -j 2 lint-types lint-rest

lint-types:
	$(BIN)/mypy

lint-rest:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(PRETTIER) --check
	$(NPM_BIN)/tsc --project $(CONSOLE)

format: $(ENV_DEV) $(ENV_CONSOLE)
	$(BIN)/ruff format .
	$(PRETTIER) --write

soak: $(ENV_DEV)
	bash tests/needs.sh slurmctld slurmd dockerd=docker.io docker=docker.io ip=iproute2
	$(BIN)/python -m trainshed.testing.prepare
	$(BIN)/python -m pytest -m soak

bench: $(ENV_DEV)
	bash tests/needs.sh wrk
	$(BIN)/python bench/control.py
	$(BIN)/python bench/launch.py
	$(BIN)/python bench/sandbox.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/serving.py
	$(BIN)/python bench/serving_models.py
	$(BIN)/python bench/gateways.py
	$(BIN)/python bench/protocols.py
	$(BIN)/python bench/formats.py
	$(BIN)/python bench/rollout.py
	$(BIN)/python bench/batch.py
	$(BIN)/python bench/console.py
	$(BIN)/python bench/tuning.py
	$(BIN)/python bench/ray.py

# The samples from one spec on this machine and on a Ray cluster of three nodes; the differences are printed.
parity: $(ENV_DEV)
	bash tests/needs.sh
	$(BIN)/python bench/parity.py

# Real clients' suites against this server, written into docs/conformance.md; hours at the first time. It goes on where it stopped.
conformance: $(ENV_DEV) $(ENV_CONSOLE)
	bash tests/needs.sh
	$(BIN)/python -m trainshed.testing.prepare
	$(BIN)/python -m trainshed.testing.conformance

# The pages of docs/ as a site in build/site. Links are checked twice: as a code host reads them, and as the site does.
docs: $(ENV_DEV) $(ENV_DOCS)
	$(BIN)/python -m pytest -q tests/unit/test_links.py tests/unit/test_docs.py tests/unit/test_documented_lines.py
	$(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

screenshots: $(ENV_DEV)
	bash tests/needs.sh pngquant
	$(BIN)/python docs/site/screenshots.py
	$(BIN)/python docs/site/demo_picture.py

# The wheel in dist/.
wheel: $(STAMP)
	$(UV) build --quiet --wheel --build-constraint $(LOCKS)/build.lock --out-dir dist

# Bring the lock files into step with pyproject.toml. Releases that still fit stay.
lock: $(VENV)/.ready-uv
	$(UV_COMPILE) pyproject.toml --group dev --output-file $(LOCKS)/dev.lock
	$(UV_COMPILE) pyproject.toml --constraint $(LOCKS)/dev.lock --output-file $(LOCKS)/runtime.lock
	$(UV_COMPILE) --group docs --constraint $(LOCKS)/dev.lock --output-file $(LOCKS)/docs.lock
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" | \
		$(UV_COMPILE) - --constraint $(LOCKS)/dev.lock --output-file $(LOCKS)/build.lock

# Lock the newest releases within the bounds of pyproject.toml.
update-lock:
	$(MAKE) lock UPGRADE=--upgrade

# uv comes from the machine if it has one, else it goes into the project's own venv and nowhere else.
$(VENV)/.ready-uv:
	$(PYTHON) -m venv $(VENV)
	command -v uv >/dev/null || $(BIN)/python -m pip install --quiet "$$(grep -o '^uv==[0-9.]*' $(LOCKS)/runtime.lock)"
	touch $@

$(STAMP): $(VENV)/.ready-uv pyproject.toml $(LOCKS)/runtime.lock $(LOCKS)/build.lock
	$(UV_INSTALL) --requirements $(LOCKS)/runtime.lock --editable .
	$(BIN)/python -m compileall -q src
	touch $@

$(ENV_DEV): $(STAMP) $(LOCKS)/dev.lock
	$(UV_INSTALL) --requirements $(LOCKS)/dev.lock
	touch $@

$(ENV_DOCS): $(STAMP) $(LOCKS)/docs.lock
	$(UV_INSTALL) --requirements $(LOCKS)/docs.lock
	touch $@

# The console's own tools, and Node if the machine has none. Nothing of it is served or shipped.
$(ENV_CONSOLE): tools/console/package-lock.json | $(STAMP)
	bash tools/console/install.sh $(VENV)
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
