"""Rules for names: one pattern per kind of name, and the sentence that explains it; the names of engines."""

from __future__ import annotations

import re

from trainshed.errors import InvalidArgumentError

ENGINE_LABEL = "trainshed-engine"  #: label with which any client selects the engine of a job
KEEP_TRIALS_LABEL = "trainshed-keep-trials"  #: label with the number of trials of a search whose folders stay
LOCAL_ENGINE, RAY_ENGINE = "local", "ray"  #: this machine, which is always available; a Ray cluster

_RESOURCE_ID = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_TRIAL_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
#: `my-project`, or `example.com:my-project` of an organisation, which have had such ids since before there were others
_PROJECT = re.compile(
    r"(?:(?=[a-z0-9.-]{1,63}:)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)+:)?"
    r"[a-z][a-z0-9-]{2,61}[a-z0-9]"
)
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_MACHINE_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")


def job_id(text: str) -> str:
    if not _RESOURCE_ID.fullmatch(text):
        raise InvalidArgumentError(
            f"A job id starts with a letter and holds only letters, digits and underscores, 128 at most; "
            f"{text!r} does not.",
            field="job.job_id",
        )
    return text


def job_folder(text: str) -> str:
    """The name of a job's folder: the id of a job, or of the job of a trial. Raises `InvalidArgumentError`."""
    job, separator, number = text.partition(".trial-")
    job_id(job)
    if separator:
        trial_number(number)
    return text


def trial_number(text: str) -> int:
    if not _TRIAL_NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"The number of a trial is from 1 on; {text[:40]!r} is not one.", field="trial")
    return int(text)


def trial_job_id(job: str, number: int) -> str:
    """The id of the job that runs a trial. It is no id of the API: that has no dots."""
    return f"{job}.trial-{number}"


def model_name(text: str) -> str:
    return _resource_id(text, what="model", field="model.name")


def version_name(text: str) -> str:
    return _resource_id(text, what="version", field="version.name")


def _resource_id(text: str, *, what: str, field: str) -> str:
    if not _RESOURCE_ID.fullmatch(text):
        raise InvalidArgumentError(
            f"The name of a {what} starts with a letter and holds only letters, digits and underscores, 128 at most; "
            f"{text!r} does not.",
            field=field,
        )
    return text


def project_id(text: str) -> str:
    if not _PROJECT.fullmatch(text):
        raise InvalidArgumentError(
            f"A project id is 4 to 63 lower-case letters, digits and hyphens and starts with a letter, after a domain "
            f"and a colon if it has one (example.com:my-project); {text!r} is not.",
            field="project",
        )
    return text


def package_folder(project: str) -> str:
    """The name of a folder in which a project's packages are. A colon would end it on PYTHONPATH; no id has a `_`."""
    return project_id(project).replace(":", "_")


def user_name(text: str) -> str:
    if not _USER.fullmatch(text):
        raise InvalidArgumentError(
            f"A user name is made of letters, digits and . _ @ + -, 128 at most; {text!r} is not.",
            field="user",
        )
    return text


def machine_name(text: str) -> str:
    if not _MACHINE_TYPE.fullmatch(text):
        raise InvalidArgumentError(
            f"The name of a machine type starts with a lower-case letter and holds only lower-case letters, digits, - "
            f"and _, 63 at most; {text!r} does not.",
            field="machine_type",
        )
    return text


def labels(labels_sent: object, *, field: str) -> dict[str, str]:
    """Check the labels of a request body. At most 64."""
    if not isinstance(labels_sent, dict) or not all(isinstance(v, str) for v in labels_sent.values()):
        raise InvalidArgumentError("Labels are a map from strings to strings.", field=field)
    if len(labels_sent) > 64:
        raise InvalidArgumentError(f"There are {len(labels_sent)} labels; 64 are allowed.", field=field)
    for key, value in labels_sent.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise InvalidArgumentError(
                f"Label {key!r}: {value!r} is not allowed. Keys start with a lower-case letter; keys and values hold "
                f"lower-case letters, digits, - and _, 63 at most.",
                field=field,
            )
    return labels_sent
