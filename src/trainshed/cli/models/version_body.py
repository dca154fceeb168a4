"""A version's body from a config file and flags. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from trainshed.domain.names import ENGINE_LABEL
from trainshed.errors import InvalidArgumentError

#: the fields of a config file for `versions create`
CREATABLE = (
    *("autoScaling", "container", "deploymentUri", "description", "framework", "labels", "machineType"),
    *("manualScaling", "packageUris", "predictionClass", "pythonVersion", "routes", "runtimeVersion", "serviceAccount"),
    "servingOptions",
)
#: the fields of a config file for `versions update`
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
_CONTAINER_FLAGS = ("command", "args", "env_vars", "ports", "predict_route", "health_route")  #: those that need --image
_METRICS = {"cpu-usage": "CPU_USAGE", "gpu-duty-cycle": "GPU_DUTY_CYCLE"}


def check_flags(flags: Mapping[str, Any]) -> None:
    """Raises a usage error for flags that contradict each other, before anything is sent."""
    method = flags["explanation_method"]
    if flags["num_paths"] is not None and method != "sampled-shapley":
        raise click.UsageError("--num-paths is only valid with --explanation-method=sampled-shapley.")
    if flags["num_integral_steps"] is not None and method not in ("integrated-gradients", "xrai"):
        raise click.UsageError(
            "--num-integral-steps is only valid with --explanation-method=integrated-gradients or xrai."
        )


def check_fields(config: Mapping[str, Any], path: object, allowed: Sequence[str]) -> None:
    """Raises `InvalidArgumentError`, with gcloud's message, for a field that the file can't have."""
    if unknown := sorted(set(config) - set(allowed)):
        raise InvalidArgumentError(
            f"Invalid field [{unknown[0]}] in configuration file [{path}]. Allowed fields: [{', '.join(allowed)}]."
        )
    if "autoScaling" in config and "manualScaling" in config:
        raise InvalidArgumentError(f"Only one of manualScaling and autoScaling can be in configuration file [{path}].")


def version_body(version: str, *, flags: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Version to create, without deploymentUri and packageUris: the config file, overridden by the flags."""
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
    if options := {name: flags[name].upper() for name in ("batching", "precision") if flags[name] is not None}:
        body["servingOptions"] = {**(config.get("servingOptions") or {}), **options}
    body |= _container(flags, config)
    labels = {**(config.get("labels") or {}), **(flags["labels"] or {})}
    if flags["engine"] is not None:
        labels[ENGINE_LABEL] = flags["engine"]
    if labels:
        body["labels"] = labels
    return body


def _container(flags: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return container and routes, if there are any."""
    container, routes = dict(config.get("container") or {}), dict(config.get("routes") or {})
    if flags["image"] is not None:
        container["image"] = flags["image"]
    container_flags = [name for name in _CONTAINER_FLAGS if flags[name] is not None]
    if container_flags and not container.get("image"):
        raise click.UsageError(f"--{container_flags[0].replace('_', '-')} is only valid with --image.")
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
    """Return autoScaling from --min-nodes, --max-nodes and --metric-targets."""
    scaling: dict[str, Any] = {}
    for flag, field in (("min_nodes", "minNodes"), ("max_nodes", "maxNodes")):
        if flags[flag] is not None:
            scaling[field] = flags[flag]
    if flags["metric_targets"] is not None:
        scaling["metrics"] = [_metric(name, target) for name, target in flags["metric_targets"].items()]
    return scaling


def _metric(name: str, target: str) -> dict[str, Any]:
    kind = _METRICS.get(name.lower().replace("_", "-"))
    if kind is None or not target.isdigit():
        raise click.UsageError(
            f"argument --metric-targets: [{name}={target}] must be NAME=PERCENT with one of: {', '.join(_METRICS)}."
        )
    return {"name": kind, "target": int(target)}


def _accelerator(flag: Mapping[str, str]) -> dict[str, str]:
    if "type" not in flag or flag.keys() - {"count", "type"}:
        raise click.UsageError("argument --accelerator: Write type=TYPE,count=COUNT.")
    return {"count": flag.get("count", "1"), "type": flag["type"].upper().replace("-", "_")}


def _explanation(flags: Mapping[str, Any]) -> dict[str, Any]:
    steps, paths = flags["num_integral_steps"] or 50, flags["num_paths"] or 50
    return {
        "integrated-gradients": {"integratedGradientsAttribution": {"numIntegralSteps": steps}},
        "sampled-shapley": {"sampledShapleyAttribution": {"numPaths": paths}},
        "xrai": {"xraiAttribution": {"numIntegralSteps": steps}},
    }[flags["explanation_method"]]
