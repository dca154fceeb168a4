"""A training job's body from a config file and flags. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from trainshed.client.submission import REGION
from trainshed.domain.names import ENGINE_LABEL, KEEP_TRIALS_LABEL
from trainshed.errors import InvalidArgumentError

#: flag -> field of trainingInput
_FIELDS = {
    "module_name": "pythonModule",
    "job_dir": "jobDir",
    "runtime_version": "runtimeVersion",
    "python_version": "pythonVersion",
    "region": "region",
    "service_account": "serviceAccount",
    "master_machine_type": "masterType",
    "worker_machine_type": "workerType",
    "parameter_server_machine_type": "parameterServerType",
    "use_chief_in_tf_config": "useChiefInTfConfig",
}
_COUNTS = {"worker_count": "workerCount", "parameter_server_count": "parameterServerCount"}
_CONFIGS = {"master": "masterConfig", "worker": "workerConfig", "parameter_server": "parameterServerConfig"}


def check_flags(flags: Mapping[str, Any]) -> None:
    """Raises a usage error for flags that contradict each other, before anything is built or sent."""
    if flags["stream_logs"] and flags["async_"]:
        raise click.UsageError("argument --async: At most one of --async | --stream-logs can be specified.")
    if flags["master_image_uri"] and flags["runtime_version"]:
        raise InvalidArgumentError("Only one of --master-image-uri, --runtime-version can be set.")
    if flags["scale_tier"] == "custom" and not flags["master_machine_type"]:
        raise InvalidArgumentError("--master-machine-type is required if scale-tier is set to `CUSTOM`.")
    for role in ("worker", "parameter_server"):
        count, machine = flags[f"{role}_count"], flags[f"{role}_machine_type"]
        if (count is None) != (machine is None):
            missing = f"--{role}_{'count' if count is None else 'machine_type'}".replace("_", "-")
            raise click.UsageError(f"argument {missing}: Must be specified.")


def job_body(
    job: str,
    *,
    flags: Mapping[str, Any],
    config: Mapping[str, Any],
    package_uris: Sequence[str],
    user_args: Sequence[str],
) -> dict[str, Any]:
    """Return the Job to create: the config file, overridden by the flags."""
    training = dict(config.get("trainingInput") or {})
    training |= {field: flags[flag] for flag, field in _FIELDS.items() if flags[flag] is not None}
    training |= {field: str(flags[flag]) for flag, field in _COUNTS.items() if flags[flag] is not None}
    if flags["scale_tier"] is not None:
        training["scaleTier"] = flags["scale_tier"].upper().replace("-", "_")
    if package_uris:
        training["packageUris"] = list(package_uris)
    if user_args:
        training["args"] = list(user_args)
    if flags["enable_web_access"] is not None:
        training["enableWebAccess"] = flags["enable_web_access"]
    for role, field in _CONFIGS.items():
        if replica := _replica_config(role, flags):
            training[field] = {**training.get(field, {}), **replica}
    if key := _key_name(flags):
        training["encryptionConfig"] = {"kmsKeyName": key}
    training.setdefault("region", REGION)
    labels = {**(config.get("labels") or {}), **(flags["labels"] or {})}
    if flags["engine"] is not None:
        labels[ENGINE_LABEL] = flags["engine"]
    if flags["keep_trials"] is not None:
        labels[KEEP_TRIALS_LABEL] = str(flags["keep_trials"])
    body = {name: value for name, value in config.items() if name not in ("trainingInput", "labels")}
    body |= {"jobId": job, "trainingInput": training}
    return body | ({"labels": labels} if labels else {})


def _replica_config(role: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if image := flags[f"{role}_image_uri"]:
        config["imageUri"] = image
    if accelerator := flags[f"{role}_accelerator"]:
        if set(accelerator) != {"count", "type"}:
            flag = f"--{role.replace('_', '-')}-accelerator"
            raise click.UsageError(f"argument {flag}: Both are required: count=COUNT,type=TYPE.")
        kind = accelerator["type"].upper().replace("-", "_")
        config["acceleratorConfig"] = {"count": accelerator["count"], "type": kind}
    return config


def _key_name(flags: Mapping[str, Any]) -> str | None:
    """Return --kms-key, complete or composed of the four flags. Returns None if there is none."""
    key = flags["kms_key"]
    parts = {name: flags[f"kms_{name}"] for name in ("project", "location", "keyring")}
    if key is None:
        if any(parts.values()):
            raise click.UsageError("argument --kms-key: Must be specified.")
        return None
    if "/" in key:
        return str(key)
    if missing := [f"--kms-{name}" for name in ("location", "keyring") if not parts[name]]:
        raise click.UsageError(f"argument {missing[0]}: Must be specified.")
    project = parts["project"] or flags["project"]
    return f"projects/{project}/locations/{parts['location']}/keyRings/{parts['keyring']}/cryptoKeys/{key}"
