"""From flags and config files to the bodies of versions, and what is said of a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from trainshed.cli import main
from trainshed.cli.models.create_version import read_config
from trainshed.cli.models.rollout import curl_line, replay_lines
from trainshed.cli.models.version_body import CHANGEABLE, CREATABLE, check_flags, version_body
from trainshed.cli.models.versions import detail_lines
from trainshed.cli.toolkit.options import Ports
from trainshed.errors import InvalidArgumentError

FLAGS: dict[str, Any] = dict.fromkeys(
    (
        *("description", "runtime_version", "python_version", "machine_type", "prediction_class", "service_account"),
        *("framework", "accelerator", "explanation_method", "num_paths", "num_integral_steps", "labels", "engine"),
        *("min_nodes", "max_nodes", "metric_targets", "batching", "precision"),
        *("image", "command", "args", "env_vars", "ports", "predict_route", "health_route"),
    )
)


def body(config: dict[str, Any] | None = None, **flags: Any) -> dict[str, Any]:
    return version_body("v1", flags=FLAGS | flags, config=config or {})


def test_the_engine_is_a_label() -> None:
    assert body(engine="ray")["labels"] == {"trainshed-engine": "ray"}
    config = {"labels": {"team": "vision", "trainshed-engine": "local"}}
    assert body(config, engine="ray")["labels"] == {"team": "vision", "trainshed-engine": "ray"}
    assert "labels" not in body()


def test_a_remote_host_is_shown_with_its_address() -> None:
    host = {"instance": 1, "state": "READY", "pid": 0, "memoryBytes": 5_000_000, "address": "10.0.0.2:12345"}
    details = {"runtime": "2.21", "hosts": [host], "version": {"state": "READY"}}
    assert detail_lines(details) == ["Host 1 is READY: at 10.0.0.2:12345, 5 MB."]


def test_nothing_given_is_a_name_alone() -> None:
    assert body() == {"name": "v1"}


def test_every_flag_has_its_field() -> None:
    assert body(
        description="d",
        runtime_version="2.21",
        python_version="3.7",
        machine_type="n1-standard-2",
        framework="scikit-learn",
        accelerator={"type": "nvidia-tesla-k80"},
        prediction_class="pkg.Predictor",
        service_account="me@example",
        labels={"a": "b"},
        min_nodes=0,
        max_nodes=3,
        metric_targets={"cpu-usage": "60"},
    ) == {
        "name": "v1",
        "description": "d",
        "runtimeVersion": "2.21",
        "pythonVersion": "3.7",
        "machineType": "n1-standard-2",
        "framework": "SCIKIT_LEARN",
        "acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_K80"},
        "predictionClass": "pkg.Predictor",
        "serviceAccount": "me@example",
        "labels": {"a": "b"},
        "autoScaling": {"minNodes": 0, "maxNodes": 3, "metrics": [{"name": "CPU_USAGE", "target": 60}]},
    }


def test_flags_win_over_the_file() -> None:
    config = {"description": "old", "manualScaling": {"nodes": 2}, "labels": {"a": "1", "b": "2"}}
    assert body(config, description="new", min_nodes=1, labels={"b": "3"}) == {
        "name": "v1",
        "description": "new",
        "autoScaling": {"minNodes": 1},
        "labels": {"a": "1", "b": "3"},
    }


def test_batching_is_one_of_the_serving_options() -> None:
    assert body(batching="exact")["servingOptions"] == {"batching": "EXACT"}
    assert body({"servingOptions": {"batching": "OFF"}}, batching="auto")["servingOptions"] == {"batching": "AUTO"}
    assert body({"servingOptions": {"batching": "OFF"}})["servingOptions"] == {"batching": "OFF"}
    assert "servingOptions" not in body()
    assert body(batching="off", precision="bf16")["servingOptions"] == {"batching": "OFF", "precision": "BF16"}


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        (
            {"explanation_method": "integrated-gradients"},
            {"integratedGradientsAttribution": {"numIntegralSteps": 50}},
        ),
        (
            {"explanation_method": "sampled-shapley", "num_paths": 10},
            {"sampledShapleyAttribution": {"numPaths": 10}},
        ),
        ({"explanation_method": "xrai", "num_integral_steps": 7}, {"xraiAttribution": {"numIntegralSteps": 7}}),
    ],
)
def test_explanations_are_asked_for_by_their_method(flags: dict[str, Any], config: dict[str, Any]) -> None:
    check_flags(FLAGS | flags)
    assert body(**flags)["explanationConfig"] == config


@pytest.mark.parametrize("flags", [{"num_paths": 5}, {"explanation_method": "xrai", "num_paths": 5}])
def test_a_number_for_another_method_is_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match="only valid with"):
        check_flags(FLAGS | flags)


def test_containers_are_asked_for_by_gclouds_flags() -> None:
    made = body(
        image="example/predictor:1.0",
        command=("serve", "--fast"),
        args=("a",),
        env_vars={"A": "1", "B": ""},
        ports=(9000, 9001),
        predict_route="/p",
        health_route="/h",
    )
    assert made == {
        "name": "v1",
        "container": {
            "image": "example/predictor:1.0",
            "command": ["serve", "--fast"],
            "args": ["a"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
            "ports": [{"containerPort": 9000}, {"containerPort": 9001}],
        },
        "routes": {"predict": "/p", "health": "/h"},
    }


def test_flags_win_over_the_container_of_the_file() -> None:
    config = {"container": {"image": "old", "args": ["a"]}, "routes": {"predict": "/p", "health": "/h"}}
    assert body(config, image="new", health_route="/ok") == {
        "name": "v1",
        "container": {"image": "new", "args": ["a"]},
        "routes": {"predict": "/p", "health": "/ok"},
    }


@pytest.mark.parametrize("flag", ["command", "args", "env_vars", "ports", "predict_route", "health_route"])
def test_flags_of_containers_need_an_image(flag: str) -> None:
    with pytest.raises(click.UsageError, match=f"--{flag.replace('_', '-')} is only valid with --image"):
        version_body("v1", flags=FLAGS | {flag: {} if flag == "env_vars" else ()}, config={})


@pytest.mark.parametrize("text", ["0", "65536", "http", "80,x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a port"):
        Ports().convert(text, None, None)


@pytest.mark.parametrize("targets", [{"cpu-usage": "high"}, {"speed": "60"}])
def test_a_metric_that_is_not_known_is_refused(targets: dict[str, str]) -> None:
    with pytest.raises(click.UsageError, match="--metric-targets"):
        body(metric_targets=targets)


def test_numbers_that_are_versions_stay_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("runtimeVersion: 1.10\npythonVersion: 3.10\nlabels:\n  run: 007\nmanualScaling:\n  nodes: 2\n")
    assert read_config(file, CREATABLE) == {
        "runtimeVersion": "1.10",
        "pythonVersion": "3.10",
        "labels": {"run": "007"},
        "manualScaling": {"nodes": 2},
    }


@pytest.mark.parametrize(
    ("text", "allowed", "message"),
    [
        ("foo: 1", CREATABLE, r"Invalid field \[foo\] in configuration file \[.*\]\. Allowed fields: \[autoScaling, "),
        ("requestLoggingConfig: {}", CREATABLE, r"Invalid field \[requestLoggingConfig\]"),
        ("deploymentUri: gs://b/m", CHANGEABLE, r"Invalid field \[deploymentUri\]"),
        ("container: {image: x}", CHANGEABLE, "Invalid field .container."),
        ("manualScaling: {nodes: 1}\nautoScaling: {minNodes: 1}", CREATABLE, "Only one of"),
        ("- a list", CREATABLE, "must hold a Version"),
        ("a: [", CREATABLE, "Failed to parse YAML"),
    ],
)
def test_a_config_file_that_makes_no_sense(tmp_path: Path, text: str, allowed: Any, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError, match=message):
        read_config(file, allowed)


def test_the_curl_line_keeps_the_token_out_and_quotes_the_rest() -> None:
    line = curl_line("http://127.0.0.1:8470/v1/projects/p/models/m:predict", '{"instances": ["it\'s"]}')
    assert line.splitlines() == [
        "curl -X POST \\",
        '    -H "Authorization: Bearer $(trainshed auth print-access-token)" \\',
        '    -H "Content-Type: application/json" \\',
        """    --data '{"instances": ["it'"'"'s"]}' \\""",
        "    http://127.0.0.1:8470/v1/projects/p/models/m:predict",
    ]


def test_a_replay_shows_what_changed_and_how_fast_it_was() -> None:
    latency = {"before": {"p50": 1.0, "p99": 2.04}, "after": {"p50": 0.5, "p99": 1.0}}
    example = {"instance": {"x": [1] * 200}, "before": {"y": 1}, "after": {"y": 2}}
    report = {"compared": 20, "complete": True, "changed": 5, "examples": [example] * 5, "latencyMs": latency}
    lines = replay_lines(report)
    assert lines[0] == "Compared 20 requests: 5 answers changed."
    assert len(lines) == 1 + 3 * 3 + 1
    assert lines[1].startswith('  instance: {"x": [1, 1,')
    assert lines[1].endswith("...")
    assert lines[2:4] == ['  before: {"y": 1}', '  after: {"y": 2}']
    assert lines[-1] == "Latency in ms: p50 1.0 -> 0.5, p99 2.0 -> 1.0"


def test_a_replay_of_nothing_says_how_to_log_requests() -> None:
    [line] = replay_lines({"compared": 0, "complete": True, "changed": 0, "examples": [], "latencyMs": {}})
    assert "trainshed versions update --help" in line


def test_what_is_told_of_a_version_is_a_sentence_each() -> None:
    parity = {"difference": 2e-07, "within": True, "message": "14 requests are answered as by TensorFlow."}
    host = {"instance": 0, "pid": 7, "state": "READY", "memoryBytes": 69_603_328, "ageSeconds": 1.0}
    ready = {"version": {"state": "READY"}, "runtime": "2.21", "detail": "OpenVINO 2026.4.1", "log": "noise"}
    invariance = {"difference": 2e-07, "rows": 65, "message": "Requests are batched."}
    precision = {"name": "bf16", "difference": 0.01, "agreement": 1.0, "rows": 65, "message": "It computes in bf16."}
    served = ready | {"parity": parity, "invariance": invariance, "precision": precision, "hosts": [host]}
    assert detail_lines(served | {"notes": ["Note."], "progress": ""}) == [
        "Served by OpenVINO 2026.4.1 in runtime 2.21.",
        "14 requests are answered as by TensorFlow.",
        "Requests are batched.",
        "It computes in bf16.",
        "Host 0 is READY: process 7, 70 MB.",
        "Note.",
    ]
    scaling = {"minHosts": 1, "maxHosts": 4, "hosts": 2, "inFlight": 11, "waitsForMemory": False}
    by_load = "By load it has 1 to 4 hosts, and 2 now: 11 requests are in flight."
    assert detail_lines(ready | {"scaling": scaling})[1:] == [by_load]
    held = detail_lines(ready | {"scaling": scaling | {"waitsForMemory": True}})
    assert held[1:] == [f"{by_load} More are wanted, but don't fit into memory."]
    refused = {"difference": None, "within": False, "message": "It does not do strings."}
    assert detail_lines(ready | {"parity": refused})[1] == "Not served by OpenVINO. It does not do strings."
    failed = {"version": {"state": "FAILED"}, "runtime": "2.21", "log": "Traceback\nKeyError: 1\n", "hosts": []}
    assert detail_lines(failed) == ["The end of its log:\nTraceback\nKeyError: 1"]
    contained = {"version": {"state": "READY"}, "detail": "the container example:1 (abc)", "runtime": ""}
    assert detail_lines(contained) == ["Served by the container example:1 (abc)."]
    assert detail_lines(ready, log=True)[-1] == "The end of its log:\nnoise"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("models", "create", "m", "--region", "a", "--regions", "b"), "At most one of --region | --regions"),
        (("models", "split", "m", "v1"), "must be VERSION=PERCENT, such as v1=90"),
        (("models", "split", "m", "v1=100", "--end"), "--end goes without weights"),
        (("versions", "list"), "Missing option '--model'"),
        (("predict", "--model", "m"), "Exactly one of (--json-instances | --json-request | --text-instances)"),
        (("versions", "update", "v", "--model", "m", "--sampling-percentage", "1"), "must be given together"),
        (("versions", "create", "v", "--model", "m", "--staging-bucket", "gs://b/x"), "it must be a bucket alone"),
        (("local", "predict", "--json-instances", "x"), "Missing option '--model-dir'"),
    ],
)
def test_a_bad_command_line_is_exit_status_2(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = CliRunner(env={"TRAINSHED_HOME": str(tmp_path)}).invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
