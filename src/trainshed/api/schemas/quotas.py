"""Shapes of quotas."""

from typing import Annotated, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example
from trainshed.domain.access.quotas import QuotaName

_User = Annotated[
    str, "Empty is the project as a whole; `*` is each user without a limit of their own.", Example("ada")
]
_Project = Annotated[str, "`*` is each project without a limit of its own.", Example("course-2026")]
_Name = Annotated[QuotaName, Example("running-replicas")]


class QuotaBody(TypedDict):
    """A limit as it was set."""

    name: _Name
    project: _Project
    user: _User
    value: Annotated[int, Example(8)]


class QuotaUseBody(QuotaBody):
    """A limit that applies, with what counts towards it."""

    used: Annotated[int | None, "None for a limit of each user, and for one that nothing counts towards.", Example(3)]
    default: Annotated[bool, "Whether it was set for each project or each user, and not for this one.", Example(False)]


class QuotaUsesBody(TypedDict):
    """The limits that apply."""

    quotas: list[QuotaUseBody]


class QuotasBody(TypedDict):
    """All limits as they were set."""

    quotas: list[QuotaBody]


_ProjectUser = Annotated[
    str, "`*` is each user without a limit of their own. Left out for days that something is kept.", Example("ada")
]


class UserQuotaRequestBody(TypedDict):
    """A limit of a user, or of each user, or days that the project keeps something, to set."""

    name: _Name
    user: NotRequired[_ProjectUser]
    value: Annotated[int, Example(8)]


class UserQuotaNameBody(TypedDict):
    """A limit of a user, or of each user, or days that the project keeps something, to remove."""

    name: _Name
    user: NotRequired[_ProjectUser]


class QuotaRequestBody(TypedDict):
    """A limit to set."""

    name: _Name
    project: _Project
    user: NotRequired[_User]
    value: Annotated[int, Example(8)]


class QuotaNameBody(TypedDict):
    """A limit to remove."""

    name: _Name
    project: _Project
    user: NotRequired[_User]
