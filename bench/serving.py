"""Prediction: the whole server against other model servers, and against the bound of what the machine can do.

python bench/serving.py                          # everything, about 20 minutes; installs the others on the first run
python bench/serving.py --peers none --rounds 5  # Trainshed and the bound alone
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from load import Load, ask_for_wrk, drive
from report import Row, publish
from trainshed.node.process.ports import free_ports
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.uv import find_uv
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / "peers"
CACHE = ROOT / ".cache"
PROJECT = "bench-serving"
RUNTIME = "2.21"
START_TIMEOUT_S = 180.0
SHAPES = ((1, 1), (1, 16), (1, 64), (32, 1), (32, 16), (32, 64))  #: instances a request, concurrency
AIMS = {(1, 1): "0.88 of the bound", (1, 16): "0.95 of the bound", (1, 64): "0.95 of the bound"}

Body = Callable[[int], bytes]


def rows_of(count: int) -> list[list[float]]:
    """Pixels, with as many digits as real ones have."""
    return [[round((number * 7919 + pixel * 31) % 256 / 255, 6) for pixel in range(784)] for number in range(count)]


def as_instances(count: int) -> bytes:
    return json.dumps({"instances": rows_of(count)}).encode()


def as_tensor(count: int) -> bytes:
    """A body of the Open Inference Protocol, for Triton and MLServer."""
    flat = [value for row in rows_of(count) for value in row]
    return json.dumps(
        {"inputs": [{"name": "inputs", "shape": [count, 784], "datatype": "FP32", "data": flat}]}
    ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A server of one model, in an environment of its own."""

    name: str
    script: str
    requires: tuple[str, ...]
    path: str
    body: Body
    python: str = "3.11"
    arguments: tuple[str, ...] = ()  #: after the model and the port


BOUND = System(
    name="the bound in f32",
    script="bound.py",
    requires=("openvino", "uvicorn", "uvloop", "httptools", "orjson", "numpy"),
    path="/",
    body=as_instances,
)
OTHERS = (
    System(
        name="Triton",
        script="triton_tensorflow.py",
        requires=("nvidia-pytriton", "tensorflow-cpu"),
        path="/v2/models/mnist/infer",
        body=as_tensor,
        python="/usr/bin/python3.11",  # it loads the system's libpython3.11, which fits no other build of Python
    ),
    System(
        name="MLServer",
        script="mlserver_tensorflow.py",
        requires=("mlserver", "tensorflow-cpu"),
        path="/v2/models/mnist/infer",
        body=as_tensor,
    ),
    System(
        name="KServe",
        script="kserve_tensorflow.py",
        requires=("kserve", "tensorflow-cpu"),
        path="/v1/models/mnist:predict",
        body=as_instances,
    ),
    System(
        name="FastAPI + TensorFlow",
        script="fastapi_tensorflow.py",
        requires=("fastapi", "uvicorn[standard]", "tensorflow-cpu"),
        path="/predict",
        body=as_instances,
    ),
)


def interpreter() -> Path:
    """Of the runtime that serves, which is built on the first run."""
    return Runtimes(CACHE / "runtimes", find_uv()).ensure(RUNTIME, lambda fraction, text: None)


@dataclass(frozen=True, slots=True)
class Target:
    """A running system."""

    name: str
    url: str
    body: Body
    token: str
    first_answer_s: float
    processes: Callable[[], Sequence[psutil.Process]]

    def memory_mb(self) -> float:
        return float(sum(process.memory_info().rss for process in self.processes()) / 1e6)


@dataclass(frozen=True, slots=True)
class Measured:
    name: str
    first_answer_s: float
    memory_mb: float
    loads: Mapping[tuple[int, int], Load]


def environment(system: System) -> Path:
    """The interpreter of the system's own environment, which is made on the first run."""
    folder = CACHE / "bench" / Path(system.script).stem
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        sys.stderr.write(f"Installing {system.name} ...\n")
        uv = str(find_uv())
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", system.python, str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *system.requires], check=True)
        (folder / "ready").touch()
    return python


@contextmanager
def running(system: System, model: Path, scratch: Path) -> Iterator[Target]:
    python = environment(system)
    [port] = free_ports(1)
    folder = scratch / "-".join([Path(system.script).stem, *system.arguments, model.name])
    folder.mkdir()
    url = f"http://127.0.0.1:{port}{system.path}"
    with open(folder / "log", "wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            [python, PEERS / system.script, model, str(port), *system.arguments],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_MODEL": str(model), "PYTHONPATH": str(PEERS)},
            start_new_session=True,
        )
    try:
        try:
            first = first_answer_s(url, system.body(1), began, alive=lambda: process.poll() is None)
        except RuntimeError as exc:
            raise RuntimeError(f"{exc}\n{(folder / 'log').read_text()[-3000:]}") from exc
        root = psutil.Process(process.pid)
        yield Target(system.name, url, system.body, "", first, lambda: [root, *root.children(recursive=True)])
    finally:
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def first_answer_s(url: str, body: bytes, began: float, *, alive: Callable[[], bool], token: str = "") -> float:
    """Poll until there is a successful response."""
    while alive() and time.perf_counter() - began < START_TIMEOUT_S:
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        if token:
            request.add_header("authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
                return time.perf_counter() - began
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.01)
    raise RuntimeError(f"{url} did not answer.")


@contextmanager
def trainshed(model: Path, scratch: Path) -> Iterator[Target]:
    """The whole server with authentication, and a version created on it."""
    home = scratch / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(CACHE / "runtimes")
    server = MeasuredServer(home).start()
    try:
        bucket = Submitter(server, PROJECT, scratch / "trainers")
        for file in model.rglob("*"):
            if file.is_file():
                bucket.upload(file, f"mnist/{file.relative_to(model)}")
                bucket.upload(file, f"other/{file.relative_to(model)}")
        bucket.upload(PEERS / "model.py", "other/model.py")  # other files, so that what was found of them is not reused
        server.call("POST", f"/v1/projects/{PROJECT}/models", {"name": "mnist"})
        create_version(server, bucket, "warm_up", folder="other")  # the runtime's warm process comes up behind it
        time.sleep(15)
        began = time.perf_counter()
        create_version(server, bucket, "v1")
        url = f"{server.url}/v1/projects/{PROJECT}/models/mnist/versions/v1:predict"
        first = first_answer_s(url, as_instances(1), began, alive=lambda: True, token=server.token)
        yield Target("Trainshed", url, as_instances, server.token, first, lambda: gateway_and_host(server))
    finally:
        server.stop()


def create_version(server: RunningServer, bucket: Submitter, name: str, *, folder: str = "mnist") -> None:
    """Of the model `mnist` in the bucket's project. Returns when it is READY."""
    body: dict[str, Any] = {"name": name, "deploymentUri": f"gs://{bucket.bucket}/{folder}/", "runtimeVersion": RUNTIME}
    path = f"/v1/projects/{bucket.project}/models/mnist/versions"
    operation = server.call("POST", path, body | {"framework": "TENSORFLOW"})
    finish(server, operation)


def finish(server: RunningServer, operation: dict[str, Any]) -> None:
    """Wait for an operation. Raises `RuntimeError` if it fails."""
    while not operation.get("done"):
        time.sleep(0.02)
        operation = server.call("GET", f"/v1/{operation['name']}")
    if "error" in operation:
        raise RuntimeError(str(operation["error"]))


def gateway_and_host(server: RunningServer) -> list[psutil.Process]:
    details = server.call("GET", f"/trainshed/v1/projects/{PROJECT}/models/mnist/versions/v1")
    return [psutil.Process(server.pid), *(psutil.Process(host["pid"]) for host in details["hosts"])]


def measure(
    targets: Sequence[Target], *, rounds: int, seconds: float, shapes: Sequence[tuple[int, int]] = SHAPES
) -> list[Measured]:
    """Medians; the targets take turns, so that a noisy moment hits all of them."""
    loads: dict[tuple[str, tuple[int, int]], list[Load]] = {}
    for instances, concurrency in shapes:
        for target in targets:
            drive(target.url, target.body(instances), concurrency=concurrency, seconds=1, token=target.token)
            settle(target)
        for _ in range(rounds):
            for target in targets:
                load = drive(
                    target.url,
                    target.body(instances),
                    concurrency=concurrency,
                    seconds=seconds,
                    token=target.token,
                )
                settle(target)
                loads.setdefault((target.name, (instances, concurrency)), []).append(load)
                sys.stderr.write(f"{target.name}, {instances} x {concurrency}: {load.rate:,.0f}/s\n")
    return [
        Measured(
            target.name,
            target.first_answer_s,
            target.memory_mb(),
            {shape: middle(loads[target.name, shape]) for shape in shapes},
        )
        for target in targets
    ]


def settle(target: Target) -> None:
    """Wait until it is done with what a load left behind: most servers go on with requests whose clients have gone, and
    would do so at the cost of the next in turn.
    """
    first_answer_s(target.url, target.body(1), time.perf_counter(), alive=lambda: True, token=target.token)
    busy = True
    while busy:
        before = cpu_s(target)
        time.sleep(0.2)
        busy = cpu_s(target) - before > 0.05


def cpu_s(target: Target) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in target.processes()))


def middle(loads: Sequence[Load]) -> Load:
    return Load(*(statistics.median(getattr(each, name) for each in loads) for name in ("rate", "p50_ms", "p99_ms")))


def table(ours: Measured, bound: Measured, peers: Sequence[Measured]) -> list[Row]:
    rows: list[Row] = []
    for shape in SHAPES:
        instances, concurrency = shape
        what = f"{'1 instance' if instances == 1 else f'{instances} instances'} a request, concurrency {concurrency}"
        for each in (ours, bound, *peers):
            load = each.loads[shape]
            ratio = "" if each is ours else f"{ours.loads[shape].rate / load.rate:.2f}"
            aim = "" if each is ours else AIMS.get(shape, "") if each is bound else "2.00 if it is the best"
            value = f"{load.rate:,.0f}/s, p50 / p99 {load.p50_ms:.1f} / {load.p99_ms:.1f} ms"
            rows.append(Row(what=what, value=value, against=each.name, ratio=ratio, aim=aim))
    for each in (ours, bound, *peers):
        what = "`versions create` to the first answer" if each is ours else "start to the first answer"
        rows.append(Row(what=what, value=f"{each.first_answer_s:.1f} s", against=each.name, aim="2 s" * (each is ours)))
    for each in (ours, bound, *peers):
        aim = "300 MB" if each is ours else ""
        what = "memory of gateway and host" if each is ours else "memory"
        rows.append(Row(what=what, value=f"{each.memory_mb:,.0f} MB", against=each.name, aim=aim))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each load is put on Trainshed and the bound")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a load lasts")
    names = [system.name for system in OTHERS]
    parser.add_argument("--peers", nargs="*", default=names, help=f"of: {', '.join(names)}; `none` for none of them")
    args = parser.parse_args()
    ask_for_wrk()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder)
        model = scratch / "model"
        subprocess.run(
            [interpreter(), PEERS / "model.py", model], check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
        )
        peers = [
            measured
            for system in OTHERS
            if system.name in args.peers
            for measured in one_alone(system, model, scratch, seconds=args.seconds)
        ]
        targets = [
            stack.enter_context(trainshed(model, scratch)),
            stack.enter_context(running(BOUND, model, scratch)),
        ]
        ours, bound = measure(targets, rounds=args.rounds, seconds=args.seconds)
    publish("serving", table(ours, bound, peers))


def one_alone(system: System, model: Path, scratch: Path, *, seconds: float) -> list[Measured]:
    with running(system, model, scratch) as target:
        return measure([target], rounds=1, seconds=seconds)


if __name__ == "__main__":
    main()
