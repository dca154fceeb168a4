"""Packages and inputs in buckets whose files become links, before a job is launched and while it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from trainshed.artifacts.staging import stage_package
from trainshed.buckets.backend import BackendRouter
from trainshed.buckets.file_backend import FileBackend
from trainshed.control.packages import PackageRequest, resolve_packages
from trainshed.control.uri_resolver import UriResolver
from trainshed.domain.objects import ObjectDraft
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.testing.fakes.swaps import SWAPS, Swap

URI = "gs://mine/code/trainer-0.1.tar.gz"
OURS, THEIRS = b"our package", b"their package"


class Project:
    """A bucket with one package, and a folder for an attempt."""

    def __init__(self, path: Path) -> None:
        backend = FileBackend(path / "buckets", path / "uploads")
        backend.make_bucket("mine")
        with backend.stage() as staged:
            staged.write(OURS)
            backend.commit(staged, ObjectDraft(bucket="mine", name="code/trainer-0.1.tar.gz"))
        self.file = path / "buckets" / "mine" / "code" / "trainer-0.1.tar.gz"
        self.attempt = path / "attempt"
        self.request = PackageRequest(project="p", copies=self.attempt / "fetched", remedy="Do it again.")
        self.uris = UriResolver(buckets=path / "buckets", backend=BackendRouter(backend, {}), owner=lambda bucket: "p")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("swap", SWAPS)
def test_a_package_that_became_a_link_before_the_launch_is_not_there(project: Project, swap: Swap) -> None:
    swap(project.file, THEIRS)
    with pytest.raises(FailedPreconditionError, match=r"is no longer there\. Do it again\."):
        resolve_packages([URI], project.uris, project.request)


@pytest.mark.parametrize("swap", SWAPS)
def test_a_package_that_becomes_a_link_during_the_launch_is_the_one_that_was_checked(
    project: Project, swap: Swap
) -> None:
    [package] = resolve_packages([URI], project.uris, project.request)
    swap(project.file, THEIRS)
    assert package.sha256 == hashlib.sha256(OURS).hexdigest()
    assert package.path.read_bytes() == OURS
    assert package.path.name == "trainer-0.1.tar.gz", "installations are named by it"
    assert stage_package(project.attempt, package).read_bytes() == OURS


@pytest.mark.parametrize("swap", SWAPS)
def test_an_input_that_became_a_link_is_not_there(project: Project, swap: Swap) -> None:
    assert project.uris.local_file("p", URI, copies=project.attempt) == project.file
    swap(project.file, THEIRS)
    with pytest.raises(NotFoundError):
        project.uris.local_file("p", URI, copies=project.attempt)
