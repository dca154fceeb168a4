"""Commands that run in a runtime: `host SPEC`, `reference SPEC OUT` and `predict SPEC`.

`container-host SPEC` runs in the server's own Python, for models in containers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from .errors import ServingError
from .spec import ServingSpec


def main(argv: list[str]) -> int:
    """Run a command. Returns the exit status: 0, or 1 with the reason on standard error or in the response."""
    match argv:
        case ["host", spec]:
            from .host.process import run_host

            return run_host(Path(spec))
        case ["container-host", spec]:
            from .container.host import run_host as run_container_host

            return run_container_host(Path(spec))
        case ["reference", spec, out]:
            return _run(lambda: _reference(ServingSpec.read(Path(spec)), Path(out)))
        case ["predict", spec]:
            return _run(lambda: _predict(ServingSpec.read(Path(spec))))
    sys.stderr.write("usage: host SPEC | container-host SPEC | reference SPEC OUT | predict SPEC\n")
    return 2


def _run(command: Callable[[], int]) -> int:
    try:
        return command()
    except ServingError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1


def _reference(spec: ServingSpec, out: Path) -> int:
    """Write the loader's outputs for the sample request and variations of it to a file."""
    from .host.lifecycle import redirect_stdout
    from .host.parity import sample_inputs, write
    from .host.process import load_model
    from .loaders.base import TensorModel

    redirect_stdout()
    model = load_model(spec)
    assert isinstance(model, TensorModel)  # every reference is one
    write(model, sample_inputs(model, spec.model_dir), out)
    return 0


def _predict(spec: ServingSpec) -> int:
    """Serve one request from standard input, and write the response to standard output."""
    from .codec.predictors import predict, predictor
    from .host.lifecycle import redirect_stdout
    from .host.process import load_model

    output = redirect_stdout()
    status, response = predict(predictor(load_model(spec)), sys.stdin.buffer.read())
    with open(output, "wb") as file:
        file.write(response)
    return 0 if status == 200 else 1
