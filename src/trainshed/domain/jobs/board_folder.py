"""Where the event files of a job are, which TensorBoard shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFolder:
    """A folder with event files of a project, which may not exist yet."""

    project: str
    path: Path
    root: Path  #: what TensorBoard can see: the folder, or one above it
