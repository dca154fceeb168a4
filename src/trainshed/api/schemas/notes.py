"""What a type says about a field beyond its values: notes for `Annotated`. A plain string is the description."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a type in the document. Without `shown`, its shape is Google's and is left out."""

    name: str
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Example:
    """A value for examples."""

    value: Any


class Format(StrEnum):
    """A format of JSON schema."""

    TIME = "date-time"


Time = Annotated[str, Format.TIME, Example("2026-11-17T12:00:00.000000Z")]
Json = Annotated[Any, "Any JSON value.", Named("Json", shown=False), Example(5)]
Labels = Annotated[dict[str, str], Named("Labels"), Example({"team": "vision"})]
