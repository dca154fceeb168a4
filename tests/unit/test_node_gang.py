"""What the end of a replica means for its gang."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from trainshed.node.supervisor import restart_policy as gang
from trainshed.node.supervisor.restart_policy import (
    BACK_OFF_S,
    ECHO_S,
    END,
    FAILED,
    GANG_RESTARTS,
    GO_ON,
    HOLD,
    NODE_LOST,
    REPLICA_RESTARTS,
    RESTART,
    RESTART_GANG,
    SUCCEEDED,
    Exit,
    History,
    Step,
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

OK = [Exit(0)]
PERMANENT = [Exit(1), Exit(2), Exit(127), Exit(128), Exit(193), Exit(255)]
LOST = [Exit(None, 9), Exit(None, 15), Exit(None, 11), Exit(129), Exit(137), Exit(192)]


def _expected(shape: str, kind: str, past: History, name: str, end: Exit, echo: bool) -> tuple[str, str]:
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
@pytest.mark.parametrize("lost_s", [float("-inf"), NOW - ECHO_S - 0.1, NOW - ECHO_S, NOW])
def test_every_end_of_every_replica_of_every_gang(shape: str, echo: bool, lost_s: float) -> None:
    ends = OK + PERMANENT + LOST
    counts, gangs = range(REPLICA_RESTARTS + 1), range(GANG_RESTARTS + 1)
    for each, end, count, restarted in itertools.product(GANGS[shape], ends, counts, gangs):
        name = each["name"]
        past = History({name: count, "another": 5}, restarted, "another", lost_s)
        step = decide(GANGS[shape], past, name, end, echo, NOW)
        assert (step.word, step.outcome) == _expected(shape, each["type"], past, name, end, echo), (
            name,
            end.how,
            count,
        )
        assert step.delay_s == ((0, 1, 2, 4, 8)[count] if step.word == RESTART else 0)
        if step.message:
            assert (step.word, restarted) == (END, GANG_RESTARTS)


@pytest.mark.parametrize("shape", GANGS)
def test_a_replica_that_is_always_lost_ends_the_job_after_the_limits(shape: str) -> None:
    for each in GANGS[shape]:
        past = History()
        words: list[str] = []
        while not words or words[-1] != END:
            past = past.losing(each["name"], NOW)
            step = decide(GANGS[shape], past, each["name"], Exit(None, 9), False, NOW)
            past = past.after(each["name"], step)
            words.append(step.word)
            assert len(words) < 100
        together = each["primary"] or (shape in GROUPS and each["type"] != "evaluator")
        life = [] if together else [RESTART] * 5
        assert words == [*life, RESTART_GANG] * 3 + [*life, END]
        assert "restarted 3 times" in step.message
        assert ("restarted 5 times" in step.message) == (not together)


def test_a_new_gang_begins_all_counts_again() -> None:
    past = History({"worker-replica-0": 2}, 1).after("worker-replica-1", Step(RESTART))
    assert past.restarts == {"worker-replica-0": 2, "worker-replica-1": 1}
    whole = past.after("master-replica-0", Step(RESTART_GANG))
    assert (whole.restarts, whole.gang_restarts) == ({}, 2)
    assert whole.after("master-replica-0", Step(GO_ON)) is whole


def test_an_effect_that_comes_before_its_cause_waits_for_it() -> None:
    servers = GANGS["servers"]
    past = History()
    assert decide(servers, past, "master-replica-0", Exit(1), True, NOW).word == HOLD
    past = past.losing("ps-replica-0", NOW + 1)
    assert decide(servers, past, "master-replica-0", Exit(1), True, NOW + 1).word == RESTART


def test_the_limits_are_those_of_the_page_on_training() -> None:
    assert (REPLICA_RESTARTS, GANG_RESTARTS, BACK_OFF_S) == (5, 3, (0, 1, 2, 4, 8))
    assert gang.HOLD_S <= 2
    assert ECHO_S == 60


def test_an_exit_is_a_code_or_a_signal() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    ended = Exit.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok, ended.lost) == (3, None, False, False)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -11 $$"], {})
    ended = Exit.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok, ended.lost) == (None, 11, False, True)
    assert Exit(0).ok


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Exit(None, 9), "killed by signal 9"),
        (Exit(137), "exited with 137, which stands for signal 9"),
        (Exit(3), "exited with 3"),
        (Exit(None, NODE_LOST), "lost with its node"),
    ],
)
def test_how_it_ended_in_words(end: Exit, words: str) -> None:
    assert end.how == words


@pytest.mark.parametrize("shape", GANGS)
def test_after_the_loss_of_a_node_all_are_started_anew_but_for_those_whom_nobody_calls(shape: str) -> None:
    """A replica has another address on another node, and the others know the old one."""
    for replica in GANGS[shape]:
        past = History().losing(replica["name"], NOW)
        step = decide(GANGS[shape], past, replica["name"], Exit(None, NODE_LOST), False, NOW)
        assert step.word == (RESTART if replica["type"] == "evaluator" else RESTART_GANG)
    spent = History({}, GANG_RESTARTS, "x", NOW)
    step = decide(GANGS[shape], spent, "master-replica-0", Exit(None, NODE_LOST), False, NOW)
    assert (step.word, step.outcome) == (END, FAILED)
