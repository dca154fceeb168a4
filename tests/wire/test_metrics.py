"""GET /metrics, as Prometheus reads it, and the dashboard that shows it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import Caller, RunningServer
from trainshed.testing.workloads.deployer import Deployer

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROJECT = "metrics"
OWN = {"project": PROJECT, "model": "m", "version": "v1"}


def scraped(server: RunningServer) -> dict[str, Metric]:
    request = urllib.request.Request(f"{server.url}/metrics", headers={"authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        text = response.read().decode()
    found = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]  # it has no types
    return {family.name: family for family in found}


def values(family: Metric, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """The samples of a name that are about this test's version."""
    for sample in family.samples:
        if sample.name == name and sample.labels.items() >= OWN.items():
            yield {key: value for key, value in sample.labels.items() if key not in OWN}, sample.value


@pytest.fixture(scope="module")
def families(framework_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Metric]:
    """The metrics after three requests to a version, one of which it fails."""
    server = framework_server
    deployer = Deployer(server, PROJECT, tmp_path_factory.mktemp("scratch"))
    deployer.deploy_routine("v1", answer="[1 / each for each in instances]")
    caller = Caller(server.url)
    path = f"{deployer.path}/versions/v1:predict"
    for instance in (1, 2, 0):
        caller("POST", path, token=server.token, body={"instances": [instance]})
    return eventually(
        lambda: scraped(server),
        lambda found: any(
            value == 3 for _, value in values(found["trainshed_host_requests"], "trainshed_host_requests_total")
        ),
        within_s=60,
    )


def test_requests_of_a_version_are_counted_with_their_latencies(families: dict[str, Metric]) -> None:
    counts = {
        labels["outcome"]: value
        for labels, value in values(families["trainshed_predictions"], "trainshed_predictions_total")
    }
    assert counts == {"ok": 2, "error": 1}
    latency = families["trainshed_prediction_latency_seconds"]
    [(_, count)] = values(latency, "trainshed_prediction_latency_seconds_count")
    assert count == 3
    buckets = [value for _, value in values(latency, "trainshed_prediction_latency_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3


def test_hosts_are_counted_and_asked_for_their_batches(families: dict[str, Metric]) -> None:
    assert list(values(families["trainshed_hosts"], "trainshed_hosts")) == [({"state": "READY"}, 1)]
    for name, expected in (("batches", 3), ("instances", 3), ("failed", 1), ("refused", 0)):
        family = families[f"trainshed_host_{name}"]
        assert list(values(family, f"trainshed_host_{name}_total")) == [({"instance": "0"}, expected)]
    [(_, memory)] = values(families["trainshed_host_memory_bytes"], "trainshed_host_memory_bytes")
    assert memory > 0


def test_the_server_as_a_whole_is_there(families: dict[str, Metric]) -> None:
    states = {sample.labels["state"] for sample in families["trainshed_jobs"].samples}
    assert states >= {"QUEUED", "RUNNING", "SUCCEEDED", "FAILED"}
    assert {sample.labels["engine"] for sample in families["trainshed_queue_wait_seconds"].samples} == {"local", "ray"}
    areas = {sample.labels["area"] for sample in families["trainshed_http_requests"].samples}
    assert {"ml", "storage"} <= areas <= {"ml", "storage", "native", "console", "logging", "other"}
    lag = families["trainshed_event_loop_lag_seconds"]
    assert any(sample.name.endswith("_count") and sample.value > 0 for sample in lag.samples)
    assert families["trainshed_disk_free_bytes"].samples[0].value > 0


def test_the_page_and_the_dashboard_name_what_there_is(families: dict[str, Metric]) -> None:
    names = {sample.name for family in families.values() for sample in family.samples}
    dashboard = json.loads((DOCS / "grafana" / "trainshed.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for text in expressions for name in re.findall(r"\btrainshed_\w+", text)}
    assert used <= names, sorted(used - names)
    documented = set(re.findall(r"`(trainshed_\w+)`", (DOCS / "metrics.md").read_text()))
    families_of = {name.removesuffix("_total") for name in documented} - {"trainshed_info"} | {"trainshed"}
    assert families_of == set(families)
