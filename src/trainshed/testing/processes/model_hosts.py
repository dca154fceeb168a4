"""A real host as a process, with a model of `testing/fakes/models.py` in place of a framework's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainshed.gateway.routes import HostAddress
from trainshed.testing.processes.gateway import RunningGateway
from trainshed.testing.processes.host_processes import RunningHost

#: The spec's loader is the name of a class.
_PROGRAM = """
import sys
from pathlib import Path

from trainshed.serving.host.lifecycle import StopSignal, announce, exit_with_server, listen, redirect_stdout
from trainshed.serving.host.server import Host
from trainshed.serving.spec import ServingSpec
from trainshed.testing.fakes import models

output, stop = redirect_stdout(), StopSignal()
exit_with_server()
spec = ServingSpec.read(Path(sys.argv[2]))
host, listener = Host(spec, getattr(models, spec.loader)()), listen(spec)
announce(output, {"event": "ready"})
host.serve(listener, stop)
"""


class ModelHost:
    """Serves a model of this class name until `stop`, on a socket in `folder`."""

    def __init__(self, folder: Path, model: str, *, name: str) -> None:
        spec = {"loader": model, "project": "p", "model": name, "version": "v1"}
        self.process = RunningHost(folder, "host", spec, program=_PROGRAM)
        self.address = HostAddress(socket=folder / "s", key=str(folder))

    def wait(self) -> None:
        """Block until it takes requests."""
        assert self.process.heard() == {"event": "ready"}

    def stop(self) -> None:
        self.process.close()


@contextmanager
def gateway_with_models(folder: Path, classes: Mapping[str, str], *, project: str) -> Iterator[RunningGateway]:
    """A gateway with a host for each model of a project. `classes` are names of classes by names of models."""
    hosts = {}
    for name, model in classes.items():
        (folder / name).mkdir()
        hosts[name] = ModelHost(folder / name, model, name=name)
    running = RunningGateway(folder).start()
    for name, host in hosts.items():
        host.wait()
        running.publish(name, host.address, project=project)
    yield running
    running.stop()
    for host in hosts.values():
        host.stop()
