"""The images of versions that are containers: found on this machine or pulled, and from then on known by their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.errors import FailedPrecondition
from trainshed.node.containers import images
from trainshed.node.containers import tool as containers
from trainshed.node.containers.images import NoImage
from trainshed.node.containers.tool import NoTool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image that runs here."""

    tool: Mapping[str, Any]  #: `Tool.words` of what has it
    id: str


def find_image(image: str, *, tool: str, tell: Callable[[str], None]) -> FoundImage:
    """An image by its name or its id. Blocks while it is pulled; `tell` is told of that, and what it raises goes
    through. `FailedPrecondition` if it can't be had, or does not run here."""
    try:
        chosen, ids = images.ensure(containers.find(tool), [image], tell)
    except (NoTool, NoImage) as exc:
        raise FailedPrecondition(str(exc)) from exc
    return FoundImage(tool=chosen.words(), id=ids[image])
