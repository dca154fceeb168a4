"""Searches as JSON documents, for the process that searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainshed.domain.tuning.scales import Scale
from trainshed.domain.tuning.search import Algorithm, Goal, MeasuredPoint, SearchRequest, SearchResult
from trainshed.domain.tuning.space import ChildParameter, ParameterKind, ParameterSpec, Space


def request_document(request: SearchRequest) -> dict[str, Any]:
    return asdict(request)


def read_request(document: Mapping[str, Any]) -> SearchRequest:
    """The inverse of `request_document`, after a way through JSON."""
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


def result_document(result: SearchResult) -> dict[str, Any]:
    return asdict(result)


def read_result(document: Mapping[str, Any]) -> SearchResult:
    """The inverse of `result_document`, after a way through JSON."""
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
