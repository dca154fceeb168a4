"""What runs in a runtime to serve models: `host SPEC`, `reference SPEC OUT` and `predict SPEC`. In the server's own
Python: `container-host SPEC`, for models in containers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .errors import ServingError
from .spec import ServingSpec


def main(argv: list[str]) -> int:
    """Do what the first word says. The exit status: 0, or 1 with the reason on standard error or in the answer."""
    match argv:
        case ["host", spec]:
            from .host.process import run_host

            return run_host(Path(spec))
        case ["container-host", spec]:
            from .container.host import run_host as run_passing_host

            return run_passing_host(Path(spec))
        case ["reference", spec, out]:
            return _told(lambda: _reference(ServingSpec.read(Path(spec)), Path(out)))
        case ["predict", spec]:
            return _told(lambda: _predict(ServingSpec.read(Path(spec))))
    sys.stderr.write("usage: host SPEC | container-host SPEC | reference SPEC OUT | predict SPEC\n")
    return 2


def _told(work: Callable[[], int]) -> int:
    try:
        return work()
    except ServingError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1


def _reference(spec: ServingSpec, out: Path) -> int:
    """TensorFlow's answers to the sample and variations of it into a file."""
    from .host.lifecycle import redirect_stdout
    from .host.parity import sample_inputs, write
    from .host.process import load_model
    from .loaders.base import TensorModel

    redirect_stdout()
    model = load_model(replace(spec, loader="tensorflow"))
    assert isinstance(model, TensorModel)  # which a SavedModel is
    write(model, sample_inputs(model, spec.model_dir), out)
    return 0


def _predict(spec: ServingSpec) -> int:
    """One request on standard input, its answer on standard output."""
    from .codec.predictors import predict, predictor
    from .host.lifecycle import redirect_stdout
    from .host.process import load_model

    output = redirect_stdout()
    status, answer = predict(predictor(load_model(spec)), sys.stdin.buffer.read())
    with open(output, "wb") as file:
        file.write(answer)
    return 0 if status == 200 else 1
