"""Folders of MLflow among the files of versions: reads `MLmodel`, and makes a package of what MLflow requires."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

import yaml

from trainshed.artifacts.staging import Package
from trainshed.domain.models.mlflow_models import (
    MLMODEL,
    REQUIREMENTS,
    MlflowModel,
    canonical,
    check_runtime,
    mlflow_model,
    own_requirements,
)
from trainshed.errors import FailedPreconditionError
from trainshed.runtimes.catalogue import CATALOGUE

_MAX_BYTES = 512 << 10  #: of a file that the server reads
_NAME = "mlflow_model_requirements"
_INFO = f"{_NAME}-1.0.dist-info"
_WHEEL_NAME = f"{_NAME}-1.0-py3-none-any.whl"


class _TextLoader(yaml.BaseLoader):
    """Reads every value as the text in the file, and null as None.

    Numbers, dates and merged mappings of a few kilobytes can take the server minutes or all of its memory.
    """


_NULL = "tag:yaml.org,2002:null"
_TextLoader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|Null|NULL)?\Z"), ["~", "n", "N", ""])
_TextLoader.add_constructor(_NULL, lambda loader, node: None)


def read_mlflow_model(folder: Path, *, where: str) -> MlflowModel | None:
    """How the folder of MLflow with a version's files is served. None if it is none. `where` is its URI.

    Raises `FailedPreconditionError` if its `MLmodel` can't be read or has no flavour that can be served.
    """
    path = folder / MLMODEL
    if not path.is_file():
        return None
    try:
        document = yaml.load(_read(path, where), Loader=_TextLoader)  # noqa: S506  makes texts, lists and mappings only
    except (yaml.YAMLError, RecursionError) as exc:
        raise FailedPreconditionError(f"{where}/{MLMODEL} can't be read: {type(exc).__name__}: {exc}.") from exc
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return mlflow_model(document, names, where=where)


def requirements_of(model: MlflowModel, folder: Path, runtime: str, copies: Path, *, where: str) -> tuple[Package, ...]:
    """A package that requires what a model needs besides its runtime, written to `copies`. None without MLflow.

    Equal requirements make equal packages, so their installation is shared. Raises `FailedPreconditionError` if the
    runtime can't serve the model.
    """
    packages = _packages_of(runtime)
    check_runtime(model, runtime, packages, where=where)
    if not model.needs_mlflow:
        return ()
    path = folder / REQUIREMENTS
    lines = _read(path, where).splitlines() if path.is_file() else []
    copies.mkdir(mode=0o700, parents=True, exist_ok=True)
    wheel = copies / _WHEEL_NAME
    _write_wheel(wheel, own_requirements(lines, model, packages))
    return (Package(uri=_WHEEL_NAME, path=wheel, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest()),)


def _read(path: Path, where: str) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise FailedPreconditionError(f"{where}/{path.name} is larger than {_MAX_BYTES >> 10} KB.")
    try:
        return path.read_text()
    except UnicodeDecodeError as exc:
        raise FailedPreconditionError(f"{where}/{path.name} is no text: {exc}.") from exc


def _packages_of(runtime: str) -> set[str]:
    """The packages of a runtime, and those that count as installed."""
    known = CATALOGUE[runtime]
    return {canonical(pin.partition("==")[0].partition("[")[0]) for pin in (*known.pins, *known.stands_for)}


def _write_wheel(path: Path, requirements: Iterable[str]) -> None:
    required = "".join(f"Requires-Dist: {each}\n" for each in requirements)
    contents = {
        f"{_INFO}/METADATA": f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 1.0\n{required}",
        f"{_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: trainshed\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(_record(name, text.encode()) for name, text in contents.items())
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (*contents.items(), (f"{_INFO}/RECORD", f"{record}{_INFO}/RECORD,,\n")):
            archive.writestr(zipfile.ZipInfo(name), text)  # of a fixed date


def _record(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"
