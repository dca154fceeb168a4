"""Versions that are containers: what is asked of them, and what they find in their environment."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.domain.models.version import Version
from trainshed.domain.models.version_container import (
    aip_environment,
    container_of,
    expand_variables,
    model_folder,
    resolve_command,
)
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.models.version_request import read_version
from trainshed.errors import InvalidArgumentError


def version(**body: Any) -> Version:
    request = read_version({"name": "v1", "container": {"image": "example/predictor:1.0"}, **body})
    return Version(
        project="p", model="m", id=request.id, body=request.body, details=VersionDetails(runtime=""), created_us=0
    )


def test_a_container_needs_no_files_and_has_defaults() -> None:
    made = version()
    container = container_of(made)
    assert container is not None
    assert (container.image, container.command, container.args, container.env) == ("example/predictor:1.0", (), (), ())
    assert (container.predict, container.health) == ("/v1/models/m/versions/v1:predict", "/v1/models/m/versions/v1")
    assert container.port == 0
    assert model_folder(made) == ""


def test_what_is_given_is_taken() -> None:
    made = version(
        container={
            "image": "p@sha256:abc",
            "command": ["serve"],
            "args": ["--quiet"],
            "env": [{"name": "A", "value": "1"}, {"name": "B"}],
            "ports": [{"container_port": 9000}, {"containerPort": 9001}],
        },
        routes={"predict": "/answer?fast=1", "health": "/ok"},
        deploymentUri="gs://mine/models/1/",
    )
    container = container_of(made)
    assert container is not None
    assert (container.command, container.args) == (("serve",), ("--quiet",))
    assert container.env == (("A", "1"), ("B", ""))
    assert container.port == 9000
    assert (container.predict, container.health) == ("/answer?fast=1", "/ok")
    assert model_folder(made) == "/gcs/mine/models/1"


def test_the_variables_are_those_of_ai_platform() -> None:
    made = version(deploymentUri="gs://mine/models/1", machineType="n1-standard-4", routes={"health": "/ok"})
    container = container_of(made)
    assert container is not None
    assert aip_environment(made, container, number=42) == {
        "AIP_FRAMEWORK": "CUSTOM_CONTAINER",
        "AIP_HEALTH_ROUTE": "/ok",
        "AIP_MACHINE_TYPE": "n1-standard-4",
        "AIP_MODE": "PREDICTION",
        "AIP_MODE_VERSION": "1.0.0",
        "AIP_MODEL_NAME": "m",
        "AIP_PREDICT_ROUTE": "/v1/models/m/versions/v1:predict",
        "AIP_PROJECT_NUMBER": "42",
        "AIP_STORAGE_URI": "/gcs/mine/models/1",
        "AIP_VERSION_NAME": "v1",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A) and $(B)", "1 and $(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("costs $5", "costs $5"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
    ],
)
def test_references_are_replaced_as_kubernetes_does(text: str, value: str) -> None:
    assert expand_variables(text, {"A": "1"}) == value


def test_later_variables_may_refer_to_earlier_ones_and_all_words_to_all() -> None:
    container = container_of(
        version(
            container={
                "image": "i",
                "command": ["serve", "$(LATE)"],
                "args": ["--port=$(AIP_HTTP_PORT)"],
                "env": [{"name": "LATE", "value": "$(EARLY)"}, {"name": "EARLY", "value": "$(LATE)!"}],
            }
        )
    )
    assert container is not None
    env, command, args = resolve_command(container, {"AIP_HTTP_PORT": "8080"})
    assert env == {"AIP_HTTP_PORT": "8080", "LATE": "$(EARLY)", "EARLY": "$(EARLY)!"}
    assert command == ["serve", "$(EARLY)"]
    assert args == ["--port=8080"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"container": {"args": ["x"]}}, "version.container.image"),
        ({"container": {"image": "--privileged"}}, "version.container.image"),
        ({"container": {"image": "two words"}}, "version.container.image"),
        ({"container": {"image": "i", "command": [""]}}, "version.container.command"),
        ({"container": {"image": "i", "args": ["a\0b"]}}, "version.container.args"),
        ({"container": {"image": "i", "ports": [{"containerPort": 0}]}}, "version.container.ports"),
        ({"container": {"image": "i", "ports": [{"containerPort": 65536}]}}, "version.container.ports"),
        ({"container": {"image": "i", "env": [{"name": "1A"}]}}, "version.container.env"),
        ({"container": {"image": "i", "env": [{"name": "A=B"}]}}, "version.container.env"),
        ({"container": {"image": "i", "env": [{"name": "AIP_MODE", "value": "x"}]}}, "version.container.env"),
        ({"container": {"image": "i", "env": [{"name": "A"}, {"name": "A"}]}}, "version.container.env"),
        ({"container": {"image": "i", "env": [{"name": "A", "value": "a\0"}]}}, "version.container.env"),
        ({"container": {"image": "i", "shell": "sh"}}, "version.container"),
        ({"routes": {"predict": "predict"}}, "version.routes.predict"),
        ({"routes": {"health": "/a b"}}, "version.routes.health"),
        ({"routes": {"health": "/a\r\nHost: x"}}, "version.routes.health"),
        ({"framework": "TENSORFLOW"}, "version.framework"),
        ({"runtimeVersion": "2.21"}, "version.runtime_version"),
        ({"predictionClass": "a.B", "packageUris": ["gs://b/p.tar.gz"]}, "version.package_uris"),
        ({"explanationConfig": {"sampledShapleyAttribution": {}}}, "version.explanation_config"),
        ({"servingOptions": {"batching": "EXACT"}}, "version.serving_options"),
    ],
)
def test_what_can_not_be_served_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        version(**body)
    assert caught.value.field == field


def test_routes_go_with_a_container() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read_version({"name": "v1", "deploymentUri": "gs://b/m", "routes": {"predict": "/p"}})
    assert caught.value.field == "version.routes"
