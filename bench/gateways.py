"""One gateway beside two, on the same load: requests a second, and the processor time of each part for one request.

python bench/gateways.py              # about 4 minutes

It fails if a request does, also while the default version is switched.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from load import Load, ask_for_wrk, drive
from report import Row, publish
from serving import CACHE, RUNTIME, finish
from serving_models import MODELS, PROJECT, body_of, deploy, save
from trainshed.testing.processes.servers import MeasuredServer, RunningServer
from trainshed.testing.workloads.submitter import Submitter

GATEWAYS = (1, 2)
MODEL_NAMES = ("tabular", "sample")
CONCURRENCY = 64
SWITCHES = 100
REQUESTS = 100_000
CORES = (8, 32, 128)


@dataclass(frozen=True, slots=True)
class Turn:
    """One load on one server. The times are of the processor, in milliseconds for one request."""

    load: Load
    gateway_ms: float  #: of the gateways, or of the server if it is the gateway
    server_ms: float  #: of the server, if it is none
    host_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One model on one server."""

    server: RunningServer
    gateways: int
    url: str
    body: bytes
    hosts: Sequence[int]

    def drive(self, seconds: float) -> Turn:
        before = self._cpu_s()
        load = drive(self.url, self.body, concurrency=CONCURRENCY, seconds=seconds, token=self.server.token)
        used = [(now - then) / (load.rate * seconds) * 1000 for now, then in zip(self._cpu_s(), before, strict=True)]
        gateways, server, hosts = used
        return Turn(load, *((server, 0.0) if self.gateways == 1 else (gateways, server)), hosts)

    def _cpu_s(self) -> tuple[float, float, float]:
        """The processor time of gateways, server and hosts until now."""
        server = psutil.Process(self.server.pid)
        hosts = {each for pid in self.hosts for root in (psutil.Process(pid),) for each in _with_children(root)}
        return sum(map(_time_s, gateways_of(self.server))), _time_s(server), sum(map(_time_s, hosts))


def _with_children(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]


def _time_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def gateways_of(server: RunningServer) -> list[psutil.Process]:
    children = psutil.Process(server.pid).children()
    return [each for each in children if "trainshed.api.gateways.process" in each.cmdline()]


@contextmanager
def running_server(scratch: Path, gateways: int) -> Iterator[RunningServer]:
    home = scratch / f"home-{gateways}"
    home.mkdir()
    (home / "runtimes").symlink_to(CACHE / "runtimes")
    server = MeasuredServer(home, {"gateways": gateways}).start()
    try:
        yield server
    finally:
        server.stop()


def deployed(server: RunningServer, gateways: int, bucket: Submitter, name: str, model: Path) -> Part:
    """Deploy a model to a server."""
    for file in (each for each in model.rglob("*") if each.is_file()):
        bucket.upload(file, f"{name}/{file.relative_to(model)}")
    server.call("POST", f"/v1/projects/{PROJECT}/models", {"name": name})
    details: dict[str, Any] = deploy(server, bucket, model, "f32")
    return Part(
        server=server,
        gateways=gateways,
        url=f"{server.url}/v1/projects/{PROJECT}/models/{name}:predict",
        body=body_of(MODELS[name][0])(1),
        hosts=[host["pid"] for host in details["hosts"]],
    )


def measure(parts: Sequence[Part], *, rounds: int, seconds: float) -> list[list[Turn]]:
    """The turns of each part. Every second round goes the other way round."""
    found: list[list[Turn]] = [[] for _ in parts]
    for part in parts:
        part.drive(1)
    for number in range(rounds):
        for at in range(len(parts)) if number % 2 == 0 else reversed(range(len(parts))):
            found[at].append(parts[at].drive(seconds))
    return found


def median(turns: Sequence[Turn], field: str) -> float:
    return float(statistics.median(getattr(turn if hasattr(turn, field) else turn.load, field) for turn in turns))


def rows_of(name: str, found: Sequence[Sequence[Turn]]) -> list[Row]:
    """A row for each number of gateways, and one for what more cores would give."""
    rows, what = [], f"{MODELS[name][1]}, concurrency {CONCURRENCY}"
    for gateways, turns in zip(GATEWAYS, found, strict=True):
        rate, p50_ms, p99_ms, gateway_ms, server_ms, host_ms = (
            median(turns, field) for field in ("rate", "p50_ms", "p99_ms", "gateway_ms", "server_ms", "host_ms")
        )
        value = (
            f"{rate:,.0f}/s, p50 / p99 {p50_ms:.1f} / {p99_ms:.1f} ms; processor time: gateway {gateway_ms:.3f} ms, "
            f"host {host_ms:.3f} ms" + (f", server {server_ms:.3f} ms" if gateways > 1 else "")
        )
        against = "1 gateway" if gateways == 1 else f"{gateways} gateways"
        ratio = statistics.median(turn.load.rate / one.load.rate for turn, one in zip(turns, found[0], strict=True))
        rows.append(Row(what=what, value=value, against=against, ratio="" if gateways == 1 else f"{ratio:.2f}"))
    rows.append(extrapolation(what, median(found[-1], "gateway_ms"), median(found[-1], "host_ms")))
    return rows


def extrapolation(what: str, gateway_ms: float, host_ms: float) -> Row:
    """What cores would give if each request needed the same processor time there. Not measured."""
    share = gateway_ms / (gateway_ms + host_ms)
    most = [f"{cores} cores: {cores / (gateway_ms + host_ms) * 1000:,.0f}/s" for cores in CORES]
    wanted = [f"{max(1, round(cores * share))}" for cores in CORES]
    return Row(
        what=f"{what}, extrapolated",
        value=f"{'; '.join(most)}, with {', '.join(wanted)} gateways",
        against=f"1 gateway: {1000 / gateway_ms:,.0f}/s on any number",
    )


def switched(part: Part, *, seconds: float) -> Row:
    """Switch the default version under load. Raises `RuntimeError` if a request failed."""
    parent = part.url.partition(part.server.url)[2].removesuffix(":predict")
    loads: list[Load] = []
    caller = threading.Thread(
        target=lambda: loads.append(
            drive(part.url, part.body, concurrency=CONCURRENCY, seconds=seconds, token=part.server.token)
        )
    )
    caller.start()
    for number in range(SWITCHES):
        part.server.call("POST", f"{parent}/versions/{('again', 'f32')[number % 2]}:setDefault", {})
        caller.join(seconds / SWITCHES * 0.9)
    caller.join()
    if not loads:
        raise RuntimeError("Requests failed while the default version was switched.")
    count = loads[0].rate * seconds
    return Row(
        what=f"{SWITCHES} switches of the default version under load, {part.gateways} gateways",
        value=f"0 of {count:,.0f} requests failed",
        aim=f"0 of {REQUESTS:,}",
    )


def memory(server: RunningServer) -> Row:
    sizes = [each.memory_full_info() for each in gateways_of(server)]
    own, shared = (statistics.mean(getattr(size, field) for size in sizes) / (1 << 20) for field in ("uss", "rss"))
    return Row(what="memory of one more gateway", value=f"{own:.0f} MB of its own, {shared:.0f} MB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often the load is put on each server")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a load lasts")
    args = parser.parse_args()
    ask_for_wrk()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scratch = Path(folder)
        servers = [stack.enter_context(running_server(scratch, gateways)) for gateways in GATEWAYS]
        buckets = [Submitter(server, PROJECT, scratch / f"bucket-{at}") for at, server in enumerate(servers)]
        for name in MODEL_NAMES:
            model = save(name, scratch)
            parts = [
                deployed(server, gateways, bucket, name, model)
                for server, gateways, bucket in zip(servers, GATEWAYS, buckets, strict=True)
            ]
            found = measure(parts, rounds=args.rounds, seconds=args.seconds)
            rows += rows_of(name, found)
            if name == MODEL_NAMES[0]:
                parent = f"/v1/projects/{PROJECT}/models/{name}"
                wanted = {
                    "name": "again",
                    "deploymentUri": f"gs://{buckets[-1].bucket}/{name}/",
                    "runtimeVersion": RUNTIME,
                }
                finish(servers[-1], servers[-1].call("POST", f"{parent}/versions", wanted))
                rows.append(switched(parts[-1], seconds=1.3 * REQUESTS / median(found[-1], "rate")))
        rows.append(memory(servers[-1]))
    publish("gateways", rows)


if __name__ == "__main__":
    main()
