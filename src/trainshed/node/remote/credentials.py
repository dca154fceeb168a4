"""What a replica on a machine other than the server's is given, unpacked there: credentials, and whom to trust."""

from __future__ import annotations

import os
import ssl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

FOLDER = "credentials"  #: in the replica's own, which is `@node@` in all texts of the kit
BUNDLE = "bundle.pem"
_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_SAID = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def unpack_credentials(kit: dict[str, Any], folder: str, fill: Callable[[str], str], for_all: bool = False) -> None:
    """Write the files of a kit below `folder`, readable by this user alone. `fill` puts in what stands for something.

    `for_all`: whoever sees them may read them, for a container with a user of its own. `folder` must then be closed.

    Beside them lies a bundle with the authorities that this machine trusts and the server's own.
    """
    if not kit["files"]:
        return
    place = os.path.join(folder, FOLDER)
    os.makedirs(place, mode=0o700, exist_ok=True)
    for name, text in kit["files"].items():
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ValueError("The kit has a file %r, which is no plain name." % name)
        _write(os.path.join(place, name), fill(text).encode())
    _write(os.path.join(place, BUNDLE), b"\n".join([*trusted_authorities(), kit["ca"].encode()]))
    if for_all:
        os.chmod(place, 0o755)  # noqa: S103 - see above
        for name in (*kit["files"], BUNDLE):
            os.chmod(os.path.join(place, name), 0o644)


def trusted_authorities() -> list[bytes]:
    """The authorities of this machine: those that its environment names, else the system's own; none if it has none."""
    said = [os.environ[name] for name in _SAID if os.environ.get(name)]
    known = [path for path in dict.fromkeys(said) if os.path.isfile(path)]
    if not known:
        compiled_in = ssl.get_default_verify_paths().openssl_cafile
        known = [path for path in (*_SYSTEM, compiled_in) if path and os.path.isfile(path)][:1]
    found = []
    for path in known:
        with open(path, "rb") as file:
            found.append(file.read())
    return found


def _write(path: str, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
