"""What hosts on other machines need to have: listed by content, kept, and given to whoever may fetch it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from trainshed.artifacts.manifest import MANIFEST_FILE, ArtifactManifest
from trainshed.artifacts.staging import Package
from trainshed.control.deployments.artifact_access import TOKEN_TTL_S, ArtifactAccessIssuer
from trainshed.engines.hosts.spec import HostSpec
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.proxy.node_endpoint import NodeEndpoint


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "digest"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "data").write_bytes(b"weights")
    (folder / "link").symlink_to("/etc/passwd")
    return folder.parent


@pytest.fixture
def package(tmp_path: Path) -> Package:
    (tmp_path / "code.tar.gz").write_bytes(b"code")
    return Package(uri="gs://b/code.tar.gz", path=tmp_path / "code.tar.gz", sha256=sha256(b"code"))


def test_files_and_packages_are_found_by_content(tmp_path: Path, models: Path, package: Package) -> None:
    folder = tmp_path / "hosts"
    made = ArtifactManifest.gather(folder, models / "digest", [package])
    assert [each.name for each in made.files] == ["saved_model.pb", "variables/data"]
    package.path.write_bytes(b"another")  # what it was is kept
    read = ArtifactManifest.read(folder)
    assert read == made
    for content in (b"graph", b"weights", b"code"):
        file = read.open(folder, models, sha256(content))
        assert (file.size, file.read(1, 2)) == (len(content), content[1:3])
        file.close()


@pytest.mark.parametrize("digest", ["0" * 64, "", "../../token", "saved_model.pb"])
def test_nothing_else_is(tmp_path: Path, models: Path, digest: str) -> None:
    folder = tmp_path / "hosts"
    with pytest.raises(NotFoundError):
        ArtifactManifest.gather(folder, models / "digest", []).open(folder, models, digest)


def test_a_note_that_was_changed_leads_nowhere(tmp_path: Path, models: Path) -> None:
    (models.parent / "secret").write_bytes(b"secret")
    folder = tmp_path / "hosts"
    ArtifactManifest.gather(folder, models / "digest", [])
    note = (folder / MANIFEST_FILE).read_text()
    (folder / MANIFEST_FILE).write_text(
        note.replace("saved_model.pb", "../../secret").replace(sha256(b"graph"), sha256(b"secret"))
    )
    with pytest.raises(NotFoundError):
        ArtifactManifest.read(folder).open(folder, models, sha256(b"secret"))


@pytest.mark.parametrize("note", [None, "", "[]", '{"model": "x", "files": [{}], "packages": []}'])
def test_a_note_that_is_gone_or_damaged_is_told_of(tmp_path: Path, note: str | None) -> None:
    if note is not None:
        (tmp_path / MANIFEST_FILE).write_text(note)
    with pytest.raises(FailedPreconditionError, match="Create the version again"):
        ArtifactManifest.read(tmp_path)


def test_a_token_is_used_for_half_of_its_life(tmp_path: Path) -> None:
    issued: list[tuple[str, str, str]] = []
    now = [0.0]

    def issue(project: str, model: str, version: str, *, ttl_s: float) -> str:
        issued.append((project, model, version))
        return f"ts_{len(issued)}"

    reach = NodeEndpoint(tls_url="https://here:1", authority="pem", serves_gs=False)
    ways = ArtifactAccessIssuer(reach, issue=issue, clock=lambda: now[0])
    spec = HostSpec(
        project="p",
        model="m",
        version="v",
        instance=0,
        python=Path(),
        model_dir=tmp_path,
        loader="",
        threads=1,
        body_limit=1,
    )
    way = ways.of(spec)
    assert way.url == "https://here:1/trainshed/v1/projects/p/models/m/versions/v/files/"
    now[0] = TOKEN_TTL_S / 4
    assert ways.of(spec) == way
    now[0] = TOKEN_TTL_S * 0.6
    assert ways.of(spec).token == "ts_2"
    assert issued == [("p", "m", "v")] * 2
