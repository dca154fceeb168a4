"""Secrets: named values of a project. They are written, given to jobs, and never read by the API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainshed.domain.access.secrets import LABEL_PREFIX, check_value, requested, secret_name
from trainshed.domain.times import now_us, rfc3339
from trainshed.errors import FailedPreconditionError, NotFoundError
from trainshed.node.crashpoints import crashpoint
from trainshed.services.access.secret_key import SecretKey
from trainshed.store.access.secrets import SealedSecret, SecretStore


class Secrets:
    """The secrets of all projects. Thread-safe. No error and no answer has a value."""

    def __init__(self, store: SecretStore, key: SecretKey, *, clock: Callable[[], int] = now_us) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._sealing = threading.Lock()  #: from a seal until its row is written; a rotation forgets keys of no row

    def listed(self, project: str) -> list[dict[str, Any]]:
        return [self._body(secret) for secret in self._store.of(project)]

    def set(self, project: str, name: str, value: object, *, user: str) -> dict[str, Any]:
        """Store a value, in place of the one of that name. Jobs that run keep the one that they have."""
        name, value = secret_name(name), check_value(value)
        with self._sealing:
            key_id, sealed = self._key.seal(value, _context(project, name))
            crashpoint("secret.set.sealed")
            secret = SealedSecret(
                project=project, name=name, key_id=key_id, sealed=sealed, user=user, updated_us=self._clock()
            )
            self._store.put(secret)
        return self._body(secret)

    def delete(self, project: str, name: str) -> None:
        if not self._store.delete(project, secret_name(name)):
            raise NotFoundError(f"There is no secret {name} in project {project}.")

    def rotate_key(self) -> dict[str, Any]:
        """Encrypt all secrets with a new key, and forget the older ones. Idempotent after an interruption.

        The new key is on disk before a row has it, and the older ones are there until no row has them. Secrets whose
        key is not there stay as they are.
        """
        with self._sealing:
            return self._rotate()

    def _rotate(self) -> dict[str, Any]:
        key_id = self._key.add()
        crashpoint("secret.rotate.key_added")
        unreadable: list[str] = []

        def reseal(secret: SealedSecret) -> SealedSecret | None:
            context = _context(secret.project, secret.name)
            value = self._key.open(secret.key_id, secret.sealed, context)
            if value is None:
                unreadable.append(f"projects/{secret.project}/secrets/{secret.name}")
                return None
            new_id, sealed = self._key.seal(value, context)
            return replace(secret, key_id=new_id, sealed=sealed)

        count = self._store.reseal(reseal)
        crashpoint("secret.rotate.resealed")
        if all(secret.key_id == key_id or not self._key.has(secret.key_id) for secret in self._store.all()):
            self._key.keep_only(key_id)
        return {"secrets": count, "unreadable": unreadable}

    def check(self, project: str, labels: Mapping[str, str], unsupported: str, *, what: str = "job") -> None:
        """Raise `FailedPreconditionError` if labels ask for a secret that is not there, or can't be given.

        `unsupported` says why a job or version gets none. Empty: it does.
        """
        if not (wanted := requested(labels, what=what)):
            return
        if unsupported:
            raise FailedPreconditionError(
                f"{unsupported} Leave out the labels {LABEL_PREFIX}….", field=f"{what}.labels"
            )
        self.values(project, wanted, what=what)

    def values(self, project: str, names: Iterable[str], *, what: str = "job") -> dict[str, str]:
        """Return secrets of a project by name. Raises `FailedPreconditionError` if one is missing or unreadable."""
        stored = {secret.name: secret for secret in self._store.of(project)}
        values: dict[str, str] = {}
        for name in names:
            secret = stored.get(name)
            context = _context(project, name)
            value = None if secret is None else self._key.open(secret.key_id, secret.sealed, context)
            if value is None:
                why = "has no secret" if secret is None else "has lost the key of the secret"
                raise FailedPreconditionError(
                    f"Project {project} {why} {name}. An owner of the project sets it: `trainshed secrets set {name} "
                    f"--project {project}`.",
                    field=f"{what}.labels",
                )
            values[name] = value
        return values

    def _body(self, secret: SealedSecret) -> dict[str, Any]:
        return {
            "name": secret.name,
            "user": secret.user,
            "updateTime": rfc3339(secret.updated_us),
            "readable": self._key.has(secret.key_id),
        }


def _context(project: str, name: str) -> str:
    """Return what a value is bound to: a row that is copied to another project or name does not open."""
    return f"{project}/{name}"
