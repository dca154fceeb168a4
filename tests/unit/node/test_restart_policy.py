"""What the end of a replica means for its gang."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from trainshed.node import failure
from trainshed.node.process.exit_status import NODE_LOST, ExitStatus
from trainshed.node.supervisor import restart_policy
from trainshed.node.supervisor.restart_policy import (
    BACKOFF_S,
    END,
    FAILED,
    GO_ON,
    HOLD,
    MAX_GANG_RESTARTS,
    MAX_REPLICA_RESTARTS,
    PEER_LOSS_WINDOW_S,
    RESTART,
    RESTART_GANG,
    SUCCEEDED,
    RestartDecision,
    RestartHistory,
    decide,
)

NOW = 1000.0


def _gang(*types: str) -> list[dict[str, Any]]:
    indices = {kind: itertools.count() for kind in types}
    return [
        {"name": f"{kind}-replica-{index}", "type": kind, "index": index, "primary": kind == "master", "env": {}}
        for kind, index in ((kind, next(indices[kind])) for kind in types)
    ]


GANGS = {
    "alone": _gang("master"),
    "servers": _gang("master", "worker", "worker", "ps", "ps", "evaluator"),
    "servers without workers": _gang("master", "ps"),
    "all-reduce": _gang("master", "worker", "worker", "evaluator"),
    "watched": _gang("master", "evaluator"),
}
GROUPS = ("all-reduce",)  # the gangs whose members need each other

OK = [ExitStatus(0)]
PERMANENT = [ExitStatus(1), ExitStatus(2), ExitStatus(127), ExitStatus(128), ExitStatus(193), ExitStatus(255)]
LOST = [
    ExitStatus(None, 9),
    ExitStatus(None, 15),
    ExitStatus(None, 11),
    ExitStatus(129),
    ExitStatus(137),
    ExitStatus(192),
]


def _expected(shape: str, kind: str, past: RestartHistory, name: str, end: ExitStatus, echo: bool) -> tuple[str, str]:
    """The rules once more, as the page on training tells them: a word, and the outcome if it is the end."""
    if end in OK:
        return (END, SUCCEEDED) if kind == "master" else (GO_ON, "")
    if end in PERMANENT and not echo:
        return END, FAILED
    if end in PERMANENT and NOW - past.lost_s > 60:
        return HOLD, ""
    together = (shape in GROUPS and kind != "evaluator") or (kind == "master" and end in LOST)
    if not together and past.restarts.get(name, 0) < 5:
        return RESTART, ""
    return (RESTART_GANG, "") if past.gang_restarts < 3 else (END, FAILED)


@pytest.mark.parametrize("shape", GANGS)
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("lost_s", [float("-inf"), NOW - PEER_LOSS_WINDOW_S - 0.1, NOW - PEER_LOSS_WINDOW_S, NOW])
def test_every_end_of_every_replica_of_every_gang(shape: str, echo: bool, lost_s: float) -> None:
    ends = OK + PERMANENT + LOST
    counts, gangs = range(MAX_REPLICA_RESTARTS + 1), range(MAX_GANG_RESTARTS + 1)
    for each, end, count, restarted in itertools.product(GANGS[shape], ends, counts, gangs):
        name = each["name"]
        past = RestartHistory({name: count, "another": 5}, restarted, "another", lost_s)
        step = decide(GANGS[shape], past, name, end, echo, NOW)
        assert (step.word, step.outcome) == _expected(shape, each["type"], past, name, end, echo), (
            name,
            end.how,
            count,
        )
        assert step.delay_s == ((0, 1, 2, 4, 8)[count] if step.word == RESTART else 0)
        if step.known:
            assert (step.word, restarted) == (END, MAX_GANG_RESTARTS)


@pytest.mark.parametrize("shape", GANGS)
def test_a_replica_that_is_always_lost_ends_the_job_after_the_limits(shape: str) -> None:
    for each in GANGS[shape]:
        past = RestartHistory()
        words: list[str] = []
        while not words or words[-1] != END:
            past = past.losing(each["name"], NOW)
            step = decide(GANGS[shape], past, each["name"], ExitStatus(None, 9), False, NOW)
            past = past.after(each["name"], step)
            words.append(step.word)
            assert len(words) < 100
        together = each["primary"] or (shape in GROUPS and each["type"] != "evaluator")
        life = [] if together else [RESTART] * 5
        assert words == [*life, RESTART_GANG] * 3 + [*life, END]
        assert step.known is not None
        facts = step.known["facts"]
        assert (facts["gang_restarts"], facts["replica_restarts"] == 5) == (3, not together)
        assert set(facts) == set(failure.RESTART_FACTS)


def test_a_new_gang_begins_all_counts_again() -> None:
    past = RestartHistory({"worker-replica-0": 2}, 1).after("worker-replica-1", RestartDecision(RESTART))
    assert past.restarts == {"worker-replica-0": 2, "worker-replica-1": 1}
    whole = past.after("master-replica-0", RestartDecision(RESTART_GANG))
    assert (whole.restarts, whole.gang_restarts) == ({}, 2)
    assert whole.after("master-replica-0", RestartDecision(GO_ON)) is whole


def test_an_effect_that_comes_before_its_cause_waits_for_it() -> None:
    servers = GANGS["servers"]
    past = RestartHistory()
    assert decide(servers, past, "master-replica-0", ExitStatus(1), True, NOW).word == HOLD
    past = past.losing("ps-replica-0", NOW + 1)
    assert decide(servers, past, "master-replica-0", ExitStatus(1), True, NOW + 1).word == RESTART


def test_the_limits_are_those_of_the_page_on_training() -> None:
    assert (MAX_REPLICA_RESTARTS, MAX_GANG_RESTARTS, BACKOFF_S) == (5, 3, (0, 1, 2, 4, 8))
    assert restart_policy.CAUSE_WAIT_S <= 2
    assert PEER_LOSS_WINDOW_S == 60


def test_an_exit_is_a_code_or_a_signal() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    ended = ExitStatus.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok, ended.lost) == (3, None, False, False)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -11 $$"], {})
    ended = ExitStatus.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok, ended.lost) == (None, 11, False, True)
    assert ExitStatus(0).ok


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (ExitStatus(None, 9), "killed by signal 9"),
        (ExitStatus(137), "exited with 137, which stands for signal 9"),
        (ExitStatus(3), "exited with 3"),
        (ExitStatus(None, NODE_LOST), "lost with its node"),
    ],
)
def test_how_it_ended_in_words(end: ExitStatus, words: str) -> None:
    assert end.how == words


@pytest.mark.parametrize("shape", GANGS)
def test_after_the_loss_of_a_node_all_are_started_anew_but_for_those_whom_nobody_calls(shape: str) -> None:
    """A replica has another address on another node, and the others know the old one."""
    for replica in GANGS[shape]:
        past = RestartHistory().losing(replica["name"], NOW)
        step = decide(GANGS[shape], past, replica["name"], ExitStatus(None, NODE_LOST), False, NOW)
        assert step.word == (RESTART if replica["type"] == "evaluator" else RESTART_GANG)
    spent = RestartHistory({}, MAX_GANG_RESTARTS, "x", NOW)
    step = decide(GANGS[shape], spent, "master-replica-0", ExitStatus(None, NODE_LOST), False, NOW)
    assert (step.word, step.outcome) == (END, FAILED)
