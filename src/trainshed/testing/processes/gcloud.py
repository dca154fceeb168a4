"""Google's own command line, pointed at a server of the tests by its settings alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from trainshed.testing.processes.servers import RunningServer

TIMEOUT_S = 180


class Gcloud:
    """Runs `gcloud ai-platform` for one project, with a configuration of its own in `folder`."""

    def __init__(self, server: RunningServer, project: str, folder: Path) -> None:
        self._folder = folder
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDSDK_")} | {
            "CLOUDSDK_CONFIG": str(folder / "config"),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{server.url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"{server.url}/",
            "CLOUDSDK_AI_PLATFORM_REGION": "global",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(server.home / "token"),
            "CLOUDSDK_CORE_PROJECT": project,
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
            "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("gcloud") is not None

    def __call__(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Returns the output and the errors of a command that must exit with `status`."""
        done = subprocess.run(
            ["gcloud", "ai-platform", *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self._folder,
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr
