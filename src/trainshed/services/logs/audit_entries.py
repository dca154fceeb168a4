"""The audit record among the entries of Cloud Logging: a query that names its log reads it, all others read jobs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from trainshed.domain.access.audit import AuditEntry, audit_log_name
from trainshed.domain.filters.terms import Reading
from trainshed.domain.iam import Access, Principal
from trainshed.domain.logs import LogEntry
from trainshed.domain.work_budget import WorkBudget
from trainshed.errors import PermissionDeniedError
from trainshed.services.access.audit import AuditLog
from trainshed.services.logs.entries import (
    LogEntries,
    LogEntryPage,
    LogQuery,
    LogSpan,
    readable_projects,
    select_page,
)
from trainshed.services.logs.log_names import LogNamePage, page_of_names


class AuditedLogEntries:
    """Reads the logs of jobs, and the audit record. Read-only."""

    def __init__(self, jobs: LogEntries, audit: AuditLog) -> None:
        self._jobs = jobs
        self._audit = audit

    def entries(
        self, principal: Principal, query: LogQuery, work: WorkBudget | None = None
    ) -> LogEntryPage[LogEntry] | LogEntryPage[AuditEntry]:
        """Return a page of matching entries. Raises `PermissionDeniedError` if the principal may not read a project.

        The audit record is read by owners, with a filter that names its log.
        """
        projects = readable_projects(principal, query.resource_names)
        span = LogSpan.of(query)
        if not _names_audit_log(span, projects):
            return self._jobs.entries(principal, query, work)
        if not all(principal.may(Access.ADMIN, project) for project in projects):
            raise PermissionDeniedError("Only an owner of a project may read its audit record.")
        self._audit.flush()
        streams = [
            self._audit.between(project, span.lower_us, span.upper_us, descending=span.descending)
            for project in projects
        ]
        merged = heapq.merge(*streams, key=lambda entry: entry.key, reverse=span.descending)
        root = span.filter.root

        def matches(entry: AuditEntry) -> bool:
            return root.matches(Reading(entry.body()))

        return select_page(query, span, filter(span.reached, merged), matches, work)

    def names(self, principal: Principal, resource_names: Sequence[str], *, size: int, token: str) -> LogNamePage:
        """Return a page of names of logs, such as `projects/P/logs/master-replica-0`; of the audit record for owners.

        Raises `PermissionDeniedError` if the principal may not read a project.
        """
        projects = readable_projects(principal, resource_names)
        found = [f"projects/{project}/logs/{log}" for project in projects for log in self._jobs.logs(project)]
        found += [audit_log_name(project) for project in projects if principal.may(Access.ADMIN, project)]
        return page_of_names(found, size=size, token=token)


def _names_audit_log(span: LogSpan, projects: Sequence[str]) -> bool:
    """Return whether the filter is about the audit logs of these projects, and about no other log."""
    required = span.filter.required("logName")
    return required is not None and bool(required) and required <= {audit_log_name(project) for project in projects}
