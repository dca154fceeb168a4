"""The bound on label values, and the areas of HTTP requests."""

from __future__ import annotations

from trainshed.gateway.metrics import Totals, VersionMetrics
from trainshed.services.metrics import MAX_VERSIONS, OTHER, HttpMetrics, bounded


def test_versions_beyond_the_bound_share_one_series() -> None:
    metrics = VersionMetrics()
    for number in range(MAX_VERSIONS + 20):
        for _ in range(number + 1):
            metrics.of(("p", "m", f"v{number}")).add(0.01, ok=number % 2 == 0)
    versions = bounded(metrics.totals())
    assert len(versions) == MAX_VERSIONS + 1
    assert ("p", "m", f"v{MAX_VERSIONS + 19}") in versions
    assert ("p", "m", "v0") not in versions
    assert versions[OTHER].count == sum(range(1, 21))
    assert versions[OTHER].errors == sum(range(2, 21, 2))
    assert sum(each.count for each in versions.values()) == sum(range(1, MAX_VERSIONS + 21))


def test_a_few_versions_have_no_others() -> None:
    assert bounded({("p", "m", "v1"): Totals(count=1)}) == {("p", "m", "v1"): Totals(count=1)}


def test_whatever_path_is_asked_for_the_areas_are_few() -> None:
    http = HttpMetrics()
    for path in (b"/storage/v1/b/x", b"/upload/y", b"/v1/projects/p/jobs", b"/nonsense/1", b"/nonsense/2", b"*", b"/"):
        http.add(path, 404, 0.01)
    http.add(b"/storage/v1/b/x", 200, 20.0)
    assert http.requests == {
        ("storage", "4xx"): 2,
        ("storage", "2xx"): 1,
        ("ml", "4xx"): 1,
        ("console", "4xx"): 1,
        ("other", "4xx"): 3,
    }
    assert http.seconds["storage"].counts[-1] == 1
