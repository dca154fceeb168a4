"""Secrets: their names, what a job asks for by its labels, and which values can be masked. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from trainshed.errors import FailedPreconditionError, InvalidArgumentError

LABEL_PREFIX = "trainshed-secret-"  #: of a job's label that asks for the secret whose name follows
MIN_BYTES = 8  #: a shorter value can't be masked in a log without hiding what is no secret
MAX_BYTES = 64 * 1024
SHOWN = "[secret]"  #: in place of a value
#: variables that choose which code runs before the trainer's own, or that the server gives every replica
_RESERVED_PREFIXES = ("CLOUD_ML_", "GLIBC_", "LD_", "LOCAL_", "MASTER_", "PYTHON", "TRAINSHED_")
_RESERVED = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TF_CONFIG", "CLUSTER_SPEC", "RANK", "WORLD_SIZE")
)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Delivery(StrEnum):
    """How a replica gets a secret."""

    FILE = "file"  #: in the folder that `TRAINSHED_SECRETS` names
    VARIABLE = "variable"  #: of the environment


def secret_name(text: str) -> str:
    """Return a name. Raises `InvalidArgumentError` if it is none."""
    if not _NAME.fullmatch(text):
        raise InvalidArgumentError(
            "The name of a secret is 1 to 40 lower-case letters, digits and hyphens, and starts with a letter.",
            field="secret",
        )
    return text


def check_value(value: object) -> str:
    """Return a value. Raises `InvalidArgumentError`, without the value, if it can't be stored or masked."""
    if not isinstance(value, str) or "\0" in value or not MIN_BYTES <= len(value.encode(errors="replace")) <= MAX_BYTES:
        raise InvalidArgumentError(
            f"The value of a secret is text without NUL, of {MIN_BYTES} bytes to {MAX_BYTES >> 10} KB. A shorter one "
            f"could not be masked in logs.",
            field="value",
        )
    return value


def variable_of(name: str) -> str:
    """Return the name of the variable of a secret: `wandb-api-key` is in WANDB_API_KEY."""
    return name.replace("-", "_").upper()


def requested(labels: Mapping[str, str], *, what: str = "job") -> dict[str, Delivery]:
    """Return which secrets labels ask for, and how. Raises `InvalidArgumentError` if a label is wrong."""
    wanted: dict[str, Delivery] = {}
    for label, how in labels.items():
        if not label.startswith(LABEL_PREFIX):
            continue
        if how not in list(Delivery):
            raise InvalidArgumentError(
                f"The label {label} is {how!r}; it must be {' or '.join(Delivery)}, which says how the {what} gets the "
                f"secret.",
                field=f"{what}.labels",
            )
        name = secret_name(label.removeprefix(LABEL_PREFIX))
        if how == Delivery.VARIABLE and _is_reserved(variable_of(name)):
            raise InvalidArgumentError(
                f"The variable {variable_of(name)} of a {what} is not a secret's. Ask for {name} as a {Delivery.FILE}, "
                f"or set it under another name.",
                field=f"{what}.labels",
            )
        wanted[name] = Delivery(how)
    return wanted


def _is_reserved(variable: str) -> bool:
    return variable in _RESERVED or variable.startswith(_RESERVED_PREFIXES)


def check_unchanged(before: Mapping[str, str], after: Mapping[str, str], *, what: str) -> None:
    """Raise `FailedPreconditionError` if labels that ask for secrets differ."""
    if requested(before) != requested(after):
        raise FailedPreconditionError(
            f"The secrets of {what} are chosen when it is created. Leave its labels {LABEL_PREFIX}… as they are."
        )


def masked_parts(value: str) -> list[str]:
    """Return what is masked for a value: each line that is long enough, and the whole as JSON and `repr` show it."""
    parts = [line for line in _lines(value) if len(line.encode()) >= MIN_BYTES]
    if len(_lines(value)) > 1:
        text = value.strip("\r\n")
        parts += [text.replace("\r", "\\r").replace("\n", "\\n"), text.replace("\r", "").replace("\n", "\\n")]
    return list(dict.fromkeys(parts))


def short_lines(value: str) -> list[str]:
    """Return the lines of a value that are masked only where the line before them was: alone they may be anything."""
    return [line for line in _lines(value) if line and len(line.encode()) < MIN_BYTES]


def _lines(value: str) -> list[str]:
    return [line.strip("\r") for line in value.strip("\r\n").split("\n")]


def masked(text: str, values: Iterable[str]) -> str:
    """Return a text in which secrets with these values are replaced, as in the output of replicas."""
    known = list(values)
    for part in sorted({part for value in known for part in masked_parts(value)}, key=len, reverse=True):
        text = text.replace(part, SHOWN)
    short = {line for value in known for line in short_lines(value)}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number and line.strip() in short and SHOWN in lines[number - 1]:
            lines[number] = SHOWN
    return "\n".join(lines)
