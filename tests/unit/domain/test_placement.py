"""Whether gangs fit on machines, and what they are told if they don't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.capacity.machine_types import STANDARD, MachineType, MachineTypes
from trainshed.domain.capacity.placement import (
    GB,
    NodeCapacity,
    Resources,
    ResourceShares,
    fits,
    fits_in_total,
    largest_fitting_type,
    pending_reason,
)

amounts = st.fixed_dictionaries({"CPU": st.integers(1, 8).map(float), "memory": st.integers(1, 8).map(float)})


def cpus(*numbers: float) -> list[Resources]:
    return [{"CPU": number} for number in numbers]


@pytest.mark.parametrize(
    ("bundles", "nodes", "wanted"),
    [
        (cpus(4), cpus(4), True),
        (cpus(4), cpus(2, 2), False),  # a replica is on one machine
        (cpus(1, 3, 2, 2), cpus(4, 4), True),
        (cpus(3, 3, 2), cpus(4, 4), False),
        (cpus(0.1, 0.2), cpus(0.3), True),  # shares of cores need not add up to the last bit
        ([{"CPU": 1.0, "GPU": 1.0}], cpus(8), False),
        ([{"CPU": 1.0, "GPU": 1.0}, {"CPU": 4.0}], [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}], True),
        ([], [], True),
        (cpus(1), [], False),
    ],
)
def test_a_gang_fits_whole_or_not(bundles: list[Resources], nodes: list[Resources], wanted: bool) -> None:
    assert fits(bundles, nodes) is wanted


@given(st.lists(amounts, max_size=6), st.lists(amounts, max_size=4))
def test_what_fits_is_within_what_all_have(bundles: list[Resources], nodes: list[Resources]) -> None:
    assert fits_in_total(bundles, nodes) or not fits(bundles, nodes)
    assert not fits_in_total([*nodes, {"GPU": 1.0}], nodes)


@given(st.lists(amounts, max_size=6), st.lists(amounts, max_size=4))
def test_what_fits_needs_no_more_than_there_is(bundles: list[Resources], nodes: list[Resources]) -> None:
    if fits(bundles, nodes):
        for kind in ("CPU", "memory"):
            assert sum(each[kind] for each in bundles) <= sum(each[kind] for each in nodes) + 1e-3
        assert fits(bundles, [*nodes, {"CPU": 1.0, "memory": 1.0}])


def test_a_share_of_a_machine_is_asked_for() -> None:
    machines = MachineTypes({"own": MachineType(cpu=2, memory_gb=1, gpu=2, resources={"disk": 3, "none": 0})})
    assert ResourceShares().bundle("n1-standard-4", machines) == {"CPU": 4.0, "memory": 15 * GB}
    asked = ResourceShares(cpu=0.25, memory=0.5).bundle("own", machines)
    assert asked == {"CPU": 0.5, "memory": GB // 2, "GPU": 2, "disk": 3}


def node(cpu: float, free: float | None) -> NodeCapacity:
    return NodeCapacity(host="h", total={"CPU": cpu}, free=None if free is None else {"CPU": free})


@pytest.mark.parametrize(
    ("bundles", "nodes", "words"),
    [
        (cpus(8, 8, 8), [node(4, 4), node(4, 0)], "it needs 3 × 8 CPUs; the cluster has 2 machines with 4 CPUs"),
        (
            cpus(8, 1),
            [node(4, 4), node(2, 0)],
            "1 × 8 CPUs, 1 × 1 CPU; the cluster has 1 machine with 4 CPUs, 1 machine",
        ),
        (cpus(4), [node(4, 1.5), node(2, 0)], "free on its machines are 1.5 CPUs on 1, 0 CPUs on 1"),
        (cpus(4), [node(4, None)], "the cluster has 1 machine with 4 CPUs, some of it in use"),
        (cpus(4), [node(4, 4)], "it needs 1 × 4 CPUs, which the cluster has; it is being reserved"),
        (cpus(4), [], "it needs 1 × 4 CPUs; the cluster has no machine"),
        ([{}], [node(4, 4)], "it needs 1 × nothing"),
    ],
)
def test_a_gang_that_waits_is_told_how_it_stands(
    bundles: list[Resources], nodes: list[NodeCapacity], words: str
) -> None:
    assert words in pending_reason(bundles, nodes)


def test_the_largest_machine_type_that_would_fit_is_named() -> None:
    nodes = [NodeCapacity(host="h", total={"CPU": 4.0, "memory": 16.0 * GB}) for _ in range(2)]
    assert largest_fitting_type(2, nodes, STANDARD, ResourceShares()) == "n1-standard-4"
    assert largest_fitting_type(3, nodes, STANDARD, ResourceShares()) == "n1-standard-2"
    assert largest_fitting_type(3, nodes, STANDARD, ResourceShares(cpu=0.5)) == "n1-highcpu-4"
    assert largest_fitting_type(100, nodes, STANDARD, ResourceShares()) == ""
