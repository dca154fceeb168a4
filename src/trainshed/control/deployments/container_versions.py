"""From a version that is a container to what its hosts run: the image found or pulled, and known by its content."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainshed.domain.models.version import Version
from trainshed.domain.models.version_container import ServingContainer, aip_environment, model_folder
from trainshed.engines.local.containers import ResolvedContainer
from trainshed.engines.local.served_images import ResolvedImage, resolve_image
from trainshed.errors import FailedPreconditionError

#: what hosts of containers run in: they load nothing themselves, and need no runtime
PYTHON = Path(sys.executable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResolver:
    """Finds images. `tool` is the setting; `number` tells the number of a project."""

    tool: str
    number: Callable[[str], int]

    def resolve_new(
        self, version: Version, container: ServingContainer, tell: Callable[[str], None]
    ) -> ResolvedContainer:
        """What a new version runs. Blocks while the image is pulled; `tell` is told of it, and what it raises ends
        that. `FailedPreconditionError` if the image can't be had."""
        return self._to_run(version, container, resolve_image(container.image, tool=self.tool, tell=tell))

    def resolve_existing(self, version: Version, container: ServingContainer) -> ResolvedContainer:
        """What a version runs that was created before: the same image, whatever its name leads to now."""
        known = str(version.details["image"])
        try:
            found = resolve_image(known, tool=self.tool, tell=_silently)
        except FailedPreconditionError:
            found = resolve_image(container.image, tool=self.tool, tell=_silently)
            if found.id != known:
                raise FailedPreconditionError(
                    f"The image {container.image} is not the one any more that version {version.id} was created with, "
                    f"and that one was removed. Create the version again."
                ) from None
        return self._to_run(version, container, found)

    def _to_run(self, version: Version, container: ServingContainer, found: ResolvedImage) -> ResolvedContainer:
        return ResolvedContainer(
            container=container,
            tool=found.tool,
            image=found.id,
            env=aip_environment(version, container, number=self.number(version.project)),
            folder=model_folder(version),
        )


def _silently(line: str) -> None:
    """There is nobody to tell."""
