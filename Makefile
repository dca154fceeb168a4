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

.PHONY: demo test install lint format soak bench parity docs screenshots clean

demo: $(STAMP)
	$(BIN)/trainshed demo --home .demo

install: $(STAMP)

test: $(ENV_DEV) lint
	bash tests/needs.sh
	$(BIN)/python -m pytest -m "not soak" -q -n 2 --dist loadfile --no-loadscope-reorder

lint: $(ENV_DEV) $(ENV_CONSOLE)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PRETTIER) --check
	$(NPM_BIN)/tsc --project $(CONSOLE)

format: $(ENV_DEV) $(ENV_CONSOLE)
	$(BIN)/ruff format .
	$(PRETTIER) --write

soak: $(ENV_DEV)
	bash tests/needs.sh slurmctld slurmd dockerd=docker.io docker=docker.io ip=iproute2
	$(BIN)/python -m pytest -m soak

bench: $(ENV_DEV)
	bash tests/needs.sh wrk
	$(BIN)/python bench/control.py
	$(BIN)/python bench/launch.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/serving.py
	$(BIN)/python bench/batch.py
	$(BIN)/python bench/console.py
	$(BIN)/python bench/ray.py

# The samples from one spec on this machine and on a Ray cluster of three nodes; the differences are printed.
parity: $(ENV_DEV)
	bash tests/needs.sh
	$(BIN)/python bench/parity.py

# The pages of docs/ as a site in build/site. Links are checked twice: as a code host reads them, and as the site does.
docs: $(ENV_DEV) $(ENV_DOCS)
	$(BIN)/python -m pytest -q tests/unit/test_links.py tests/unit/test_docs.py tests/unit/test_documented_lines.py
	$(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

screenshots: $(ENV_DEV)
	bash tests/needs.sh pngquant
	$(BIN)/python docs/site/screenshots.py

# uv comes from the machine if it has one, else it goes into the project's own venv and nowhere else.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	command -v uv >/dev/null || $(BIN)/python -m pip install --quiet uv
	PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" uv pip install --quiet --compile-bytecode --editable .
	$(BIN)/python -m compileall -q src
	touch $@

$(ENV_DEV): $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" uv pip install --quiet --compile-bytecode --editable . --group dev
	touch $@

$(ENV_DOCS): $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" uv pip install --quiet --group docs
	touch $@

# The console's own tools, and Node if the machine has none. Nothing of it is served or shipped.
$(ENV_CONSOLE): tools/console/package-lock.json | $(STAMP)
	bash tools/console/install.sh $(VENV)
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
