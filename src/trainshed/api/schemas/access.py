"""Shapes of tokens and of browser sessions."""

from typing import Annotated, Literal, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example, Time
from trainshed.domain.iam import Role, UserKind

ProjectOrAll = Annotated[str, "`*` is every project.", Example("trainshed")]


class TokenBody(TypedDict):
    """A token, without its secret."""

    id: Annotated[str, Example("9f2c61d07ab4")]
    user: Annotated[str, Example("ada")]
    project: ProjectOrAll
    role: Annotated[Role, Example("editor")]
    label: Annotated[str, Example("laptop")]
    createTime: Time
    expireTime: Annotated[Time | None, Example(None)]
    revokeTime: Annotated[Time | None, Example(None)]


class NewTokenBody(TokenBody):
    """A token that was just created, with its secret, which is shown this once."""

    token: Annotated[str, Example("ts_SECRET")]


class TokensBody(TypedDict):
    """All tokens that the caller may manage."""

    tokens: list[TokenBody]


class TokenRequestBody(TypedDict):
    """A token to create."""

    user: Annotated[str, Example("ada")]
    project: NotRequired[Annotated[str, "`*`, every project, if not given.", Example("trainshed")]]
    role: NotRequired[Annotated[Literal["viewer", "editor", "owner"], "`editor` if not given.", Example("editor")]]
    label: NotRequired[Annotated[str, Example("laptop")]]
    ttlSeconds: NotRequired[
        Annotated[float | None, "At most ten years; it never expires if not given.", Example(86400)]
    ]


class KeyRequestBody(TypedDict):
    """A key of a service account to create."""

    user: Annotated[str, "A service account.", Example("ci")]
    project: Annotated[str, Example("trainshed")]
    role: NotRequired[Annotated[Literal["viewer", "editor", "owner"], "`editor` if not given.", Example("editor")]]
    label: NotRequired[Annotated[str, Example("nightly")]]


class NewKeyBody(TokenBody):
    """A key that was just created, with its file, which is shown this once."""

    keyFile: Annotated[dict[str, str], "In Google's form.", Example({"type": "service_account"})]


class UserBody(TypedDict):
    """A user or a service account."""

    name: Annotated[str, Example("ada")]
    kind: Annotated[UserKind, Example("user")]
    createTime: Time
    disableTime: Annotated[Time | None, Example(None)]


class UsersBody(TypedDict):
    """All users and service accounts."""

    users: list[UserBody]


class UserRequestBody(TypedDict):
    """A user or a service account to add."""

    name: Annotated[str, Example("ada")]
    kind: NotRequired[Annotated[UserKind, "`user` if not given.", Example("user")]]


class AccessTokenBody(TypedDict):
    """A token of limited lifetime, in the form of RFC 6749."""

    access_token: Annotated[str, Example("ts_SECRET")]
    token_type: Literal["Bearer"]
    expires_in: Annotated[int, "In seconds.", Example(3600)]


class RefreshRequestBody(TypedDict):
    """A form, in the form of RFC 6749. Other fields are passed over."""

    grant_type: Annotated[
        Literal["refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"], Example("refresh_token")
    ]
    refresh_token: NotRequired[Annotated[str, "The user's own token.", Example("ts_SECRET")]]
    assertion: NotRequired[Annotated[str, "What the key of a service account has signed (RFC 7523).", Example("a.b.c")]]


class SessionBody(TypedDict):
    """Who is signed in, and what there is to see."""

    user: Annotated[str, Example("ada")]
    project: ProjectOrAll
    role: Annotated[Role, Example("editor")]
    projects: Annotated[list[str], "Those that there is something of, the default first.", Example(["trainshed"])]
    version: Annotated[str, "Of the server.", Example("0.1.0")]
    url: Annotated[str, "Of the server, as the caller reached it.", Example("http://127.0.0.1:8470")]
    authentication: Annotated[bool, "Whether this server asks for tokens.", Example(True)]


class SignInRequestBody(TypedDict):
    """The token to sign in with."""

    token: NotRequired[Annotated[str, "Needed unless authentication is off.", Example("ts_SECRET")]]


class LinkRequestBody(TypedDict):
    """Where a sign-in link leads."""

    project: NotRequired[Annotated[str | None, "The console's first page if not given.", Example("trainshed")]]


class SignInLinkBody(TypedDict):
    """A page that signs a browser in, once, within 60 seconds."""

    url: Annotated[str, Example("http://127.0.0.1:8470/console/enter?code=CODE")]


class DeviceSignInRequestBody(TypedDict):
    """A sign-in of a command line to begin."""

    project: NotRequired[
        Annotated[str, "Of the session; if not given, the one in which the person may do most.", Example("trainshed")]
    ]


class DeviceSignInBody(TypedDict):
    """A sign-in that a person ends in a browser."""

    handle: Annotated[str, "To ask for the token with; a secret.", Example("HANDLE")]
    userCode: Annotated[str, "For the person to type in.", Example("WDJB-MJHT")]
    url: Annotated[str, "Where the person types it in.", Example("https://login.example.com/device")]
    urlWithCode: Annotated[
        str,
        "The same page with the code typed in; empty if the provider has none.",
        Example("https://login.example.com/device?user_code=WDJB-MJHT"),
    ]
    expiresSeconds: Annotated[float, Example(600)]
    intervalSeconds: Annotated[float, "The least time between two requests for the token.", Example(5)]


class DeviceHandleBody(TypedDict):
    """Which sign-in is asked for."""

    handle: Annotated[str, Example("HANDLE")]


class DeviceOutcomeBody(TypedDict):
    """The session of a person who has signed in, or the time until the next request."""

    intervalSeconds: NotRequired[Annotated[float, "With the status 202 alone.", Example(5)]]
    token: NotRequired[Annotated[str, Example("ts_SECRET")]]
    user: NotRequired[Annotated[str, Example("ada")]]
    project: NotRequired[ProjectOrAll]
    role: NotRequired[Annotated[Role, Example("editor")]]
