"""All services in one value, for the routes."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.gateway.gateway import PredictionGateway
from trainshed.services.access.account_keys import AccountKeys
from trainshed.services.access.audit import AuditLog
from trainshed.services.access.networks import ProjectNetworks
from trainshed.services.access.oidc import OidcSignIn
from trainshed.services.access.policies import Policies
from trainshed.services.access.projects import Projects
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.request_rates import RequestRates
from trainshed.services.access.secrets import Secrets
from trainshed.services.access.sessions import BrowserSessions
from trainshed.services.access.tokens import Tokens
from trainshed.services.access.users import Users
from trainshed.services.artifacts import JobArtifacts, VersionArtifacts
from trainshed.services.console.overview import Overview
from trainshed.services.console.tensorboards import TensorBoards
from trainshed.services.jobs.chaos import Chaos
from trainshed.services.jobs.exports import Exports
from trainshed.services.jobs.jobs import Jobs
from trainshed.services.jobs.progress import ProgressService
from trainshed.services.jobs.search import JobSearch
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.logs.audit_entries import AuditedLogEntries
from trainshed.services.logs.pages import LogPages
from trainshed.services.logs.writes import LogEntryWriter
from trainshed.services.metrics import ServerMetrics
from trainshed.services.models.models import Models
from trainshed.services.models.replays import Replays
from trainshed.services.models.rollouts import Rollouts
from trainshed.services.models.versions import Versions
from trainshed.services.operations import Operations
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import EffectiveSettings, ServerInfo
from trainshed.services.storage.buckets import Buckets
from trainshed.services.storage.objects import Objects
from trainshed.services.storage.part_uploads import PartUploads
from trainshed.services.storage.public_data import PublicData
from trainshed.services.tuning.search_tables import SearchTables
from trainshed.services.tuning.steering import SearchSteering
from trainshed.services.tuning.studies import Studies
from trainshed.services.tuning.suggestions import Suggestions


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One attribute per resource."""

    tokens: Tokens
    account_keys: AccountKeys
    users: Users
    quotas: Quotas
    networks: ProjectNetworks
    rates: RequestRates
    secrets: Secrets
    oidc: OidcSignIn | None  #: None: no provider is configured
    audit: AuditLog
    sessions: BrowserSessions
    projects: Projects
    jobs: Jobs
    tuning: TuningJobs
    job_rows: JobSearch
    progress: ProgressService
    overview: Overview
    exports: Exports
    chaos: Chaos
    packages: JobArtifacts
    version_files: VersionArtifacts
    models: Models
    versions: Versions
    rollouts: Rollouts
    policies: Policies  #: of jobs
    model_policies: Policies
    operations: Operations
    studies: Studies
    suggestions: Suggestions
    searches: SearchTables
    steering: SearchSteering
    predictions: PredictionGateway
    replays: Replays
    logs: AuditedLogEntries
    log_writer: LogEntryWriter
    log_pages: LogPages
    buckets: Buckets
    objects: Objects
    part_uploads: PartUploads
    public_data: PublicData
    runtimes: RuntimeService
    tensorboards: TensorBoards
    server: ServerInfo
    settings: EffectiveSettings
    metrics: ServerMetrics
