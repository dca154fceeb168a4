"""The names of engines, and the label with which a client selects one."""

from __future__ import annotations

ENGINE_LABEL = "trainshed-engine"  #: label with which any client selects the engine of a job
LOCAL_ENGINE, RAY_ENGINE = "local", "ray"  #: this machine, which is always available; a Ray cluster
