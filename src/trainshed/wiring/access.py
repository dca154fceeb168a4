"""Builds the services that know who is who: users, projects, sign-in and the audit record."""

from __future__ import annotations

from collections.abc import Callable

from trainshed.config import Home, default_project, environment
from trainshed.domain.access.oidc import OidcSettings
from trainshed.domain.access.quotas import AppliedLimit, QuotaName
from trainshed.services.access.account_keys import AccountKeys
from trainshed.services.access.audit import AuditLog
from trainshed.services.access.oidc import OidcSignIn
from trainshed.services.access.oidc_provider import OidcProvider
from trainshed.services.access.projects import Projects
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.tokens import Tokens
from trainshed.services.access.users import Users
from trainshed.services.jobs.cancellations import Cancellations
from trainshed.store.audit import AuditStore
from trainshed.store.projects import ProjectStore
from trainshed.store.tokens import TokenStore, UserStore
from trainshed.wiring.core import Core


def build_users(core: Core, tokens: Tokens, cancellations: Cancellations) -> Users:
    store = UserStore(core.database)
    if core.settings.disabled_users_jobs == "keep":
        return Users(store, tokens)
    return Users(store, tokens, cancel_jobs=cancellations.of_user)


def build_account_keys(core: Core, tokens: Tokens) -> AccountKeys:
    return AccountKeys(TokenStore(core.database), UserStore(core.database), tokens)


def build_audit(core: Core) -> AuditLog:
    return AuditLog(
        AuditStore(core.database),
        retention_days=core.settings.audit_retention_days,
        max_entries=core.settings.audit_max_entries,
    )


def build_oidc(home: Home, tokens: Tokens) -> OidcSignIn | None:
    settings = OidcSettings.read(home.file_settings().get("oidc", {}))
    return None if settings is None else OidcSignIn(settings, OidcProvider(settings), tokens)


def build_quotas(core: Core) -> Quotas:
    live: dict[QuotaName, Callable[[AppliedLimit], int]] = {
        QuotaName.REQUESTS_PER_SECOND: core.rates.used,
        QuotaName.BUCKET_BYTES: lambda limit: core.stored.used(limit.project),
    }
    return Quotas(core.quotas, live=live)


def build_projects(core: Core) -> Projects:
    return Projects(ProjectStore(core.database), default=default_project(core.home, environment()))
