"""Reads searches from JSON, for the process that searches. orjson writes them: they are dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal, MeasuredPoint, SearchRequest, SearchResult
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Space


def read_request(document: Mapping[str, Any]) -> SearchRequest:
    """The request that orjson made this document of."""
    return SearchRequest(
        space=Space(parameters=tuple(map(_parameter, document["space"]["parameters"]))),
        algorithm=Algorithm(document["algorithm"]),
        goals=tuple(map(Goal, document["goals"])),
        observations=tuple(map(_measured, document["observations"])),
        pending=tuple(document["pending"]),
        count=document["count"],
        seed=document["seed"],
        number=document["number"],
    )


def read_result(document: Mapping[str, Any]) -> SearchResult:
    """The result that orjson made this document of."""
    return SearchResult(points=tuple(document["points"]), exhausted=document["exhausted"])


def _parameter(document: Mapping[str, Any]) -> ParameterSpec:
    children = tuple(
        ChildParameter(parent_values=tuple(child["parent_values"]), parameter=_parameter(child["parameter"]))
        for child in document["children"]
    )
    return ParameterSpec(
        name=document["name"],
        kind=ParameterKind(document["kind"]),
        minimum=document["minimum"],
        maximum=document["maximum"],
        values=tuple(document["values"]),
        scale=Scale(document["scale"]),
        children=children,
    )


def _measured(document: Mapping[str, Any]) -> MeasuredPoint:
    values = document["values"]
    return MeasuredPoint(point=document["point"], values=None if values is None else tuple(values))
