"""The registries that images may be pulled from.

An image's name chooses the host and port to connect to, so a name alone must not reach every service of a network.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from trainshed.errors import CannotProceedError, InvalidArgumentError

DEFAULT_REGISTRIES = (
    "docker.io, gcr.io, *.gcr.io, *-docker.pkg.dev, ghcr.io, quay.io, registry.k8s.io, mcr.microsoft.com, nvcr.io, "
    "public.ecr.aws"
)
REGISTRIES_DESCRIPTION = (  #: of the setting
    "Registries, separated by commas, that images of jobs and versions may be pulled from: hosts, or HOST:PORT. "
    "`*` stands for any part of a host, or any port. An image that the machine has is not pulled; one of "
    "`localhost/` never is."
)
UNQUALIFIED_REGISTRY = "docker.io"  #: of names without a host
LOCAL = "localhost"  #: the host in names of images that were built on the machine itself; nothing is pulled from it

_PATTERN = re.compile(r"[a-z0-9*][a-z0-9.*-]*(:[0-9*]+)?")
#: Podman reads `TRANSPORT:…` as the way to an image, such as a folder of this machine
_TRANSPORTS = frozenset(
    {
        *("atomic", "containers-storage", "dir", "docker", "docker-archive", "docker-daemon"),
        *("oci", "oci-archive", "ostree", "sif", "tarball"),
    }
)


@dataclass(frozen=True, slots=True)
class ImageRegistries:
    """Registries by host, or host and port. `*` stands for any part of a host, or for any port."""

    patterns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the setting, names separated by commas. Raises `CannotProceedError` if one is no host."""
        patterns = tuple(name.strip().lower() for name in text.split(",") if name.strip())
        if bad := next((name for name in patterns if not _PATTERN.fullmatch(name)), ""):
            raise CannotProceedError(f"The setting image_registries has {bad!r}, which is not a host, or HOST:PORT.")
        return cls(patterns)

    def check(self, image: str, *, field: str) -> None:
        """Raises `InvalidArgumentError` if the registry of the image is not allowed."""
        registry = registry_of(image)
        if _has_transport(image):
            raise InvalidArgumentError(
                f"{image[:200]!r} is a place where an image lies, not the name of one, such as trainer:1.", field=field
            )
        if registry not in ("", LOCAL) and not self._allows(registry):
            raise InvalidArgumentError(
                f"Images are not pulled from {registry[:200]} here. The server's setting image_registries allows: "
                f"{', '.join(self.patterns) or 'none'}. Ask its operator to add it, or push the image to one of these.",
                field=field,
            )

    def pulls(self, image: str) -> bool:
        """Whether the image may be pulled if the machine does not have it."""
        registry = registry_of(image) or UNQUALIFIED_REGISTRY
        return not _has_transport(image) and registry != LOCAL and self._allows(registry)

    def _allows(self, registry: str) -> bool:
        return any(_matches(registry, pattern) for pattern in self.patterns)


def registry_of(image: str) -> str:
    """The host of an image's name, with its port, in lower case. Empty if the name has none.

    Podman and Docker take the first part as a host if it has a dot, a colon or a capital letter.
    """
    first, slash, _ = image.partition("/")
    is_host = "." in first or ":" in first or first == LOCAL or first != first.lower()
    return first.lower() if slash and is_host else ""


def _has_transport(image: str) -> bool:
    transport, colon, _ = image.partition(":")
    return bool(colon) and transport.lower() in _TRANSPORTS


def _matches(registry: str, pattern: str) -> bool:
    """Whether a registry is one of a pattern. A pattern without a port allows the default port alone."""
    (host, _, port), (host_pattern, _, port_pattern) = registry.partition(":"), pattern.partition(":")
    expression = "[a-z0-9.-]*".join(re.escape(part) for part in host_pattern.split("*"))
    port_matches = port.isdigit() if port_pattern == "*" else port == port_pattern
    return port_matches and re.fullmatch(expression, host) is not None
