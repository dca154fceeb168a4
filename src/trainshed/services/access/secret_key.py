"""The keys that secrets are encrypted with: a file in the state folder, which user code can't reach."""

from __future__ import annotations

import base64
import json
import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trainshed.errors import CannotProceedError, DataLossError
from trainshed.node.files import write_file

_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class _Keys:
    current: str  #: the id of the key for new values; empty: there is none yet
    keys: Mapping[str, bytes]


class SecretKey:
    """Seals and opens values with keys in a file, mode 0600. Thread-safe. The first value creates the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._keys: _Keys | None = None

    def seal(self, value: str, context: str) -> tuple[str, str]:
        """Encrypt a value. Returns the id of the key, and text that `open` reads with the same context."""
        with self._lock:
            keys = self._read()
            if not keys.current:
                keys = self._write(_with_new(keys))
        nonce = os.urandom(_NONCE_BYTES)
        sealed = AESGCM(keys.keys[keys.current]).encrypt(nonce, value.encode(), context.encode())
        return keys.current, base64.b64encode(nonce + sealed).decode()

    def open(self, key_id: str, sealed: str, context: str) -> str | None:
        """Decrypt a value. Returns None if its key is not there. Raises `DataLossError` if the text was changed."""
        with self._lock:
            key = self._read().keys.get(key_id)
        if key is None:
            return None
        raw = base64.b64decode(sealed)
        try:
            return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode()).decode()
        except InvalidTag as exc:
            raise DataLossError(
                "A secret in the database is damaged. Set it again with `trainshed secrets set`."
            ) from exc

    def has(self, key_id: str) -> bool:
        with self._lock:
            return key_id in self._read().keys

    def add(self) -> str:
        """Create a key for all values from now on. Older keys still open. Returns its id. It is on disk on return."""
        with self._lock:
            return self._write(_with_new(self._read())).current

    def keep_only(self, key_id: str) -> None:
        """Forget all other keys."""
        with self._lock:
            keys = self._read()
            self._write(_Keys(key_id, {key_id: keys.keys[key_id]}))

    def _read(self) -> _Keys:
        if self._keys is None:
            try:
                stored = json.loads(self._path.read_bytes())
                keys = {key_id: base64.b64decode(text) for key_id, text in stored["keys"].items()}
                self._keys = _Keys(stored["current"], keys)
            except FileNotFoundError:
                self._keys = _Keys("", {})
            except (ValueError, KeyError, TypeError, AttributeError, OSError) as exc:
                raise CannotProceedError(
                    f"The key of the secrets, {self._path}, can't be read. Restore it from a backup, or remove it and "
                    f"set all secrets again."
                ) from exc
        return self._keys

    def _write(self, keys: _Keys) -> _Keys:
        texts = {key_id: base64.b64encode(key).decode() for key_id, key in keys.keys.items()}
        content = json.dumps({"current": keys.current, "keys": texts}).encode()
        write_file(self._path, content, durable=True)
        self._keys = keys
        return keys


def _with_new(keys: _Keys) -> _Keys:
    key_id = secrets.token_hex(8)
    return _Keys(key_id, {**keys.keys, key_id: AESGCM.generate_key(bit_length=256)})
