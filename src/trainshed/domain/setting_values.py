"""The values that settings may have: types, choices and ranges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from trainshed.errors import CannotProceedError

_POSITIVE = (
    *("poll_s", "grace_s", "log_limit_mb", "body_limit_mb", "max_connections", "max_connections_per_address"),
    "unread_limit_mb",
    *("predict_timeout_s", "load_timeout_s", "sleep_after_s", "backup_interval_s", "backup_count"),
    *("audit_retention_days", "audit_max_entries"),
    *("ray_cpu_share", "ray_memory_share", "usage_half_life_s"),
)
_RAY_ADDRESS = re.compile(r"(?:ray://)?(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_VERSIONS = {"ray_version": (r"\d+(\.\d+){2}", "2.58.0"), "ray_python": (r"3\.\d+", "3.11")}
_LEAST_MEMORY_GB = 0.05
_RANGES = {
    "process_limit": (16, 4_194_304),  # the most that the kernel numbers
    "open_file_limit": (64, 1_048_576),  # the most that it allows by default
    "replica_cpu_weight": (1, 100),
}
_CHOICES = {
    "disabled_users_jobs": ("keep", "cancel"),
    "warm_start": ("auto", "off"),
    "sandbox": ("auto", "full", "landlock", "none"),
    "network": ("none", "google-storage", "all", "machine"),
    "container_network": ("bridge", "host"),
    "container_tool": ("auto", "podman", "docker"),
    "gs_in_trainers": ("auto", "trainshed", "google"),
    "ray_placement": ("pack", "spread"),
}
NETWORK_DESCRIPTION = (
    "What [user code reaches](security.md#the-network) in projects whose owner has set nothing else: `none`, its own "
    "gang; `google-storage`, also this server and Google's storage; `all`, also other machines; `machine`, all that "
    "this machine reaches, for all projects."
)
FIND_LINKS_DESCRIPTION = (
    "Folders of wheels and addresses of pages that link to wheels, separated by commas, where [runtimes]"
    "(runtimes.md#packages-that-are-not-on-the-index) find packages besides the index, such as PyTorch for CPU. "
    "What pip has as `find-links` counts too."
)


GATEWAYS_DESCRIPTION = (
    "Number of gateways: with 1, the server answers predictions itself; with more, [so many processes]"
    "(prediction.md#several-gateways) do, on `port`."
)
MAX_GATEWAYS = 64


def check_values(values: Mapping[str, Any]) -> None:
    """Raises `CannotProceedError` if a setting is no choice of its own, or out of its range."""
    for name, choices in _CHOICES.items():
        if (value := values[name]) not in choices:
            known = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise CannotProceedError(f"The setting {name} is {value!r}; it must be {known}.")
    for name in (
        *("slots", "hang_timeout_s", "max_passed_over_s", "warm_idle_s"),
        *("memory_limit_gb", "file_size_limit_gb", "disk_limit_gb"),
    ):
        if not 0 <= values[name] < math.inf:
            raise CannotProceedError(f"The setting {name} is {values[name]}; it can't be negative.")
    if not 0 <= values["single_replica_share"] < 1:
        raise CannotProceedError(
            f"The setting single_replica_share is {values['single_replica_share']}; it must be 0 or more, but under 1."
        )
    _check_limits(values)
    if not 1 <= values["gateways"] <= MAX_GATEWAYS:
        raise CannotProceedError(
            f"The setting gateways is {values['gateways']}; it must be a number from 1 to {MAX_GATEWAYS}."
        )
    for name in ("port", "tls_port"):
        if not 0 <= values[name] <= 65_535:
            raise CannotProceedError(f"The setting {name} is {values[name]}; ports go from 0 to 65535.")
    for path in filter(None, map(str.strip, values["sandbox_paths"].split(","))):
        if not path.startswith("/"):
            raise CannotProceedError(f"The setting sandbox_paths has {path!r}; paths in it begin with `/`.")
    for name in _POSITIVE:
        if not 0 < values[name] < math.inf:
            raise CannotProceedError(f"The setting {name} is {values[name]}; it must be a number that is more than 0.")
    _check_cluster(values)


def _check_cluster(values: Mapping[str, Any]) -> None:
    if (folder := values["node_buckets"]) and not folder.startswith("/"):
        raise CannotProceedError(f"The setting node_buckets is {folder!r}; it must be a path that begins with `/`.")
    if (address := values["ray_address"]) and not _RAY_ADDRESS.fullmatch(address):
        raise CannotProceedError(
            f"The setting ray_address is {address!r}; it must be HOST:PORT, such as 10.0.0.5:6379, or ray://HOST:PORT."
        )
    for name, (pattern, example) in _VERSIONS.items():
        if not re.fullmatch(pattern, values[name]):
            raise CannotProceedError(f"The setting {name} is {values[name]!r}; it must be a version such as {example}.")


def _check_limits(values: Mapping[str, Any]) -> None:
    """Those of user code, below which no Python starts."""
    if 0 < values["memory_limit_gb"] < _LEAST_MEMORY_GB:
        raise CannotProceedError(
            f"The setting memory_limit_gb is {values['memory_limit_gb']}; it must be {_LEAST_MEMORY_GB} or more, or 0 "
            f"for three quarters of the machine's memory."
        )
    for name, (least, most) in _RANGES.items():
        if not least <= values[name] <= most:
            raise CannotProceedError(f"The setting {name} is {values[name]}; it must be from {least:,} to {most:,}.")


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_BOOLEANS = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)


def convert(source: str, value: Any, kind: str) -> Any:
    """The value of a setting of this type. Raises `CannotProceedError` if it is none; `source` is its name there."""
    text = str(value).strip()
    try:
        if kind == "bool":
            return _BOOLEANS[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (KeyError, ValueError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise CannotProceedError(f"{source} is {text!r}, but must be {expected}.") from None
