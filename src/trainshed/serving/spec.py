"""What a host is told when it starts: one JSON file, format 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpec:
    """One host of one version. `from_json` refuses what it does not know; what is left out has the value below."""

    model_dir: Path  #: the files of the version, which nobody changes
    loader: str = ""  #: a name of `loaders.LOADERS`; empty: found by the files
    project: str = ""
    model: str = ""
    version: str = ""
    instance: int = 0  #: number of the host among those of its version
    socket: Path = Path()  #: where it listens, if nobody but this machine is to reach it
    address: tuple[str, int] | None = None  #: host and port where it listens instead
    secret: str = field(default="", repr=False)  #: which every connection must begin with; empty: none is asked for
    prediction_class: str = ""  #: `package.module.Class` of a custom prediction routine
    site: str = ""  #: folder with the version's own packages, put before all others on `sys.path`
    explanation: Mapping[str, Any] = field(default_factory=dict)  #: explanationConfig
    container: Mapping[str, Any] = field(default_factory=dict)  #: a `containers.Order`, if that serves the version
    threads: int = 2  #: that the model may compute with
    memory_bytes: int = 0  #: of data; 0 is no limit
    max_batch: int = 32  #: instances in one run of the model
    queue_limit: int = 256  #: requests that wait
    body_limit: int = 10 << 20  #: bytes of one request

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        if value.get("format") != 1:
            raise ValueError(f"This host reads specs of format 1, not {value.get('format')!r}.")
        known = {f.name for f in fields(cls)}
        if strange := sorted(set(value) - known - {"format"}):
            raise ValueError(f"The spec has fields that this host does not know: {', '.join(strange)}.")
        given = {name: item for name, item in value.items() if name != "format"}
        if (address := given.get("address")) is not None:
            given["address"] = (str(address[0]), int(address[1]))
            if not given.get("secret"):
                raise ValueError("A host that others can reach must have a secret, and the spec has none.")
        return cls(**given | {name: Path(given[name]) for name in ("model_dir", "socket") if name in given})

    @classmethod
    def read(cls, path: Path) -> Self:
        return cls.from_json(json.loads(path.read_bytes()))
