"""What a replica on another machine finds beside itself."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from trainshed.certificates import ensure_certificates
from trainshed.node.remote.credentials import unpack_credentials


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ensure_certificates(tmp_path_factory.mktemp("made"), hosts=("x",)).authority.read_text()


def test_files_are_filled_in_and_readable_by_one_user_alone(tmp_path: Path, authority: str) -> None:
    kit = {"files": {"boto": "ca = @node@/x", "token": "ts_secret\n"}, "ca": authority}
    for _ in range(2):  # a second start finds those of the first
        unpack_credentials(kit, str(tmp_path), lambda text: text.replace("@node@", "/here"))
    folder = tmp_path / "credentials"
    assert (folder / "boto").read_text() == "ca = /here/x"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "boto": 0o600,
        "token": 0o600,
        "bundle.pem": 0o600,
    }


def test_files_for_a_container_are_readable_by_whoever_sees_them(tmp_path: Path, authority: str) -> None:
    unpack_credentials({"files": {"token": "ts_secret\n"}, "ca": authority}, str(tmp_path), str, for_all=True)
    folder = tmp_path / "credentials"
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_the_bundle_is_what_the_machine_trusts_and_the_server(
    tmp_path: Path, authority: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ensure_certificates(tmp_path / "machine", hosts=("x",)).authority
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(ours))
    unpack_credentials({"files": {"token": "t"}, "ca": authority}, str(tmp_path), str)
    context = ssl.create_default_context(cafile=tmp_path / "credentials" / "bundle.pem")
    names = {str(each["subject"]) for each in context.get_ca_certs()}
    assert len(names) == 2


def test_without_files_nothing_is_written(tmp_path: Path, authority: str) -> None:
    unpack_credentials({"files": {}, "ca": authority}, str(tmp_path), str)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", ""])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, authority: str, name: str) -> None:
    with pytest.raises(ValueError, match="no plain name"):
        unpack_credentials({"files": {name: "x"}, "ca": authority}, str(tmp_path / "folder"), str)
    assert [*(tmp_path / "folder" / "credentials").iterdir()] == []
