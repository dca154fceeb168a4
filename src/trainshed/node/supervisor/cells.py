"""The cells of an attempt's replicas, if its spec asks for a sandbox, and the secrets that are handed into them."""

from __future__ import annotations

import os

from ..files import remove_folder
from .secrets import AttemptSecrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..sandbox.cell import Cell

_PRIVATE_FOLDER = "private"  #: in the attempt's folder: `/tmp`, `/var/tmp` and HOME of each replica


class Cells:
    """Makes a cell for each start of a replica."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._sandbox: Optional[dict[str, Any]] = spec.get("sandbox")
        self._python = spec["python"]
        self._site = spec["site"]
        self._secrets = AttemptSecrets(folder)
        self.variables = self._secrets.variables
        self.mask = self._secrets.mask

    @property
    def note(self) -> str:
        """A line for the job's log. Empty without a sandbox's setting."""
        return self._sandbox["note"] if self._sandbox else ""

    def make(self, name: str, env: dict[str, str]) -> Optional[Cell]:
        """The cell of a replica. Returns None if it runs without."""
        if self._sandbox is None or self._sandbox["level"] == "none":
            return None
        from ..sandbox import view  # late: attempts in containers and on a cluster do not need it
        from ..sandbox.cell import Cell

        shown = {
            **self._sandbox,
            "read_only": [
                *view.interpreter_paths(self._python),
                view.node_folder(),
                self._site,
                *self._sandbox["read_only"],
            ],
            "writable": [os.path.join(self._folder, "work"), *self._sandbox["writable"]],
        }
        return Cell.of(shown, os.path.join(self._folder, _PRIVATE_FOLDER, name), env.get("HOME", ""))

    def remove(self) -> None:
        """Remove the private folders and the secrets. No replica may run any more."""
        self._secrets.remove()
        remove_folder(os.path.join(self._folder, _PRIVATE_FOLDER))
