"""Parts `suggest` and `points`: studies over HTTP, as clients drive them, and that no point comes twice."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from control import CLIENTS, PROJECT, Connection, a_server
from report import Row, percentiles_ms
from trainshed.testing.processes.servers import RunningServer

PARENT = f"/v1/projects/{PROJECT}/locations/us-central1"
METRIC = "score"
FINISHED = 100


def parameters(count: int) -> list[dict[str, Any]]:
    """Parameters of all types, in turn."""
    kinds: list[dict[str, Any]] = [
        {
            "type": "DOUBLE",
            "scaleType": "UNIT_LOG_SCALE",
            "doubleValueSpec": {"minValue": 1e-5, "maxValue": 1},
        },
        {"type": "INTEGER", "integerValueSpec": {"minValue": 1, "maxValue": 256}},
        {"type": "DISCRETE", "discreteValueSpec": {"values": [16, 32, 64, 128]}},
        {"type": "CATEGORICAL", "categoricalValueSpec": {"values": ["relu", "tanh", "logistic"]}},
    ]
    return [{"parameter": f"p{number}", **kinds[number % 4]} for number in range(count)]


def create(connection: Connection, study: str, specs: list[dict[str, Any]], **config: Any) -> str:
    body = {"studyConfig": {"metrics": [{"metric": METRIC, "goal": "MAXIMIZE"}], "parameters": specs, **config}}
    connection.call("POST", f"{PARENT}/studies?studyId={study}", body)
    return f"{PARENT}/studies/{study}"


def suggest(connection: Connection, study: str, client: str, count: int = 1) -> dict[str, Any]:
    body = {"clientId": client, "suggestionCount": count}
    operation: Any = connection.call("POST", f"{study}/trials:suggest", body)
    return dict(operation)


def value_of(trial: dict[str, Any]) -> float:
    """A smooth value of a trial's numbers."""
    numbers = [float(each.get("floatValue", each.get("intValue", 1))) for each in trial["parameters"]]
    return -sum((number % 1 - 0.3) ** 2 for number in numbers)


def complete(connection: Connection, trial: dict[str, Any]) -> None:
    final = {"finalMeasurement": {"metrics": [{"metric": METRIC, "value": value_of(trial)}]}}
    connection.call("POST", f"/v1/{trial['name']}:complete", final)


def fill(connection: Connection, study: str, count: int) -> None:
    """Complete trials that a search suggested."""
    for _ in range(0, count, 20):
        for trial in suggest(connection, study, "filler", min(20, count))["response"]["trials"]:
            complete(connection, trial)


def suggestions(*, rounds: int, trials: int) -> list[Row]:
    with a_server() as (server, _):
        connection = Connection(server)
        before = memory_mb(server)
        study = create(connection, "latency", parameters(6))
        fill(connection, study, FINISHED)
        seconds, done, health = [], 0, []
        for number in range(rounds):
            began = time.perf_counter()
            operation = suggest(connection, study, f"client-{number}")
            seconds.append(time.perf_counter() - began)
            name = operation["name"]
            first_get: Any = connection.call("GET", f"/v1/{name}")
            done += bool(operation["done"] and first_get["done"])
            for trial in operation["response"]["trials"]:
                connection.call("DELETE", f"/v1/{trial['name']}")  # the next one sees as many trials
            began = time.perf_counter()
            connection.call("GET", "/healthz")
            health.append(time.perf_counter() - began)
        rate, twice = many_clients(server, trials)
        after = memory_mb(server)
    return [
        Row(
            what=f"`suggest` over HTTP with {FINISHED} finished trials, p50 / p99",
            value=percentiles_ms(seconds),
            against=f"`/healthz`: {percentiles_ms(health)}",
            ratio=f"{sum(seconds) / sum(health):.0f}×",
            aim="p50 < 50 ms, p99 < 250 ms",
        ),
        Row(what="operations that are done at the first GET", value=f"{done} of {rounds}", aim="all"),
        Row(
            what=f"suggest and complete, {CLIENTS} clients on one study, {trials:,} trials",
            value=f"{rate:.1f} pairs/s, {twice} ids twice",
            aim="20/s, none",
        ),
        Row(
            what="memory for that, server and search process",
            value=f"{after - before:.0f} MB",
            against=f"the server before: {before:.0f} MB",
            aim="50 MB",
        ),
        Row(what="the core install, more for the search (NumPy)", value=f"{numpy_mb():.0f} MB", aim="60 MB"),
    ]


def many_clients(server: RunningServer, trials: int) -> tuple[float, int]:
    """Pairs a second, and how many ids were given twice."""
    study = create(Connection(server), "shared", parameters(6))
    names: Counter[str] = Counter()
    lock, left = threading.Lock(), iter(range(trials))

    def work(client: int) -> None:
        connection = Connection(server)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            [trial] = suggest(connection, study, f"client-{client}")["response"]["trials"]
            with lock:
                names[trial["name"]] += 1
            complete(connection, trial)

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    seconds = time.perf_counter() - began
    assert names.total() == trials
    return trials / seconds, sum(count - 1 for count in names.values())


def memory_mb(server: RunningServer) -> float:
    """Memory of the server and of its search process. What processes share is counted once."""
    process = psutil.Process(server.pid)
    children = [child for child in process.children() if "trainshed.search" in child.cmdline()]
    return float(sum(each.memory_full_info().pss for each in (process, *children)) / 1e6)


def numpy_mb() -> float:
    files = importlib.metadata.files("numpy") or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def repeated_points(*, searches: int) -> Row:
    """Search finite spaces of 75 points for 75 trials, so that each one is used up, and count points given twice."""
    specs = [
        {"parameter": "n", "type": "INTEGER", "integerValueSpec": {"minValue": 1, "maxValue": 5}},
        {"parameter": "d", "type": "DISCRETE", "discreteValueSpec": {"values": [1, 2, 4, 8, 16]}},
        {"parameter": "c", "type": "CATEGORICAL", "categoricalValueSpec": {"values": ["a", "b", "c"]}},
    ]
    total = twice = 0
    with a_server() as (server, _):
        connection = Connection(server)
        for number in range(searches):
            algorithm = ("GAUSSIAN_PROCESS_BANDIT", "RANDOM_SEARCH")[number % 2]
            study = create(connection, f"finite-{number}", specs, algorithm=algorithm)
            points: Counter[str] = Counter()
            while points.total() < 75:
                for trial in suggest(connection, study, "c", 5)["response"]["trials"]:
                    points[str(trial["parameters"])] += 1
                    complete(connection, trial)
            total += points.total()
            twice += sum(count - 1 for count in points.values())
    return Row(what=f"points given twice in {searches} finite spaces", value=str(twice), aim=f"0 in {total:,} trials")
