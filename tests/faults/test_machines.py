"""The machines that tests of clusters stand on: apart from this one and from each other, and gone without a trace."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trainshed.testing.clusters import machines
from trainshed.testing.clusters.gangs import alive
from trainshed.testing.clusters.machines import Network, TestMachine, can_make_namespaces, remove_orphans
from trainshed.testing.eventually import eventually

HELLO = "import socket, sys, time; here = socket.create_server((sys.argv[1], 8765)); time.sleep(1000)"
ASK = "import socket, sys; socket.create_connection((sys.argv[1], 8765), timeout=2).close(); print('reached')"

COUNT = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('x')\n    time.sleep(0.01)"


@pytest.fixture(params=[pytest.param(None, id="the best there is"), pytest.param(False, id="loopback")])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path, namespaces=request.param)
    yield made
    made.close()


def listening(machine: TestMachine, tmp_path: Path) -> None:
    machine.start([sys.executable, "-c", HELLO, machine.host], tmp_path / "log")
    eventually(lambda: reached(machine, machine.host), within_s=60.0)


def reached(machine: TestMachine, host: str) -> bool:
    return machine.run([sys.executable, "-c", ASK, host]).stdout == "reached\n"


def test_machines_reach_each_other_until_one_is_cut_off(network: Network, tmp_path: Path) -> None:
    one, other = network.machine("one"), network.machine("other")
    listening(one, tmp_path)
    assert reached(other, one.host)
    pids = one.pids()
    one.cut()
    assert one.pids() == pids  # it goes on, and knows nothing
    if network.isolated:  # on loopback the kernel still takes connections in for a process that stands still
        assert not reached(other, one.host)
    one.mend()
    eventually(
        lambda: reached(other, one.host), bool, within_s=60.0
    )  # the kernel tells of a cable within a second or so


def test_a_machine_has_files_of_its_own_and_what_is_shared(network: Network, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("shared")
    machine = network.machine("one", {"home/some/place": tmp_path / "here"})
    inside = machine.inside("home/some/place/file")
    assert machine.run(["cat", inside]).stdout == "shared"
    assert machine.run(["sh", "-c", "echo mine > $HOME/own"]).returncode == 0
    assert (machine.folder / "home" / "own").read_text() == "mine\n"
    seen = machine.run(["ls", tmp_path]).returncode == 0
    assert seen is not network.isolated
    assert "TRAINSHED_HOME" not in machine.environment()


def test_a_checkout_below_tmp_is_seen_there(monkeypatch: pytest.MonkeyPatch, network: Network, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        checkout = Path(folder).resolve() / "deep" / "checkout"
        checkout.mkdir(parents=True)
        (checkout / "file").write_text("code")
        monkeypatch.setattr(machines, "SHARED_PATHS", (checkout, *machines.SHARED_PATHS))
        machine = network.machine("one", {"home/place": tmp_path})
        assert machine.run(["cat", checkout / "file"]).stdout == "code"


def test_what_is_killed_is_gone_with_what_it_started(network: Network, tmp_path: Path) -> None:
    one, other = network.machine("one"), network.machine("other")
    for machine in (one, other):
        machine.start(["sh", "-c", "setsid sleep 1000 & sleep 1000"], tmp_path / "log")
        eventually(machine.pids, lambda pids: len(pids) >= 3, within_s=60.0)
    pids = one.pids()
    one.kill()
    assert one.pids() == []
    assert not any(alive(pid) for pid in pids)
    assert len(other.pids()) >= 3


def test_a_paused_machine_stands_still(network: Network, tmp_path: Path) -> None:
    machine = network.machine("one")
    counter = machine.inside("home/count")
    machine.start([sys.executable, "-c", COUNT, counter], tmp_path / "log")
    size = eventually(lambda: _size(machine.folder / "home" / "count"), lambda now: now > 3, within_s=60.0)
    machine.pause()
    eventually(
        lambda: {_state(pid) for pid in machine.pids()}, {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}.issuperset
    )
    size = _size(machine.folder / "home" / "count")
    assert machine.run(["true"]).returncode == 0  # what starts now is not paused, and takes its time
    assert _size(machine.folder / "home" / "count") == size
    machine.resume()
    eventually(lambda: _size(machine.folder / "home" / "count"), lambda now: now > size, within_s=60.0)


def _state(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    if not can_make_namespaces():
        return  # nothing is left of loopback addresses
    program = (
        "import sys, time; from pathlib import Path; from trainshed.testing.clusters.machines import Network\n"
        "made = Network(Path(sys.argv[1])).machine('one'); made.start(['sleep', '1000'], Path(sys.argv[1]) / 'log')\n"
        "while not made.pids(): time.sleep(0.01)\n"
        "print(made.host, flush=True); time.sleep(1000)"
    )
    run = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    address = f" {run.stdout.readline().rpartition('.')[0]}.1/24 "  # of its bridge, and of no other
    assert address in _addresses()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    remove_orphans()
    assert address not in _addresses()
    assert f"-{run.pid}-" not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def _addresses() -> str:
    return subprocess.run(["ip", "addr"], capture_output=True, text=True).stdout


def test_nothing_on_loopback_here_is_reached_from_there(tmp_path: Path) -> None:
    network = Network(tmp_path)
    try:
        machine = network.machine("one")
        with socket.create_server(("127.0.0.1", 8765 if network.isolated else 0)):
            assert not reached(machine, "127.0.0.1")
    finally:
        network.close()
