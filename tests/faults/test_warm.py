"""Warm processes that are killed, stopped, orphaned or lied to, and what they do to real jobs of frameworks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainshed.config import Home
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt
from trainshed.domain.jobs.states import JobState
from trainshed.engines.base import AttemptSpec, Engine, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.engines.shipping import ship
from trainshed.node.process.ports import free_ports
from trainshed.node.process.tree import stat_fields
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.cache import runtime_python, torch_python
from trainshed.testing.contracts.engines import EngineContract, settle
from trainshed.testing.eventually import eventually
from trainshed.testing.workloads.job_logs import records

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")
MODULES = ("decimal",)
_WAIT_S = 240.0
STARTED_WARM = "Started warm: the modules of the runtime were imported beforehand."

WAIT = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/starts", "a") as file:
    file.write("x")
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
sys.exit(int(open(folder + "/go").read()))
"""


class Shed:
    """A state folder, engines on it, and trainers of a few lines."""

    def __init__(self, path: Path, python: Path = PYTHON, modules: tuple[str, ...] = MODULES) -> None:
        self.path = path
        self.home = Home(path / "home")
        self.home.path.mkdir(parents=True)
        self.python = python
        self.modules = modules
        self.env: dict[str, str] = {}  #: of all jobs
        self.engines: list[LocalEngine] = []
        self.engine = self.open()

    def open(self) -> LocalEngine:
        """One more engine on the folder, as that of the next server."""
        self.engines.append(LocalEngine(self.home, UV, {self.python: self.modules}))
        return self.engines[-1]

    def launch(self, name: str, code: str, *, replicas: tuple[Replica, ...] = (), **env: str) -> AttemptSpec:
        (self.path / name).mkdir()
        (self.path / name / "trainer.py").write_text(code)
        launch = AttemptSpec(
            project="p",
            job=name,
            attempt=1,
            folder=self.path / "jobs" / name / "1",
            python=self.python,
            module="trainer",
            args=(str(self.path / name),),
            packages=(),
            site=self.path / "site",
            replicas=replicas or (Replica(name="master-replica-0", type="master", index=0, primary=True),),
            env={"PYTHONPATH": str(self.path / name), **self.env, **env},
            grace_s=5.0,
            max_running_s=3600.0,
            log_limit_bytes=1 << 20,
        )
        self.engine.launch(launch)
        return launch

    def run(self, name: str, code: str, **env: str) -> AttemptSpec:
        """Launch and wait for success."""
        launch = self.launch(name, code, replicas=(), **env)
        assert self.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED, self.texts(launch)
        return launch

    def settle(self, launch: AttemptSpec, phase: AttemptPhase) -> ObservedAttempt:
        return settle(self.engine, launch.folder, phase, within_s=_WAIT_S)

    def finish(self, launch: AttemptSpec) -> None:
        draft = Path(launch.args[0]) / "draft"
        draft.write_text("0")
        draft.rename(draft.with_name("go"))

    def start(self, launch: AttemptSpec) -> str:
        return str(records(launch.folder / "journal.jsonl")[0]["start"])

    def texts(self, launch: AttemptSpec) -> list[str]:
        return [line["m"] for line in records(launch.folder / "log.jsonl")]

    def sockets(self) -> list[Path]:
        return list(self.home.warm.glob("*/socket"))

    def pids(self) -> list[int]:
        """The warm processes that live."""
        return warm_pids(self.home.warm)

    def warm_up(self) -> int:
        """Wait for the process that the last launch started; its pid."""
        eventually(self.sockets, within_s=_WAIT_S)
        [pid] = self.pids()
        return pid

    def close(self) -> None:
        for engine in self.engines:
            engine.warm.close()
        eventually(self.pids, lambda pids: not pids)


def warm_pids(folder: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            mine = len(words) > 3 and words[2] == b"warm" and words[3].startswith(bytes(folder))
            if mine and not gone(int(path.parent.name)) and os.getsid(int(path.parent.name)) == int(path.parent.name):
                found.append(int(path.parent.name))
    return [pid for pid in found if not is_fork(pid, found)]


def is_fork(pid: int, others: list[int]) -> bool:
    """Supervisors and replicas were forked from a warm process and bear its command line; they hold no listener."""
    with contextlib.suppress(OSError):
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        return not any(link.endswith("/lock") and "/warm/" in link for link in links)
    return True


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    made = Shed(tmp_path / "shed")
    yield made
    made.close()


@pytest.fixture
def warm_shed(shed: Shed) -> Shed:
    assert shed.start(shed.run("first", "pass")) == "cold"
    shed.warm_up()
    assert shed.start(shed.run("second", "pass")) == "warm"
    return shed


class TestWarmEngine(EngineContract):
    """An engine that starts jobs warm keeps the contract of engines."""

    @pytest.fixture(autouse=True)
    def ready(self, warm_shed: Shed) -> None:
        self.shed = warm_shed

    def engine(self, tmp_path: Path) -> Engine:
        return self.shed.engine

    def attempt(self, tmp_path: Path, name: str) -> AttemptSpec:
        class Held(LocalEngine):
            def launch(self, launch: AttemptSpec) -> None:
                """Not yet."""

        engine, self.shed.engine = self.shed.engine, Held(self.shed.home, UV)
        launch = self.shed.launch(name, WAIT)
        self.shed.engine = engine
        return launch

    def finish(self, engine: Engine, launch: AttemptSpec, *, ok: bool) -> None:
        draft = Path(launch.args[0]) / "draft"
        draft.write_text("0" if ok else "3")
        draft.rename(draft.with_name("go"))

    def starts(self, engine: Engine, launch: AttemptSpec) -> int:
        assert self.shed.start(launch) == "warm"
        file = Path(launch.args[0]) / "starts"
        return len(file.read_text()) if file.exists() else 0


def test_killing_the_warm_process_ends_no_job_and_the_next_one_starts_cold(warm_shed: Shed) -> None:
    pid = warm_shed.warm_up()
    running = warm_shed.launch("running", WAIT)
    warm_shed.settle(running, AttemptPhase.RUNNING)
    assert warm_shed.start(running) == "warm"
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(pid))
    cold = warm_shed.run("cold", "pass")
    assert warm_shed.start(cold) == "cold"
    assert "Started cold, with a new Python: no warm process of its runtime was ready." in warm_shed.texts(cold)
    eventually(
        lambda: warm_shed.start(warm_shed.run(f"later-{os.urandom(4).hex()}", "pass")), lambda how: how == "warm"
    )
    assert warm_shed.settle(running, AttemptPhase.RUNNING)
    warm_shed.finish(running)
    assert warm_shed.settle(running, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED


def test_a_warm_process_that_hangs_delays_a_job_and_does_not_start_it_twice(warm_shed: Shed) -> None:
    pid = warm_shed.warm_up()
    os.kill(pid, signal.SIGSTOP)
    try:
        launch = warm_shed.launch("once", WAIT)
        assert warm_shed.start(launch) == "cold"
    finally:
        os.kill(pid, signal.SIGCONT)
    warm_shed.run("next", "pass")  # by then the first request was read too
    warm_shed.finish(launch)
    assert warm_shed.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED
    assert (Path(launch.args[0]) / "starts").read_text() == "x"


def test_a_killed_warm_supervisor_leaves_nothing(warm_shed: Shed) -> None:
    launch = warm_shed.launch("lost", "import os, time\nos.fork()\ntime.sleep(600)")
    warm_shed.settle(launch, AttemptPhase.RUNNING)
    events = records(launch.folder / "journal.jsonl")
    pids = [event["pid"] for event in events if "pid" in event]
    os.kill(pids[0], signal.SIGKILL)
    warm_shed.settle(launch, AttemptPhase.LOST)
    assert all(gone(pid) for pid in pids)


def test_the_next_server_finds_the_warm_process_again(warm_shed: Shed) -> None:
    pid = warm_shed.warm_up()
    warm_shed.engine = warm_shed.open()
    warm_shed.engine.warm.begin()
    assert warm_shed.start(warm_shed.run("third", "pass")) == "warm"
    assert warm_shed.pids() == [pid]


def test_the_next_server_starts_one_for_a_runtime_in_use(warm_shed: Shed) -> None:
    warm_shed.engine.warm.close()
    eventually(warm_shed.pids, lambda pids: not pids)
    assert not warm_shed.sockets()
    warm_shed.engine = warm_shed.open()
    warm_shed.engine.warm.begin()
    warm_shed.warm_up()
    assert warm_shed.start(warm_shed.run("third", "pass")) == "warm"


def test_what_an_older_version_left_is_removed_and_ends(warm_shed: Shed) -> None:
    old = warm_shed.warm_up()
    warm_shed.modules = ("fractions",)
    warm_shed.open().warm.begin()
    assert not list(warm_shed.home.warm.iterdir())
    eventually(lambda: gone(old))


def test_one_odd_job_does_not_displace_the_warm_process_but_two_do(warm_shed: Shed) -> None:
    pid = warm_shed.warm_up()
    assert warm_shed.start(warm_shed.run("odd", "pass", PYTHONHASHSEED="0")) == "cold"
    assert warm_shed.start(warm_shed.run("usual", "pass")) == "warm"
    assert warm_shed.pids() == [pid]
    warm_shed.run("odd-1", "pass", PYTHONHASHSEED="0")
    warm_shed.run("odd-2", "pass", PYTHONHASHSEED="0")
    eventually(lambda: gone(pid))
    warm_shed.warm_up()
    assert warm_shed.start(warm_shed.run("odd-3", "pass", PYTHONHASHSEED="0")) == "warm"


def test_modules_that_cannot_be_imported_are_tried_once(tmp_path: Path) -> None:
    shed = Shed(tmp_path / "shed", modules=("no_such_module",))
    children = {child.pid for child in psutil.Process().children()}
    assert shed.start(shed.run("first", "pass")) == "cold"
    [log] = shed.home.warm.glob("*/log")
    eventually(log.read_text, lambda text: "No module named 'no_such_module'" in text)
    eventually(lambda: {child.pid for child in psutil.Process().children()} - children, lambda left: not left)
    written = log.stat().st_mtime_ns
    assert shed.start(shed.run("second", "pass")) == "cold"
    assert log.stat().st_mtime_ns == written
    shed.close()


def test_the_first_gang_waits_for_the_import_and_is_forked_from_it(shed: Shed) -> None:
    pair = [
        Replica(name=f"{kind}-replica-0", type=kind, index=0, primary=kind == "master") for kind in ("master", "ps")
    ]
    launch = shed.launch("gang", "pass", replicas=tuple(pair))
    assert shed.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED, shed.texts(launch)
    assert shed.start(launch) == "warm"
    assert shed.texts(launch).count(STARTED_WARM) == 2


def test_a_gang_does_not_wait_for_an_import_that_fails_or_a_server_that_stops(tmp_path: Path) -> None:
    pair = [
        Replica(name=f"{kind}-replica-0", type=kind, index=0, primary=kind == "master") for kind in ("master", "ps")
    ]
    for name, modules, stops in (("fails", ("no_such_module",), False), ("stops", ("decimal",), True)):
        shed = Shed(tmp_path / name, modules=modules)
        if stops:
            shed.engine.warm.stop()
        launch = shed.launch("gang", "pass", replicas=tuple(pair))
        assert shed.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED, shed.texts(launch)
        assert shed.start(launch) == "cold"
        shed.close()


def test_noise_on_the_socket_does_no_harm(warm_shed: Shed) -> None:
    [path] = warm_shed.sockets()
    for noise in (b"", b"\n", b"hello\n", b'{"do": "launch"}', b"\xff" * 1000 + b"\n", b"[]\n", b"{}\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            here = os.open(path.parent, os.O_RDONLY)
            connection.connect(f"/proc/self/fd/{here}/socket")
            os.close(here)
            connection.sendall(noise)
    assert warm_shed.start(warm_shed.run("third", "pass")) == "warm"


def test_it_keeps_no_secret_no_lock_and_no_file_of_the_server(shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINSHED_TOKEN", "secret-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-2")
    with open(shed.path / "lock-of-the-server", "w") as held:
        os.set_inheritable(held.fileno(), False)
        shed.run("first", "pass", GITHUB_TOKEN="secret-3")
        pid = shed.warm_up()
        assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    kept = [link for link in links if not link.startswith(("/dev/null", "socket:", str(shed.home.warm)))]
    assert kept == []
    [path] = shed.sockets()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    look = "import os\nprint('GIVEN', os.environ.get('AWS_SECRET_ACCESS_KEY'), os.environ.get('TRAINSHED_TOKEN'))"
    done = shed.run("second", look)
    assert shed.start(done) == "warm"
    assert "GIVEN None None" in shed.texts(done)


@pytest.mark.parametrize("patience_s", [0.0, 600.0])
def test_without_a_server_it_stays_only_for_so_long(tmp_path: Path, patience_s: float) -> None:
    folder = tmp_path / "warm"
    folder.mkdir()
    ended = subprocess.Popen(["true"])
    server = [ended.pid, 1]
    ended.wait()
    spec: dict[str, Any] = {"modules": [], "server": server, "patience_s": patience_s, "idle_s": 0.0}
    (folder / "spec.json").write_text(json.dumps(spec))
    with subprocess.Popen([PYTHON, ship(tmp_path / "node") / "run.py", "warm", folder]) as process:
        if patience_s:
            eventually((folder / "socket").exists)
            assert process.poll() is None
            (folder / "socket").unlink()
        assert process.wait(_WAIT_S) == 0


def test_one_that_nobody_uses_ends(tmp_path: Path) -> None:
    server = [os.getpid(), int(stat_fields(os.getpid())[19])]
    spec: dict[str, Any] = {"modules": [], "server": server, "patience_s": 600.0, "idle_s": 0.01}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    with subprocess.Popen([PYTHON, ship(tmp_path / "node") / "run.py", "warm", tmp_path]) as process:
        assert process.wait(_WAIT_S) == 0
    assert not (tmp_path / "socket").exists()


# -- TensorFlow

GANG = """
import json, os, sys, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow.compat.v1 as tf
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
tf.disable_v2_behavior()
server = tf.train.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
if task["type"] == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=config["cluster"], worker_device="/job:chief")):
    step = tf.train.get_or_create_global_step()
    x = tf.placeholder(tf.float32, [None, 3])
    w = tf.get_variable("w", [3, 1])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean((x @ w - 1.0) ** 2), global_step=step)
with tf.train.MonitoredTrainingSession(server.target, is_chief=True) as session:
    while session.run([train, step], {x: np.ones((4, 3))})[1] < 50:
        pass
print("TRAINED", np.random.rand(), flush=True)
"""

KNOBS = """
import ctypes, importlib.util, json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
if importlib.util.find_spec("tf_keras"):
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
set_by_import = "TF2_" "BEHAVIOR"
before = set_by_import in os.environ, "tensorflow" in sys.modules
import tensorflow as tf
from tensorflow.keras import layers
import numpy as np
tf.compat.v1.train.Server({"worker": ["127.0.0.1:0"]}, job_name="worker", task_index=0)
blas = next(line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line)
library = ctypes.CDLL(blas)
names = [part + "openblas_get_num_threads" + end for part in ("scipy_", "") for end in ("64_", "")]
threads = next(getattr(library, name)() for name in names if hasattr(library, name))
pool = tf.config.threading.get_intra_op_parallelism_threads()
print("SEEN " + json.dumps({
    "before": before, "after": os.environ[set_by_import], "dense": tf.keras.layers.Dense.__module__, "blas": threads,
    "layers": layers.__name__, "sum": float(tf.reduce_sum(tf.ones([3, 3]))), "spec": tf.__spec__.name, "pool": pool,
    "traced": float(tf.function(lambda x: x * 2)(tf.constant(4.0))),
}))
"""
DRAW = "import numpy, tensorflow as tf\nprint('DRAWN', numpy.random.rand(), float(tf.random.normal([])), flush=True)"


# 2.21 shows all of this in every run.
@pytest.fixture(scope="module", params=["2.21", pytest.param("2.15", marks=pytest.mark.soak)])
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shed]:
    """A warm process of a runtime with TensorFlow, ready."""
    python = runtime_python(request.param)
    shed = Shed(tmp_path_factory.mktemp("framework") / "shed", python, CATALOGUE[request.param].warm)
    shed.env = {
        "TF_ENABLE_ONEDNN_OPTS": "1"
    }  # of which TensorFlow writes a line while it is imported, on every processor
    assert shed.start(shed.run("first", "pass")) == "cold"
    shed.warm_up()
    yield shed
    shed.close()


def _seen(texts: list[str]) -> dict[str, Any]:
    [line] = [line for line in texts if line.startswith("SEEN ")]
    seen: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return seen


@pytest.mark.timeout(900)
def test_tensorflow_has_one_thread_to_fork_from(framework: Shed) -> None:
    assert len(os.listdir(f"/proc/{framework.warm_up()}/task")) == 1


@pytest.mark.timeout(900)
def test_what_a_trainer_sets_before_it_imports_tensorflow_has_its_effect(framework: Shed) -> None:
    warm = framework.run("knobs", KNOBS, OMP_NUM_THREADS="1")
    assert STARTED_WARM in framework.texts(warm)
    assert not [line for line in framework.texts(warm) if "cpu_feature_guard" in line or "Started server" in line]
    engine, framework.engine = framework.engine, LocalEngine(framework.home, UV)
    cold = framework.run("knobs-cold", KNOBS, OMP_NUM_THREADS="1")
    framework.engine = engine
    assert framework.start(cold) == "cold"
    assert _seen(framework.texts(warm)) == _seen(framework.texts(cold))


@pytest.mark.timeout(900)
def test_a_gang_of_forks_trains_over_grpc(framework: Shed) -> None:
    ports = free_ports(2)
    cluster = {"chief": [f"127.0.0.1:{ports[0]}"], "ps": [f"127.0.0.1:{ports[1]}"]}

    def config(kind: str) -> dict[str, str]:
        return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})}

    gang = (
        Replica(name="master-replica-0", type="master", index=0, primary=True, env=config("chief")),
        Replica(name="ps-replica-0", type="ps", index=0, primary=False, env=config("ps")),
    )
    launch = framework.launch("gang", GANG, replicas=gang)
    assert framework.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED, framework.texts(launch)
    assert framework.start(launch) == "warm"
    assert framework.texts(launch).count(STARTED_WARM) == 2


@pytest.mark.timeout(900)
def test_no_two_jobs_draw_the_same_numbers(framework: Shed) -> None:
    jobs = [framework.run(f"draw-{number}", DRAW) for number in range(3)]
    assert all(STARTED_WARM in framework.texts(job) for job in jobs)
    drawn = [line.split()[1:] for job in jobs for line in framework.texts(job) if line.startswith("DRAWN")]
    assert len({number for pair in drawn for number in pair}) == 6
    assert all(any("cpu_feature_guard" in line for line in framework.texts(job)) for job in jobs)


@pytest.mark.timeout(900)
def test_a_job_that_sets_what_an_import_reads_starts_cold(framework: Shed) -> None:
    done = framework.run("odd", "pass", TF_ENABLE_ONEDNN_OPTS="0")
    assert framework.start(done) == "cold"


# -- PyTorch

TORCH_KNOBS = """
import json, os, torch
from torch.utils.data import DataLoader
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
data = torch.arange(64 * 512, dtype=torch.float32).reshape(512, 64) / 1e4
for batch in DataLoader(data, batch_size=128, num_workers=2):
    optimizer.zero_grad()
    loss = ((model(batch) - batch.mean(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
print("SEEN " + json.dumps({"loss": loss.item(), "threads": torch.get_num_threads()}))
"""
TORCH_GANG = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1000, 1000) @ torch.full((1000, 1), float(dist.get_rank() + 1))
dist.all_reduce(total)
print("SUM", total[0].item(), "OF", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def torch_shed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shed]:
    """A warm process of the runtime with PyTorch, ready."""
    shed = Shed(tmp_path_factory.mktemp("torch") / "shed", torch_python(), CATALOGUE["torch"].warm)
    assert shed.start(shed.run("first", "pass")) == "cold"
    shed.warm_up()
    yield shed
    shed.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("env", [{}, {"OMP_NUM_THREADS": "1"}], ids=["by default", "one thread"])
def test_pytorch_trains_in_a_fork_as_in_a_new_process(torch_shed: Shed, env: dict[str, str]) -> None:
    assert len(os.listdir(f"/proc/{torch_shed.warm_up()}/task")) == 1
    name = f"knobs-{len(env)}"
    warm = torch_shed.run(name, TORCH_KNOBS, **env)
    assert STARTED_WARM in torch_shed.texts(warm)
    engine, torch_shed.engine = torch_shed.engine, LocalEngine(torch_shed.home, UV)
    cold = torch_shed.run(f"{name}-cold", TORCH_KNOBS, **env)
    torch_shed.engine = engine
    assert torch_shed.start(cold) == "cold"
    assert _seen(torch_shed.texts(warm)) == _seen(torch_shed.texts(cold))


@pytest.mark.timeout(900)
def test_a_gang_of_forks_reduces_over_gloo(torch_shed: Shed) -> None:
    [port] = free_ports(1)
    gang = tuple(
        Replica(
            name=f"{kind}-replica-0",
            type=kind,
            index=0,
            primary=not rank,
            env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank, kind in enumerate(("master", "worker"))
    )
    launch = torch_shed.launch("gang", TORCH_GANG, replicas=gang)
    assert torch_shed.settle(launch, AttemptPhase.ENDED).outcome is JobState.SUCCEEDED, torch_shed.texts(launch)
    assert torch_shed.texts(launch).count(STARTED_WARM) == 2
    assert torch_shed.texts(launch).count("SUM 3000.0 OF 2") == 2


@pytest.mark.timeout(900)
def test_a_job_that_sets_what_pytorch_reads_at_import_starts_cold(torch_shed: Shed) -> None:
    assert torch_shed.start(torch_shed.run("odd", "pass", TORCH_LOGS="+dynamo")) == "cold"
