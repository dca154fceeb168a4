"""The environment of `trainshed shell`, and the way back out of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.proxy import client_config
from trainshed.proxy.client_config import ServerEndpoints

OUTSIDE = "TRAINSHED_SHELL"  #: what the shell changed, and what was there before, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTarget:
    """Where the commands of a shell lead."""

    home: Home
    project: str
    reach: ServerEndpoints | None  #: None: nothing but our own commands leads to the server
    shims: Path  #: the folder that comes first on the PATH
    credentials: Path  #: the folder with the token's files
    fixed_project: bool = False  #: whether the project stays, whatever `gcloud config set project` says


def inner_environment(env: Mapping[str, str], place: ShellTarget, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of the shell that is opened in `env`. None of its values is secret."""
    changes = {
        "PATH": f"{place.shims}{os.pathsep}{env.get('PATH') or os.defpath}",
        "TRAINSHED_HOME": str(place.home.path),
        "GOOGLE_CLOUD_PROJECT": place.project,
        "CLOUDSDK_CORE_PROJECT": place.project,
        "DEVSHELL_PROJECT_ID": place.project,
    }
    if place.fixed_project:
        changes["TRAINSHED_PROJECT"] = place.project
    if place.reach is not None:
        changes |= client_config.client_environment(place.reach, project=place.project, folder=place.credentials)
    changes |= more
    saved = {name: env.get(name) for name in changes if name != "PATH"}
    return {**env, **changes, OUTSIDE: json.dumps({"shims": str(place.shims), "variables": saved})}


def outer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment around the shell, seen from within it: what a server must be started with.

    A server that had the shell's own would take its own proxy for the machine's, and its token for one of Google's.
    """
    if OUTSIDE not in env:
        return dict(env)
    try:
        said = json.loads(env[OUTSIDE])
        shims, variables = str(said["shims"]), dict(said["variables"])
    except (ValueError, TypeError, KeyError):
        raise CannotProceedError(f"The variable {OUTSIDE} is not as `trainshed shell` sets it. Unset it.") from None
    kept = {name: value for name, value in env.items() if name != OUTSIDE and name not in variables}
    before = {name: value for name, value in variables.items() if value is not None}
    path = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder != shims]
    return kept | before | {"PATH": os.pathsep.join(path)}


def google_cli(place: ShellTarget, reach: ServerEndpoints) -> dict[str, str]:
    """What points the real Google Cloud CLI here, with a configuration folder of its own."""
    config = place.credentials / "gcloud"
    return {
        "CLOUDSDK_CONFIG": str(config),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{reach.url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{reach.url}/storage/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{reach.url}/",
        "CLOUDSDK_AI_PLATFORM_REGION": "global",  # or it looks for a host named us-central1-127.0.0.1
        "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL": "2",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",  # it has those of BOTO_CONFIG
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
    }
