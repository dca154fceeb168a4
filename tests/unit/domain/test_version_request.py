"""Reading what clients send as models and versions: every field of the API is known, and nothing breaks it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.models.model import read_model, read_model_patch, read_split
from trainshed.domain.models.version_request import PATCHABLE, apply_patch, read_version, read_version_patch
from trainshed.errors import InvalidArgumentError, NotFoundError, UnimplementedError

SCHEMAS = json.loads((files("googleapiclient") / "discovery_cache" / "documents" / "ml.v1.json").read_text())["schemas"]
PREFIX = "GoogleCloudMlV1__"


def sample(schema: dict[str, Any]) -> Any:
    """A value of a schema with all its fields, filled as plainly as can be."""
    if "$ref" in schema:
        inner = SCHEMAS[schema["$ref"]]
        return {name: sample(field) for name, field in inner.get("properties", {}).items()}
    if "enum" in schema:
        return schema["enum"][1]
    if schema["type"] == "array":
        return [sample(schema["items"])]
    return {"string": "1", "integer": 1, "number": 0.5, "boolean": False, "object": {}}[schema["type"]]


def fields(name: str) -> list[tuple[str, Any]]:
    return [(field, sample(schema)) for field, schema in SCHEMAS[PREFIX + name]["properties"].items()]


@pytest.mark.parametrize(("name", "value"), fields("Version"), ids=lambda value: str(value)[:30])
def test_every_field_of_a_version_is_known(name: str, value: Any) -> None:
    read_version_patch({name: value})
    try:
        read_version({"name": "v1", "deploymentUri": "gs://b/d", name: value})
    except (InvalidArgumentError, UnimplementedError) as exc:
        assert "Unknown name" not in str(exc)


@pytest.mark.parametrize(("name", "value"), fields("Model"), ids=lambda value: str(value)[:30])
def test_every_field_of_a_model_is_known(name: str, value: Any) -> None:
    read_model_patch({name: value})
    try:
        read_model({"name": "m", name: value}, "p", now_us=1)
    except InvalidArgumentError as exc:
        assert "Unknown name" not in str(exc)


KINDS = (
    "Version",
    "Model",
    "AutoScaling",
    "ManualScaling",
    "MetricSpec",
    "ExplanationConfig",
    "IntegratedGradientsAttribution",
    "SampledShapleyAttribution",
    "RequestLoggingConfig",
)
NAMES = sorted({field for kind in KINDS for field in SCHEMAS[PREFIX + kind]["properties"]})
WORDS = st.sampled_from(["v1", "gs://b/d", "TENSORFLOW", "CPU_USAGE", "n1-standard-4", "", "a.b", "0.5", "-1"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


@given(BODIES, st.lists(st.sampled_from(PATCHABLE), max_size=3))
def test_whatever_comes_is_read_or_refused(body: dict[str, Any], paths: list[str]) -> None:
    old: dict[str, Any] = {"deploymentUri": "gs://b/d", "autoScaling": {"minNodes": 1}}
    for read in (
        lambda: read_version({"name": "v1", "deploymentUri": "gs://b/d"} | body).body,
        lambda: read_version(body),
        lambda: apply_patch(old, read_version_patch(body), paths),
        lambda: read_model({"name": "m"} | body, "p", now_us=1),
        lambda: read_split({"weights": body}),
    ):
        try:
            json.dumps(read(), default=str, allow_nan=False)
        except (InvalidArgumentError, UnimplementedError, NotFoundError) as exc:
            assert str(exc)
