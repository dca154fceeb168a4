"""Rollouts of versions: look at one, wait for its end, stop it, promote its version now."""

from __future__ import annotations

import time
from typing import Any

import trainshed.sdk.display as display
from trainshed.client.context import ClientContext
from trainshed.errors import CannotProceedError

POLL_INTERVAL_S = 1.0


class ModelRollout:
    """One rollout of a model. It stores only a name: each call goes to the server."""

    def __init__(self, context: ClientContext, path: str) -> None:
        self._context = context
        self._path = path

    @property
    def state(self) -> str:
        """RUNNING, PROMOTED, ROLLED_BACK or STOPPED."""
        return str(self.describe()["state"])

    def describe(self) -> dict[str, Any]:
        """Return the rollout as in the API: its stages, its events, and what was measured."""
        body: dict[str, Any] = self._context.client.call("GET", self._path)
        return body

    def wait(self) -> ModelRollout:
        """Wait for the end, and show what it does. Raises `CannotProceedError` if the version is not promoted."""
        live, told = display.Live(), 0
        while True:
            body = self.describe()
            for event in body["events"][told:]:
                live.show(display.message(event["message"]), event["message"])
            told = len(body["events"])
            if body["state"] == "PROMOTED":
                return self
            if body["state"] != "RUNNING":
                raise CannotProceedError(f"Version {body['version']} is not the default: {body['reason']}")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> ModelRollout:
        """Send all requests to the version of before."""
        self._context.client.call("POST", f"{self._path}:stop", body={})
        return self

    def promote(self) -> ModelRollout:
        """Make the version the default now."""
        self._context.client.call("POST", f"{self._path}:promote", body={})
        return self

    def __repr__(self) -> str:
        return f"<ModelRollout {self._path.rpartition('/')[2]} of project {self._context.project}>"
