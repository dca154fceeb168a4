"""The table of what is open without a token. A route that is declared public but is not in it answers nobody."""

from __future__ import annotations

from collections.abc import Mapping

from trainshed.api.http.routing import Route
from trainshed.domain.iam import Access

_TENSORBOARD = "The key in the URL is the credential."
_DISCOVERY = "What the APIs are, the same on every server; clients ask before they have a token."

#: method and path -> why it is open
OPEN_ROUTES: Mapping[tuple[str, str], str] = {
    ("GET", "/"): "The console's page, without user data.",
    ("GET", "/console/{path*}"): "The console's files, without user data.",
    ("GET", "/console/enter"): "Sign-in: checks the code of a sign-in link.",
    ("GET", "/console/sign-in"): "Says whether there is an OpenID provider, without its name.",
    ("GET", "/console/oidc/start"): "Leads to the sign-in page of the OpenID provider.",
    ("GET", "/console/oidc/callback"): "Sign-in: checks the code of the OpenID provider.",
    ("POST", "/trainshed/v1/device-sign-in"): "Begins a sign-in at the OpenID provider.",
    ("POST", "/trainshed/v1/device-sign-in:finish"): "Sign-in: checks a code of the OpenID provider.",
    ("POST", "/trainshed/v1/session"): "Sign-in: checks a token.",
    ("POST", "/token"): "Sign-in: checks a refresh token.",
    ("POST", "/oauth2/token"): "Sign-in: checks a refresh token.",
    ("GET", "/tensorboard/{key}/trainshed-storage.js"): _TENSORBOARD,
    ("GET", "/tensorboard/{key}/{path*}"): _TENSORBOARD,
    ("POST", "/tensorboard/{key}/{path*}"): _TENSORBOARD,
    ("OPTIONS", "/tensorboard/{key}/{path*}"): _TENSORBOARD,
    ("GET", "/healthz"): "Health, without names.",
    ("GET", "/discovery/v1/apis"): _DISCOVERY,
    ("GET", "/discovery/v1/apis/{api}/{version}/rest"): _DISCOVERY,
    ("GET", "/$discovery/rest"): _DISCOVERY,
    ("GET", "/trainshed/v1/openapi.json"): "The OpenAPI document, the same on every server.",
}
#: open routes that check a credential and give another one; each success and each failure is recorded
SIGN_INS = frozenset(key for key, why in OPEN_ROUTES.items() if why.startswith("Sign-in"))


def is_open(route: Route) -> bool:
    """Return whether a route needs no token."""
    return route.access is Access.PUBLIC and (route.method, route.path) in OPEN_ROUTES
