"""Keys of service accounts: made here, given out once as a file, and kept as public keys alone.

A key is a row of tokens with a public key in place of a secret, so it is listed, revoked and disabled as a token is.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from trainshed.domain import names
from trainshed.domain.access.signatures import CLOCK_SKEW_S, SignedUrl, account_of, email_of
from trainshed.domain.iam import ALL_PROJECTS, USER_ROLES, Access, Principal, Role, UserKind
from trainshed.domain.times import now_us
from trainshed.errors import FailedPreconditionError, InvalidArgumentError, PermissionDeniedError
from trainshed.services.access.tokens import Tokens, token_body
from trainshed.store.tokens import Token, TokenStore, UserStore

KEY_BITS = 2048
_TOKEN_PATHS = ("/token", "/oauth2/token", "/oauth2/v4/token", "/oauth2/v3/token")
_MAX_ASSERTION_S = 3600  #: that a signed request for a token may be valid
_SECOND_US = 1_000_000


class AccountKeys:
    """Keys of service accounts. Thread-safe."""

    def __init__(
        self, store: TokenStore, users: UserStore, tokens: Tokens, *, clock: Callable[[], int] = now_us
    ) -> None:
        self._store = store
        self._users = users
        self._tokens = tokens
        self._clock = clock

    def create(self, caller: Principal, body: Mapping[str, Any], *, token_uri: str) -> dict[str, Any]:
        """Make a key for a service account. The result has the key file, which nobody can show again.

        The caller must be an owner of its project.
        """
        account = names.user_name(str(body.get("user", "")))
        project, role = str(body.get("project", "")), body.get("role", Role.EDITOR)
        if project == ALL_PROJECTS or "@" in account:
            raise InvalidArgumentError(
                "A key is for one project, and its account has a name without @: both are in its address.",
                field="project" if project == ALL_PROJECTS else "user",
            )
        names.project_id(project)
        if role not in USER_ROLES:
            raise InvalidArgumentError(f"A role is one of {', '.join(USER_ROLES)}; {role!r} is not.", field="role")
        if not caller.may(Access.ADMIN, project):
            raise PermissionDeniedError("Only an owner may make keys, and only for the own project.")
        user = self._users.get(account)
        if user is None or user.kind is not UserKind.SERVICE_ACCOUNT or user.disabled_us is not None:
            raise FailedPreconditionError(
                f"There is no enabled service account {account}. Add one: "
                f"`trainshed auth users create {account} --service-account`."
            )
        private = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
        token = Token(
            id=secrets.token_hex(20),
            principal=Principal(user=account, project=project, role=Role(role)),
            label=str(body.get("label", ""))[:200],
            created_us=self._clock(),
            public_key=_public_text(private),
        )
        self._store.add(token, digest=f"key {token.id}")  # no digest has this form, so no secret is good for it
        return token_body(token) | {"keyFile": _key_file(token, private, token_uri)}

    def signer(self, signed: SignedUrl) -> Principal:
        """Return who signed a URL. Raises `PermissionDeniedError` if no valid key did, or its time is over."""
        now = self._clock()
        if not signed.begins_us - CLOCK_SKEW_S * _SECOND_US <= now < signed.expires_us:
            raise PermissionDeniedError("This signed URL has expired, or is not valid yet. Sign it again.")
        account = account_of(signed.email)
        for token in self._store.keys_of(*account) if account else ():
            if token.good_at(now) and any(_is_signed(token, text, signed.signature) for text in signed.texts):
                return token.principal
        raise PermissionDeniedError(
            "The signature of this URL is not one of a valid key for this request: the key was revoked, its service "
            "account is disabled, or method, path, parameters or headers are not those that were signed."
        )

    def exchange(self, assertion: str, *, ttl_s: float) -> str | None:
        """Return an access token for a request that a key has signed (RFC 7523). Returns None if it is not valid."""
        parts = assertion.split(".")
        header, claims = (_json(part) for part in parts[:2]) if len(parts) == 3 else ({}, {})
        if header.get("alg") != "RS256":
            return None
        signature, signed = _bytes(parts[2]), ".".join(parts[:2]).encode("ascii", "replace")
        for token in self._named(header, claims):
            is_good = bool(token.public_key) and token.good_at(self._clock())
            if is_good and _is_signed(token, signed, signature) and self._are_good(claims, token):
                return self._tokens.exchange_by_id(token.id, ttl_s=ttl_s, label="by key")
        return None

    def _named(self, header: Mapping[str, Any], claims: Mapping[str, Any]) -> Sequence[Token]:
        """Return the key that a request names, or those of its account: Google's library for Node names no key."""
        if "kid" in header:
            token = self._store.get(str(header["kid"]))
            return [token] if token is not None else []
        account = account_of(str(claims.get("iss", "")))
        return list(self._store.keys_of(*account)) if account else []

    def _are_good(self, claims: Mapping[str, Any], token: Token) -> bool:
        begins, ends = claims.get("iat"), claims.get("exp")
        if type(begins) is not int or type(ends) is not int or not 0 < ends - begins <= _MAX_ASSERTION_S:
            return False
        now_s = self._clock() / _SECOND_US
        return (
            begins - CLOCK_SKEW_S <= now_s < ends
            and claims.get("iss") == email_of(token.principal.user, token.principal.project)
            and _is_token_url(claims.get("aud"))
        )


def _public_text(private: rsa.RSAPrivateKey) -> str:
    encoding = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.public_key().public_bytes(*encoding).decode()


def _key_file(token: Token, private: rsa.RSAPrivateKey, token_uri: str) -> dict[str, str]:
    """Return the file in Google's form."""
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": token.principal.project,
        "private_key_id": token.id,
        "private_key": text.decode(),
        "client_email": email_of(token.principal.user, token.principal.project),
        "client_id": str(int(token.id, 16))[:21],
        "token_uri": token_uri,
        "universe_domain": "googleapis.com",
    }


def _is_signed(token: Token, text: bytes, signature: bytes) -> bool:
    key = serialization.load_pem_public_key(token.public_key.encode())
    assert isinstance(key, rsa.RSAPublicKey)  # rows have no others
    try:
        key.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def _is_token_url(value: object) -> bool:
    try:
        return isinstance(value, str) and urlsplit(value).path in _TOKEN_PATHS
    except ValueError:
        return False


def _json(part: str) -> dict[str, Any]:
    try:
        value = orjson.loads(_bytes(part))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _bytes(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        return b""
