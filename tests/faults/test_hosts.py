"""Models that raise, hang, crash and eat memory, killed hosts and killed servers: real hosts of a real runtime."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.resources import small_disk
from trainshed.testing.processes.servers import RunningServer, ask
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import wheel_name

BACK_S = 120.0  #: that versions may be away after their hosts died at the same time, on however slow a machine
PREDICT_TIMEOUT_S = 10
#: No host here needs TensorFlow, which a warm process would import.
SETTINGS = {"predict_timeout_s": PREDICT_TIMEOUT_S, "load_timeout_s": 120, "warm_start": "off"}
IMPATIENT = {**SETTINGS, "load_timeout_s": 3}


def open_server(home: Path, settings: Mapping[str, object] = SETTINGS) -> RunningServer:
    return RunningServer(link_runtimes(home), settings).start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    server = open_server(tmp_path_factory.mktemp("hosts") / "home")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def neighbour(shared: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """A version of another model that nobody may disturb."""
    deployer = Deployer(shared, "fault-neighbour", tmp_path_factory.mktemp("neighbour"))
    deployer.deploy_routine("calm")
    return deployer


@pytest.fixture
def deployer(shared: RunningServer, tmp_path: Path, request: pytest.FixtureRequest) -> Deployer:
    return Deployer(shared, f"fault-{zlib.crc32(request.node.name.encode())}", tmp_path)


@pytest.fixture(scope="module")
def crashing(shared: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """A version whose hosts crash from now on. It is given up after some pauses, in which other tests run."""
    deployer = Deployer(shared, "fault-crashing", tmp_path_factory.mktemp("crashing"))
    flag = shared.home / "crash-now"
    deployer.deploy_routine("v1", load=f"os.path.exists({str(flag)!r}) and ctypes.string_at(0)")
    flag.touch()
    os.kill(deployer.details("v1")["hosts"][0]["pid"], signal.SIGKILL)
    return deployer


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningServer]:
    server = open_server(tmp_path / "home")
    yield server
    server.kill()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[RunningServer]:
    server = open_server(tmp_path / "home", IMPATIENT)
    yield server
    server.kill()


class Watched:
    """Asks the neighbour all the time; none of its answers may be wrong."""

    def __init__(self, neighbour: Deployer) -> None:
        self._neighbour = neighbour
        self._end = threading.Event()
        self.wrong: list[Any] = []
        self.count = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self.count == 0 or not self._end.wait(0.1):
            status, answer = self._neighbour.ask("calm", self.count)
            if (status, answer) != (200, {"predictions": [self.count]}):
                self.wrong.append((status, answer))
            self.count += 1

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()
        assert not self.wrong
        assert self.count > 0


#: 256 MiB that are used, then as much as there is of what the limit counts, used or not: other tests need memory too
EATEN = "[bytearray(1 << 26) for _ in range(4)] + [bytes(1 << 26) for _ in range(1 << 20)]"
CRASHES = {
    "raises": "raise ValueError('no such weights')",
    "exits": "sys.exit(3)",
    "leaves": "os._exit(3)",
    "segfaults": "ctypes.string_at(0)",
    "eats": "cls.eaten = bytearray(1 << 40)",
    "swallows": f"cls.eaten = {EATEN}",
}


@pytest.mark.fault("F48")
def test_faults_at_load_fail_their_versions_alone(deployer: Deployer, neighbour: Deployer) -> None:
    with Watched(neighbour):
        operations = {fault: deployer.create_routine(fault, load=code) for fault, code in CRASHES.items()}
        messages = {fault: deployer.refused(operation) for fault, operation in operations.items()}
    words = {"raises": "no such weights", "segfaults": "SIGSEGV", "leaves": "exit status 3"}
    words |= {"eats": "MemoryError", "swallows": "MemoryError"}
    for fault, message in messages.items():
        assert message.startswith('Create Version failed. Bad model detected with error:  "'), fault
        assert "(Error code: " in message, fault
        assert deployer.get(fault)["state"] == "FAILED", fault
        assert deployer.get(fault)["errorMessage"] == message, fault
        assert words.get(fault, "") in message, fault
        assert deployer.ask(fault, 1)[0] == 503, fault
    assert deployer.ask("", 1)[0] == 400  # there is no default version
    for fault in CRASHES:
        deployer.finish(deployer.delete(fault))


@pytest.mark.fault("F48")
def test_a_hang_at_load_is_cut_off(impatient: RunningServer, tmp_path: Path) -> None:
    """The neighbour of a hang is watched in `test_a_cancelled_creation_leaves_no_process`."""
    deployer = Deployer(impatient, "fault-hang", tmp_path / "hang")
    message = deployer.refused(deployer.create_routine("v1", load="time.sleep(3600)"))
    assert "It was not loaded within 3 s." in message


@pytest.mark.fault("F68")
def test_a_pickle_that_does_harm_is_only_loaded_by_its_host(deployer: Deployer, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    uri = deployer.upload("evil/model.pkl", pickle.dumps(_Evil(flag))).rpartition("/")[0]
    deployer.refused(deployer.create("v1", uri, framework="SCIKIT_LEARN"))
    written = flag.read_text()
    assert set(re.findall(r"TRAINSHED_\w+", written)) == {"TRAINSHED_HOST"}, "which names its socket, and nothing else"
    assert deployer.server.token not in written
    parent, pid = (int(word) for word in written.split()[:2])
    assert deployer.server.pid not in (parent, pid)


class _Evil:
    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        code = (
            f"import os; open({str(self._flag)!r}, 'w').write(f'{{os.getppid()}} {{os.getpid()}} {{dict(os.environ)}}')"
        )
        return (exec, (code,))


def test_an_error_at_predict_is_an_answer(deployer: Deployer) -> None:
    deployer.deploy_routine("v1", answer="assert instances != [13], 'unlucky'")
    assert deployer.predict("v1", 1) == [1]
    status, answer = deployer.ask("v1", 13)
    assert status == 500
    assert "unlucky" in answer["error"]["message"]
    assert deployer.predict("v1", 2) == [2]


LOST = {
    "segfaults": "ctypes.string_at(0)",
    "leaves": "os._exit(0)",
    "is_killed": "os.kill(os.getpid(), 9)",
    "kills_its_reaper": "os.kill(os.getppid(), 9); time.sleep(9)",
}
AT_PREDICT = {**LOST, "swallows": f"eaten = {EATEN}", "hangs": "time.sleep(3600)"}


@pytest.mark.fault("F49", "F50")
@pytest.mark.usefixtures("crashing")  # whose pauses pass meanwhile
def test_faults_at_predict_are_over_soon(deployer: Deployer, neighbour: Deployer) -> None:
    """A lost host, memory that is eaten, and a hang, which is cut off: an error of that request, and no other."""
    operations = [
        deployer.create_routine(fault, answer=f"if instances == ['poison']: {code}")
        for fault, code in AT_PREDICT.items()
    ]
    for operation in operations:
        assert "response" in deployer.finish(operation)
    with Watched(neighbour), ThreadPoolExecutor(len(AT_PREDICT)) as pool:
        answers = dict(zip(AT_PREDICT, pool.map(lambda fault: deployer.ask(fault, "poison"), AT_PREDICT), strict=True))
        away = dict(zip(AT_PREDICT, pool.map(lambda fault: deployer.until_answers(fault, 1), AT_PREDICT), strict=True))
    for fault in LOST:
        status, answer = answers[fault]
        assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE"), (fault, answer)
    assert answers["swallows"][0] in (500, 503, 504)
    assert answers["hangs"][0] == 504, answers["hangs"]
    assert max(away.values()) < BACK_S, away
    assert {deployer.get(fault)["state"] for fault in LOST} == {"READY"}


@pytest.mark.fault("F49")
def test_a_version_that_always_crashes_is_unhealthy_and_says_so(crashing: Deployer, neighbour: Deployer) -> None:
    with Watched(neighbour):
        status, answer = eventually(
            lambda: crashing.ask("v1", 1), lambda seen: "is unhealthy" in str(seen[1]), within_s=150
        )
    assert status == 503
    assert "SIGSEGV" in answer["error"]["message"]
    assert "SIGSEGV" in crashing.details("v1")["progress"]
    crashing.finish(crashing.delete("v1"))


def test_what_a_model_started_does_not_outlive_its_host(deployer: Deployer, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    start = f"open({str(pids)!r}, 'w').write(str(subprocess.Popen(['sleep', '3600'], start_new_session=True).pid))"
    deployer.deploy_routine("v1", load=start)
    child = int(pids.read_text())
    assert psutil.pid_exists(child)
    deployer.finish(deployer.delete("v1"))
    eventually(lambda: _lives(child), lambda lives: not lives)


@pytest.mark.fault("F59")
def test_a_killed_host_is_back_soon(deployer: Deployer) -> None:
    details = deployer.deploy_routine("v1", manualScaling={"nodes": 2})
    details = eventually(lambda: deployer.details("v1"), lambda seen: _ready(seen) == 2)
    os.kill(details["hosts"][0]["pid"], signal.SIGKILL)
    assert deployer.until_answers("v1", 1) < BACK_S
    eventually(lambda: deployer.details("v1"), lambda seen: _ready(seen) == 2)


def _ready(details: dict[str, Any]) -> int:
    return sum(host["state"] == "READY" for host in details["hosts"])


@pytest.mark.fault("F58")
def test_sources_that_change_or_go_leave_a_version_as_it_is(deployer: Deployer) -> None:
    read = "self.text = open(os.path.join(self.model_dir, 'weights.txt')).read(); return [self.text] * len(instances)"
    deployer.deploy_routine("v1", answer=read)
    assert deployer.predict("v1", 1) == ["v1"]
    deployer.upload("v1/model/weights.txt", b"other")
    for name in (f"v1/{wheel_name('routine_v1')}", "v1/model/weights.txt"):
        deployer.server.call("DELETE", f"/storage/v1/b/{deployer.bucket}/o/{name.replace('/', '%2F')}")
    os.kill(deployer.details("v1")["hosts"][0]["pid"], signal.SIGKILL)
    deployer.until_answers("v1", 1)
    assert deployer.predict("v1", 1) == ["v1"]


def test_links_in_a_model_are_refused_by_name(deployer: Deployer) -> None:
    deployer.upload("linked/model/model.bst", b"1")
    folder = deployer.server.home / "buckets" / deployer.bucket / "linked" / "model"
    (folder / "secret.txt").symlink_to(deployer.server.home / "token")
    message = deployer.refused(deployer.create("v1", f"gs://{deployer.bucket}/linked/model"))
    assert f"gs://{deployer.bucket}/linked/model/secret.txt is a link" in message


def test_a_cancelled_creation_leaves_no_process(deployer: Deployer, neighbour: Deployer) -> None:
    hangs = deployer.server.home / "hangs"
    with Watched(neighbour):
        operation = deployer.create_routine("v1", load=f"open({str(hangs)!r}, 'w').close(); time.sleep(3600)")
        eventually(hangs.exists)
        assert deployer.details("v1")["progress"] == "Loading the model."
        deployer.server.call("POST", f"/v1/{operation['name']}:cancel", {})
        finished = deployer.finish(operation)
    assert finished["error"] == {"code": 1, "message": "Create Version was cancelled."}
    assert deployer.get("v1")["state"] == "FAILED"


def test_hosts_die_with_a_killed_server_and_the_next_one_serves_again(own: RunningServer, tmp_path: Path) -> None:
    deployer = Deployer(own, "fault-killed", tmp_path)
    deployer.deploy_routine("v1")
    deployer.deploy_routine("v2", autoScaling={"minNodes": 0})
    host = deployer.details("v1")["hosts"][0]["pid"]
    own.kill()
    eventually(lambda: _lives(host), lambda lives: not lives)
    own.start()
    assert deployer.get("v1")["state"] == "READY"
    deployer.until_answers("v1", 1)
    assert deployer.predict("", 1) == [1]
    began = time.monotonic()
    status, answer = deployer.ask("v2", 1)  # asleep: the request is held while it wakes
    assert (status, answer) == (200, {"predictions": [1]}) or time.monotonic() - began >= PREDICT_TIMEOUT_S


def test_a_server_killed_in_a_creation_goes_on_with_it(own: RunningServer, tmp_path: Path) -> None:
    deployer = Deployer(own, "fault-midway", tmp_path)
    go = tmp_path / "go"
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    operation = deployer.create_routine("v1", load=wait)
    credentials = {"authorization": f"Bearer {own.token}"}
    for target in ("", "/versions/v1"):  # from the first moment on
        answer = ask(own.url, "POST", f"{deployer.path}{target}:predict", body={"instances": [1]}, headers=credentials)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "being created" in answer.json["error"]["message"]
    eventually(lambda: deployer.details("v1")["progress"], lambda text: text == "Loading the model.")
    own.kill()
    own.start()
    assert deployer.get("v1")["state"] == "CREATING"
    assert deployer.ask("v1", 1)[0] == 503
    go.touch()
    assert "response" in deployer.finish(operation)
    assert deployer.predict("v1", 1) == [1]
    assert sum(1 for _ in (own.home / "models" / "fault-midway").iterdir()) == 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    with small_disk(tmp_path, "4m"):
        yield tmp_path


@pytest.mark.fault("F33")
def test_a_full_disk_fails_the_creation_and_leaves_nothing(
    shared: RunningServer, disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    deployer = Deployer(shared, "fault-full", tmp_path_factory.mktemp("full"))
    models = shared.home / "models" / "fault-full"
    models.mkdir(parents=True)
    subprocess.run(["mount", "--bind", disk, models], check=True)
    try:
        uri = deployer.upload("big/model.bst", os.urandom(8 << 20)).rpartition("/")[0]
        message = deployer.refused(deployer.create("v1", uri, framework="XGBOOST"))
        assert "is full" in message
        assert list(models.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(models)], check=True)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
