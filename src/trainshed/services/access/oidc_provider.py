"""An OpenID provider: discovery, sign-in by authorization code and by device code, tokens and claims."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from trainshed.domain.access.oidc import OidcSettings, check_endpoint
from trainshed.errors import CannotProceedError, FailedPreconditionError, UnauthenticatedError, UnavailableError

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1 << 20
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")
_DEVICE_ENDPOINT = "device_authorization_endpoint"  #: optional
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEVICE_INTERVAL_S = 5.0  #: RFC 8628's default
_DEVICE_TTL_S = 600.0  #: if the provider names none


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTokens:
    """What the token endpoint gave."""

    access: str
    refresh: str  #: empty: none
    identity: Mapping[str, Any]  #: claims of the ID token; empty if there was none


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A sign-in by device code that the provider has begun (RFC 8628)."""

    secret: str  #: the device code itself
    user_code: str  #: for the person to type in
    url: str  #: where the person types it in
    url_with_code: str  #: where that is already done; empty if the provider has no such page
    ttl_s: float
    interval_s: float  #: the least time between two requests for tokens


class RefusedError(UnauthenticatedError):
    """The provider refused. `code` is OAuth's word for why; empty if it gave none."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__("The OpenID provider refused this sign-in.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: what is sent has credentials for one address."""

    def redirect_request(self, *_args: object, **_fields: object) -> None:
        return None


class OidcProvider:
    """Talks to the provider. Blocks. Raises `UnavailableError` if it does not answer. Thread-safe.

    The signature of an ID token is not checked: it comes from the token endpoint over TLS, which OpenID Connect Core
    (3.1.3.7) accepts in its place. ID tokens from elsewhere are never read.
    """

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._lock = threading.Lock()
        self._document: Mapping[str, Any] | None = None

    def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return the page of the provider at which a person signs in."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if "offline_access" in self._settings.scopes.split():
            query["prompt"] = "consent"  # providers give a refresh token only with it
        endpoint = self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def redeem(self, code: str, *, redirect_uri: str, verifier: str) -> ProviderTokens:
        """Exchange the code of a sign-in. Raises `UnauthenticatedError` if the provider refuses it."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return self._tokens(form | {"code_verifier": verifier})

    def begin_device(self) -> DeviceCode:
        """Begin a sign-in by device code. Raises `FailedPreconditionError` if the provider has none."""
        endpoint = self._optional_endpoint(_DEVICE_ENDPOINT)
        if not endpoint:
            raise FailedPreconditionError(
                "The OpenID provider has no sign-in for the command line (device authorization). Switch it on there, "
                "or ask an owner for a token."
            )
        answer = self._post(endpoint, {"scope": self._settings.scopes})
        code = DeviceCode(
            secret=str(answer.get("device_code") or ""),
            user_code=str(answer.get("user_code") or ""),
            url=str(answer.get("verification_uri") or ""),
            url_with_code=str(answer.get("verification_uri_complete") or ""),
            ttl_s=_seconds(answer.get("expires_in"), _DEVICE_TTL_S),
            interval_s=_seconds(answer.get("interval"), _DEVICE_INTERVAL_S),
        )
        if not (code.secret and code.user_code and code.url):
            raise UnavailableError("The OpenID provider gave no device code.")
        return code

    def redeem_device(self, secret: str) -> ProviderTokens:
        """Exchange a device code. Raises `RefusedError`; its code says whether the person has yet to sign in."""
        return self._tokens({"grant_type": _DEVICE_GRANT, "device_code": secret})

    def refresh(self, token: str) -> ProviderTokens:
        """Get new tokens. Raises `UnauthenticatedError` if the provider refuses: the person is signed out there."""
        return self._tokens({"grant_type": "refresh_token", "refresh_token": token})

    def claims(self, access_token: str) -> Mapping[str, Any]:
        """Return the claims of a person as they are now. Raises `UnauthenticatedError` if the token has ended."""
        return self._send(self._endpoint("userinfo_endpoint"), {"authorization": f"Bearer {access_token}"})

    def _tokens(self, form: Mapping[str, str]) -> ProviderTokens:
        answer = self._post(self._endpoint("token_endpoint"), form)
        access = answer.get("access_token")
        if not isinstance(access, str) or not access:
            raise UnauthenticatedError("The OpenID provider gave no access token.")
        identity = _payload(answer["id_token"]) if answer.get("id_token") else {}
        return ProviderTokens(access=access, refresh=str(answer.get("refresh_token") or ""), identity=identity)

    def _post(self, url: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        """Send a form, as the client that this server is."""
        headers = {"content-type": "application/x-www-form-urlencoded"}
        fields = {**form, "client_id": self._settings.client_id}
        if self._settings.client_secret:
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(self._settings.client_secret, safe='')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return self._send(url, headers, urlencode(fields).encode())

    def _endpoint(self, name: str) -> str:
        return str(self._discovered()[name])

    def _optional_endpoint(self, name: str) -> str:
        """Return an endpoint. Empty if the provider has none."""
        url = str(self._discovered().get(name) or "")
        if url:
            _check_endpoint(url, name)
        return url

    def _discovered(self) -> Mapping[str, Any]:
        with self._lock:
            if self._document is None:
                self._document = self._discover()
            return self._document

    def _discover(self) -> Mapping[str, Any]:
        issuer = self._settings.issuer
        document = self._send(f"{issuer.rstrip('/')}/.well-known/openid-configuration", {})
        if document.get("issuer") != issuer:
            raise UnavailableError(
                f"The OpenID provider says that it is {str(document.get('issuer'))[:200]!r}, but the setting issuer is "
                f"{issuer!r}."
            )
        for name in _ENDPOINTS:
            _check_endpoint(str(document.get(name, "")), name)
        return document

    def _send(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Mapping[str, Any]:
        request = urllib.request.Request(url, body, {"accept": "application/json", **headers})  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                answer = json.loads(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as exc:
            with exc:
                if exc.code in (400, 401, 403):
                    raise RefusedError(_error_code(exc.read(MAX_ANSWER_BYTES))) from exc
                raise UnavailableError(f"The OpenID provider answered {exc.code}.") from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise UnavailableError(f"The OpenID provider does not answer: {exc}.") from exc
        if not isinstance(answer, dict):
            raise UnavailableError("The OpenID provider answered with something that is no JSON object.")
        return answer


def _check_endpoint(url: str, name: str) -> None:
    try:
        check_endpoint(url, what=f"{name} of the OpenID provider")
    except CannotProceedError as exc:
        raise UnavailableError(str(exc)) from exc


def _seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _error_code(body: bytes) -> str:
    """Return the `error` of an OAuth answer. Empty if it has none."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("error") or "")[:100] if isinstance(answer, dict) else ""


def _payload(token: object) -> Mapping[str, Any]:
    """Return the claims of an ID token. Raises `UnauthenticatedError` if it is none."""
    try:
        _, payload, _ = str(token).split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError as exc:
        raise UnauthenticatedError("The OpenID provider gave an ID token that can't be read.") from exc
    if not isinstance(claims, dict):
        raise UnauthenticatedError("The OpenID provider gave an ID token that can't be read.")
    return claims
