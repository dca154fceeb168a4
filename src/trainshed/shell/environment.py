"""The environment of `trainshed shell`, and how to undo it."""

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

PYTHON_START = Path(__file__).with_name("python")  #: on PYTHONPATH, for clients that ignore the proxy variables
OUTSIDE = "TRAINSHED_SHELL"  #: what the shell changed, and the values before, as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTarget:
    """The server and project of a shell's commands, and the shell's files."""

    home: Home
    project: str
    reach: ServerEndpoints | None  #: None: only Trainshed's own commands reach the server
    shims: Path  #: the first folder on the PATH
    credentials: Path  #: the folder with the token's files
    fixed_project: bool = False  #: whether `gcloud config set project` has no effect


def inner_environment(env: Mapping[str, str], target: ShellTarget, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the shell that is opened in `env`. None of its values is secret."""
    changes = {
        "PATH": f"{target.shims}{os.pathsep}{env.get('PATH') or os.defpath}",
        "TRAINSHED_HOME": str(target.home.path),
        "GOOGLE_CLOUD_PROJECT": target.project,
        "CLOUDSDK_CORE_PROJECT": target.project,
        "DEVSHELL_PROJECT_ID": target.project,
    }
    if target.fixed_project:
        changes["TRAINSHED_PROJECT"] = target.project
    if target.reach is not None:
        changes |= client_config.client_environment(target.reach, project=target.project, folder=target.credentials)
        changes["PYTHONPATH"] = os.pathsep.join(filter(None, (str(PYTHON_START), env.get("PYTHONPATH"))))
    changes |= extra
    saved = {name: env.get(name) for name in changes if name != "PATH"}
    return {**env, **changes, OUTSIDE: json.dumps({"shims": str(target.shims), "variables": saved})}


def outer_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment around the shell, from within it. A server must be started with it.

    With the shell's own, a server would take its own proxy for the machine's, and its token for one of Google's.
    """
    if OUTSIDE not in env:
        return dict(env)
    try:
        state = json.loads(env[OUTSIDE])
        shims, variables = str(state["shims"]), dict(state["variables"])
    except (ValueError, TypeError, KeyError):
        raise CannotProceedError(f"The variable {OUTSIDE} is not as `trainshed shell` sets it. Unset it.") from None
    inherited = {name: value for name, value in env.items() if name != OUTSIDE and name not in variables}
    restored = {name: value for name, value in variables.items() if value is not None}
    path = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder != shims]
    return inherited | restored | {"PATH": os.pathsep.join(path)}


def google_cli(target: ShellTarget, endpoints: ServerEndpoints) -> dict[str, str]:
    """Return what points the real Google Cloud CLI here, with a configuration folder of its own."""
    config = target.credentials / "gcloud"
    return {
        "CLOUDSDK_CONFIG": str(config),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{endpoints.url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{endpoints.url}/storage/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{endpoints.url}/",
        "CLOUDSDK_AI_PLATFORM_REGION": "global",  # or it looks for a host named us-central1-127.0.0.1
        "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL": "2",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "false",  # it has those of BOTO_CONFIG
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
    }
