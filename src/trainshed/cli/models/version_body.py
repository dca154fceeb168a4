"""A version's body from a config file and flags. No I/O: the same words give the same version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from trainshed.domain.jobs.job import ENGINE_LABEL
from trainshed.errors import InvalidArgumentError

#: what a config file of `versions create` may hold
CREATABLE = (
    *("autoScaling", "container", "deploymentUri", "description", "framework", "labels", "machineType"),
    *("manualScaling", "packageUris", "predictionClass", "pythonVersion", "routes", "runtimeVersion", "serviceAccount"),
)
#: and one of `versions update`
CHANGEABLE = ("autoScaling", "description", "manualScaling", "requestLoggingConfig")

#: flag -> field
_FIELDS = {
    "description": "description",
    "runtime_version": "runtimeVersion",
    "python_version": "pythonVersion",
    "machine_type": "machineType",
    "prediction_class": "predictionClass",
    "service_account": "serviceAccount",
}
_OF_CONTAINERS = ("command", "args", "env_vars", "ports", "predict_route", "health_route")  #: those without an image
_METRICS = {"cpu-usage": "CPU_USAGE", "gpu-duty-cycle": "GPU_DUTY_CYCLE"}


def check_flags(flags: Mapping[str, Any]) -> None:
    """What can be said to be wrong before anything is sent."""
    method = flags["explanation_method"]
    if flags["num_paths"] is not None and method != "sampled-shapley":
        raise click.UsageError("--num-paths is only valid with --explanation-method=sampled-shapley.")
    if flags["num_integral_steps"] is not None and method not in ("integrated-gradients", "xrai"):
        raise click.UsageError(
            "--num-integral-steps is only valid with --explanation-method=integrated-gradients or xrai."
        )


def check_fields(config: Mapping[str, Any], path: object, allowed: Sequence[str]) -> None:
    """`InvalidArgumentError`, with gcloud's words, for a field that can't be in the file."""
    if unknown := sorted(set(config) - set(allowed)):
        raise InvalidArgumentError(
            f"Invalid field [{unknown[0]}] in configuration file [{path}]. Allowed fields: [{', '.join(allowed)}]."
        )
    if "autoScaling" in config and "manualScaling" in config:
        raise InvalidArgumentError(f"Only one of manualScaling and autoScaling can be in configuration file [{path}].")


def version_body(version: str, *, flags: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The Version to create, all but its deploymentUri and packageUris: what `config` says, with the flags over it."""
    body: dict[str, Any] = {**config, "name": version}
    body |= {field: flags[flag] for flag, field in _FIELDS.items() if flags[flag] is not None}
    if flags["framework"] is not None:
        body["framework"] = flags["framework"].upper().replace("-", "_")
    if flags["accelerator"] is not None:
        body["acceleratorConfig"] = _accelerator(flags["accelerator"])
    if flags["explanation_method"] is not None:
        body["explanationConfig"] = _explanation(flags)
    if scaling := scaling_of(flags):
        body.pop("manualScaling", None)
        body["autoScaling"] = {**(config.get("autoScaling") or {}), **scaling}
    body |= _container(flags, config)
    labels = {**(config.get("labels") or {}), **(flags["labels"] or {})}
    if flags["engine"] is not None:
        labels[ENGINE_LABEL] = flags["engine"]
    if labels:
        body["labels"] = labels
    return body


def _container(flags: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """container and routes, if there is anything to say of them."""
    container, routes = dict(config.get("container") or {}), dict(config.get("routes") or {})
    if flags["image"] is not None:
        container["image"] = flags["image"]
    given = [name for name in _OF_CONTAINERS if flags[name] is not None]
    if given and not container.get("image"):
        raise click.UsageError(f"--{given[0].replace('_', '-')} is only valid with --image.")
    for name in ("command", "args"):
        if flags[name] is not None:
            container[name] = list(flags[name])
    if flags["env_vars"] is not None:
        container["env"] = [{"name": name, "value": value} for name, value in flags["env_vars"].items()]
    if flags["ports"] is not None:
        container["ports"] = [{"containerPort": port} for port in flags["ports"]]
    for name in ("predict", "health"):
        if flags[f"{name}_route"] is not None:
            routes[name] = flags[f"{name}_route"]
    return {name: value for name, value in (("container", container), ("routes", routes)) if value}


def scaling_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """autoScaling of --min-nodes, --max-nodes and --metric-targets."""
    found: dict[str, Any] = {}
    for flag, field in (("min_nodes", "minNodes"), ("max_nodes", "maxNodes")):
        if flags[flag] is not None:
            found[field] = flags[flag]
    if flags["metric_targets"] is not None:
        found["metrics"] = [_metric(name, target) for name, target in flags["metric_targets"].items()]
    return found


def _metric(name: str, target: str) -> dict[str, Any]:
    kind = _METRICS.get(name.lower().replace("_", "-"))
    if kind is None or not target.isdigit():
        raise click.UsageError(
            f"argument --metric-targets: [{name}={target}] must be NAME=PERCENT with one of: {', '.join(_METRICS)}."
        )
    return {"name": kind, "target": int(target)}


def _accelerator(given: Mapping[str, str]) -> dict[str, str]:
    if "type" not in given or given.keys() - {"count", "type"}:
        raise click.UsageError("argument --accelerator: Write type=TYPE,count=COUNT.")
    return {"count": given.get("count", "1"), "type": given["type"].upper().replace("-", "_")}


def _explanation(flags: Mapping[str, Any]) -> dict[str, Any]:
    steps, paths = flags["num_integral_steps"] or 50, flags["num_paths"] or 50
    return {
        "integrated-gradients": {"integratedGradientsAttribution": {"numIntegralSteps": steps}},
        "sampled-shapley": {"sampledShapleyAttribution": {"numPaths": paths}},
        "xrai": {"xraiAttribution": {"numIntegralSteps": steps}},
    }[flags["explanation_method"]]
