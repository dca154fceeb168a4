"""The spec of a host: one JSON file, format 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

F32, BF16 = "f32", "bf16"  #: values of `precision`


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpec:
    """One host of one version. `from_json` rejects unknown fields; missing fields have the defaults below."""

    model_dir: Path  #: the snapshot of the version, or a folder in it
    loader: str = ""  #: a name of `loaders.LOADERS`; empty: detected by the files
    project: str = ""
    model: str = ""
    version: str = ""
    instance: int = 0  #: number of the host among those of its version
    socket: Path = Path()  #: the Unix socket that a local host listens on; empty: standard input is a listening one
    address: tuple[str, int] | None = None  #: the host and port that a remote host listens on
    secret: str = field(default="", repr=False)  #: first frame of every connection; empty: no authentication
    prediction_class: str = ""  #: `package.module.Class` of a custom prediction routine
    site: str = ""  #: folder with the version's own packages, put before all others on `sys.path`
    explanation: Mapping[str, Any] = field(default_factory=dict)  #: explanationConfig
    container: Mapping[str, Any] = field(
        default_factory=dict
    )  #: a `HostContainerSpec`, if a container serves the version
    threads: int = 2  #: for the model
    memory_bytes: int = 0  #: RLIMIT_DATA; 0: no limit
    max_batch: int = 32  #: instances in one run of the model
    batching: str = "auto"  #: `auto`, `exact` or `off`
    precision: str = F32  #: `f32`, or `bf16` if the loader can
    queue_limit: int = 256  #: pending requests
    body_limit: int = 10 << 20  #: bytes of one request

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        if value.get("format") != 1:
            raise ValueError(f"This host reads specs of format 1, not {value.get('format')!r}.")
        known = {f.name for f in fields(cls)} | {"subfolder"}
        if unknown := sorted(set(value) - known - {"format"}):
            raise ValueError(f"The spec has fields that this host does not know: {', '.join(unknown)}.")
        values = {name: item for name, item in value.items() if name != "format"}
        if (address := values.get("address")) is not None:
            values["address"] = (str(address[0]), int(address[1]))
            if not values.get("secret"):
                raise ValueError("A host that others can reach must have a secret, and the spec has none.")
        values |= {name: Path(values[name]) for name in ("model_dir", "socket") if name in values}
        values["model_dir"] /= values.pop("subfolder", "")  # that has the model, of a whole snapshot
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.from_json(json.loads(path.read_bytes()))
