"""Unpacks the credentials bundle of a remote replica on its node: credential files and the CA bundle."""

from __future__ import annotations

import os
import ssl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

CREDENTIALS_FOLDER = "credentials"  #: in the replica's folder, which is `@node@` in the bundle's files
CA_FILE = "bundle.pem"
_SYSTEM_CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def unpack_credentials(
    bundle: dict[str, Any], folder: str, substitute: Callable[[str], str], for_all: bool = False
) -> None:
    """Write the bundle's files below `folder`, readable by this user only. `substitute` replaces placeholders.

    `for_all` makes them readable by every user, for a container with its own user. Then `folder` must be private.

    Adds a PEM file with the authorities that this machine trusts and the server's own.
    """
    if not bundle["files"]:
        return
    target = os.path.join(folder, CREDENTIALS_FOLDER)
    os.makedirs(target, mode=0o700, exist_ok=True)
    for name, content in bundle["files"].items():
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ValueError("The kit has a file %r, which is no plain name." % name)
        _write(os.path.join(target, name), substitute(content).encode())
    _write(os.path.join(target, CA_FILE), b"\n".join([*trusted_authorities(), bundle["ca"].encode()]))
    if for_all:
        os.chmod(target, 0o755)  # noqa: S103 - see the docstring
        for name in (*bundle["files"], CA_FILE):
            os.chmod(os.path.join(target, name), 0o644)


def trusted_authorities() -> list[bytes]:
    """CA certificates that the environment names, or else the system's. Empty if there are none."""
    configured = [os.environ[name] for name in _CA_VARIABLES if os.environ.get(name)]
    paths = [path for path in dict.fromkeys(configured) if os.path.isfile(path)]
    if not paths:
        compiled_in = ssl.get_default_verify_paths().openssl_cafile
        paths = [path for path in (*_SYSTEM_CA_FILES, compiled_in) if path and os.path.isfile(path)][:1]
    contents = []
    for path in paths:
        with open(path, "rb") as file:
            contents.append(file.read())
    return contents


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
