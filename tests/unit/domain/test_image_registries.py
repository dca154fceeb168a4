"""Which hosts an image's name may lead to."""

from __future__ import annotations

import pytest

from trainshed.domain.image_registries import DEFAULT_REGISTRIES, ImageRegistries, registry_of
from trainshed.errors import CannotProceedError, InvalidArgumentError

DEFAULT = ImageRegistries.parse(DEFAULT_REGISTRIES)
#: names that lead to a host, and the registry of each
ELSEWHERE = {
    "127.0.0.1:8080/x": "127.0.0.1:8080",
    "127.0.0.1/x": "127.0.0.1",
    "169.254.169.254/latest/meta-data": "169.254.169.254",
    "2130706433:80/x": "2130706433:80",
    "0.0.0.0:80/x": "0.0.0.0:80",
    "localhost:5000/x": "localhost:5000",
    "LOCALHOST:22/x": "localhost:22",
    "db.internal:5432/x:1": "db.internal:5432",
    "INTRANET/x": "intranet",
    "docker.io:22/library/python": "docker.io:22",
    "docker.io.evil.example/x": "docker.io.evil.example",
    "evil.example/gcr.io/x": "evil.example",
    "evilgcr.io/x": "evilgcr.io",
    "x.gcr.io:8443/x": "x.gcr.io:8443",
    "127.0.0.1:80-docker.pkg.dev/x": "127.0.0.1:80-docker.pkg.dev",
    "user@127.0.0.1:80/x": "user@127.0.0.1:80",
    "docker.io@127.0.0.1:80/x": "docker.io@127.0.0.1:80",
}
TRANSPORTS = ("dir:/etc", "dir:folder", "docker://127.0.0.1:80/x", "oci-archive:file.tar", "docker-daemon:x:1", "OCI:x")


@pytest.mark.parametrize(("image", "registry"), ELSEWHERE.items())
def test_other_registries_are_refused_and_never_pulled_from(image: str, registry: str) -> None:
    assert registry_of(image) == registry
    with pytest.raises(InvalidArgumentError, match=r"setting image_registries allows: docker\.io, ") as refused:
        DEFAULT.check(image, field="image_uri")
    assert refused.value.field == "image_uri"
    assert not DEFAULT.pulls(image)


@pytest.mark.parametrize("image", TRANSPORTS)
def test_places_are_no_names(image: str) -> None:
    with pytest.raises(InvalidArgumentError):
        ImageRegistries.parse("*, *:*").check(image, field="image_uri")
    assert not ImageRegistries.parse("*, *:*").pulls(image)


@pytest.mark.parametrize(
    "image",
    [
        *("python", "python:3.11", "me/trainer@sha256:0123", "docker.io/library/python", "Docker.IO/library/python"),
        *("gcr.io/p/trainer:1", "eu.gcr.io/p/trainer", "us-central1-docker.pkg.dev/p/r/trainer", "ghcr.io/me/trainer"),
        *("quay.io/a/b", "registry.k8s.io/pause", "mcr.microsoft.com/x", "nvcr.io/nvidia/x", "public.ecr.aws/a/b"),
    ],
)
def test_registries_of_tutorials_are_allowed(image: str) -> None:
    DEFAULT.check(image, field="image_uri")
    assert DEFAULT.pulls(image)


def test_images_of_the_machine_are_allowed_and_not_pulled() -> None:
    for registries in (DEFAULT, ImageRegistries.parse("localhost"), ImageRegistries.parse("")):
        registries.check("localhost/trainer:1", field="image_uri")
        assert not registries.pulls("localhost/trainer:1")
    none = ImageRegistries.parse("")
    none.check("trainer:1", field="image_uri")
    assert not none.pulls("trainer:1")


def test_patterns() -> None:
    own = ImageRegistries.parse("Registry.lab:5000, *.lab, 10.0.0.7:*")
    for image in ("registry.lab:5000/x", "a.lab/x", "10.0.0.7:1/x"):
        own.check(image, field="")
        assert own.pulls(image)
    for image in ("registry.lab:5001/x", "a.lab:1/x", "10.0.0.7/x", "10.0.0.71:1/x", "gcr.io/x"):
        assert not own.pulls(image)
    for bad in ("https://gcr.io", "gcr.io/p", "a b", "h:p", "[::1]:5000"):
        with pytest.raises(CannotProceedError, match="is not a host"):
            ImageRegistries.parse(bad)
