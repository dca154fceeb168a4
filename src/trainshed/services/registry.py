"""All services in one value, as the routes get them."""

from __future__ import annotations

from dataclasses import dataclass

from trainshed.gateway.predictions import Predictions
from trainshed.services.buckets import Buckets
from trainshed.services.chaos import Chaos
from trainshed.services.exports import Exports
from trainshed.services.jobs import Jobs
from trainshed.services.jobtable import JobRows
from trainshed.services.lines import Lines
from trainshed.services.logs import Logs
from trainshed.services.models import Models
from trainshed.services.objects import Objects
from trainshed.services.operations import Operations
from trainshed.services.overview import Overview
from trainshed.services.packages import Packages, VersionFiles
from trainshed.services.policies import Policies
from trainshed.services.progress import Progress
from trainshed.services.projects import Projects
from trainshed.services.replays import Replays
from trainshed.services.runtimes import RuntimeService
from trainshed.services.server import ServerInfo
from trainshed.services.sessions import BrowserSessions
from trainshed.services.settings import SettingsInForce
from trainshed.services.tensorboards import TensorBoards
from trainshed.services.tokens import Tokens
from trainshed.services.versions import Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One attribute a resource."""

    tokens: Tokens
    sessions: BrowserSessions
    projects: Projects
    jobs: Jobs
    job_rows: JobRows
    progress: Progress
    overview: Overview
    exports: Exports
    chaos: Chaos
    packages: Packages
    version_files: VersionFiles
    models: Models
    versions: Versions
    policies: Policies  #: of jobs
    model_policies: Policies
    operations: Operations
    predictions: Predictions
    replays: Replays
    logs: Logs
    lines: Lines
    buckets: Buckets
    objects: Objects
    runtimes: RuntimeService
    tensorboards: TensorBoards
    server: ServerInfo
    settings: SettingsInForce
