"""What lets a replica's own code reach this server under Google's names: variables, a token, and files with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from trainshed.engines.base import Launch
from trainshed.proxy import clients
from trainshed.proxy.clients import Reach

FOLDER = "credentials"  #: in the attempt's own
_LONGER_S = 86_400.0  #: that a token lives beyond the job's time limit, at most; the end of the job ends it anyway


class Issue(Protocol):
    def __call__(self, project: str, job: str, *, ttl_s: float) -> str: ...


class Credentials:
    """`issue` makes a token for a job, given its project, its name and how long it may live at most."""

    def __init__(self, reach: Reach, *, issue: Issue) -> None:
        self._reach = reach
        self._issue = issue

    def equip(self, launch: Launch) -> Launch:
        """The same launch with `gs://` in it. Writes the token into the attempt's folder; the launch has only paths.

        What a launch says already is kept.
        """
        folder = launch.folder / FOLDER
        token = self._issue(launch.project, launch.job, ttl_s=launch.max_running_s + _LONGER_S)
        clients.write(folder, clients.files(self._reach, project=launch.project, folder=folder, token=token))
        return replace(launch, env={**environment(self._reach, launch), **launch.env})


def environment(reach: Reach, launch: Launch) -> dict[str, str]:
    """The variables of every replica. None of them is secret."""
    folder = launch.folder / FOLDER
    made = clients.environment(reach, project=launch.project, folder=folder, hosts=_hosts(launch))
    return made | {"TRAINSHED_HOME": str(folder)}  # where the command line looks for its token


def _hosts(launch: Launch) -> Iterable[str]:
    for replica in launch.replicas:
        cluster = json.loads(replica.env.get("TF_CONFIG", "{}")).get("cluster", {})
        for addresses in cluster.values():
            yield from (address.rpartition(":")[0] for address in addresses)
