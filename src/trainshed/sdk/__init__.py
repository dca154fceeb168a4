"""The Python client, which `trainshed.connect()` returns. Small, typed, and made for notebooks."""

from trainshed.sdk.buckets import Bucket, Buckets, StoredObject
from trainshed.sdk.jobs import Job, Jobs
from trainshed.sdk.models import Model, Models, Version
from trainshed.sdk.predictions import Predictions
from trainshed.sdk.records import Export, LogLine, Metrics, Point, Progress
from trainshed.sdk.session import Trainshed, connect
from trainshed.sdk.studies import AskedTrial, Studies, Study
from trainshed.sdk.tuning import JobTrial, JobTrials, TuningSearch

__all__ = [
    "AskedTrial",
    "Bucket",
    "Buckets",
    "Export",
    "Job",
    "JobTrial",
    "JobTrials",
    "Jobs",
    "LogLine",
    "Metrics",
    "Model",
    "Models",
    "Point",
    "Predictions",
    "Progress",
    "StoredObject",
    "Studies",
    "Study",
    "Trainshed",
    "TuningSearch",
    "Version",
    "connect",
]
