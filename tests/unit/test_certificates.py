"""Keys and certificates that belong together, also after a start that was cut short."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from trainshed.certificates import Certificates, ensure_certificates

HOSTS = ("localhost", "127.0.0.1")


def usable(made: Certificates) -> None:
    """A server can use the pair, and a client that trusts the authority believes it."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(made.chain, made.key)
    trusting = ssl.create_default_context(cafile=made.authority)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = served.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()


def test_what_is_good_stays(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path / "c", hosts=HOSTS)
    usable(made)
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    assert ensure_certificates(tmp_path / "c", hosts=HOSTS) == made
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before


@pytest.mark.parametrize("name", ["server-key.pem", "server.pem", "ca-key.pem", "ca.pem"])
@pytest.mark.parametrize("harm", ["another", "empty", "gone"])
def test_a_start_that_was_cut_short_does_not_spoil_the_next(tmp_path: Path, name: str, harm: str) -> None:
    ensure_certificates(tmp_path / "c", hosts=HOSTS)
    ensure_certificates(tmp_path / "other", hosts=HOSTS)
    if harm == "another":
        shutil.copy(tmp_path / "other" / name, tmp_path / "c" / name)
    elif harm == "empty":
        (tmp_path / "c" / name).write_bytes(b"")
    else:
        (tmp_path / "c" / name).unlink()
    authority = (tmp_path / "c" / "ca.pem").read_bytes() if name.startswith("server") else None
    made = ensure_certificates(tmp_path / "c", hosts=HOSTS)
    usable(made)
    assert authority in (None, made.authority.read_bytes()), "clients trusted the old authority"


def test_a_draft_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / ".new-0123").write_bytes(b"half a key")
    ensure_certificates(folder, hosts=("localhost",))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
