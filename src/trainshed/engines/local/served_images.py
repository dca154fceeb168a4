"""The images of versions that are containers: found on this machine or pulled, and from then on known by their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainshed.errors import FailedPreconditionError
from trainshed.node.containers import images
from trainshed.node.containers import tool as container_tool
from trainshed.node.containers.images import ImageError
from trainshed.node.containers.tool import NoContainerToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """An image that runs here."""

    tool: Mapping[str, Any]  #: `ContainerTool.words` of what has it
    id: str


def resolve_image(image: str, *, tool: str, tell: Callable[[str], None]) -> ResolvedImage:
    """An image by its name or its id. Blocks while it is pulled; `tell` is told of that, and what it raises goes
    through. `FailedPreconditionError` if it can't be had, or does not run here."""
    try:
        chosen, ids = images.ensure_images(container_tool.find(tool), [image], tell)
    except (NoContainerToolError, ImageError) as exc:
        raise FailedPreconditionError(str(exc)) from exc
    return ResolvedImage(tool=chosen.words(), id=ids[image])
