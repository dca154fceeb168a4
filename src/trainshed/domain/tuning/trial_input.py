"""The training input of a trial. The Python client imports this module too, and has no package of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CONFIGS = ("masterConfig", "workerConfig", "parameterServerConfig", "evaluatorConfig")


def with_values(training_input: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a training input with the values of hyperparameters as arguments of the trainer, and of its containers.

    The values come after the user's own arguments: for most parsers the last one counts, and users pass defaults too.
    """
    flags = [word for name, text in texts.items() for word in (f"--{name}", text)]
    changed: dict[str, Any] = {**training_input, "args": [*training_input.get("args", ()), *flags]}
    for name in _CONFIGS:
        config = training_input.get(name, {})
        if config.get("containerCommand") or config.get("containerArgs"):
            changed[name] = {**config, "containerArgs": [*config.get("containerArgs", ()), *flags]}
    return changed
