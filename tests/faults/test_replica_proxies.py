"""A remote gang on real processes: supervisor, replica proxies, node agents, replicas. Only Ray is faked."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainshed.domain.jobs.failure import Failure
from trainshed.domain.jobs.failure_text import error_message
from trainshed.node.process.exit_status import NODE_LOST
from trainshed.node.remote import workspace
from trainshed.node.remote.replica_proxy import GangAddresses
from trainshed.testing.clusters.gangs import GangRun, alive, wait_until
from trainshed.testing.eventually import eventually
from trainshed.testing.fakes.local_bridge import LocalBridge

MASTER, WORKER, PS = "master-replica-0", "worker-replica-0", "ps-replica-0"


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBridge]:
    monkeypatch.setenv("TRAINSHED_NODE_CACHE", str(tmp_path / "cache"))
    bridge = LocalBridge(tmp_path, tmp_path / "cache")
    bridge.start()
    yield bridge
    bridge.close()


@pytest.fixture
def attempt(tmp_path: Path, bridge: LocalBridge) -> Iterator[GangRun]:
    with GangRun(tmp_path, bridge.path) as made:
        yield made


def reason(end: dict[str, Any]) -> str:
    return error_message(Failure.parse(end["failure"]), "j")


def test_a_gang_runs_with_addresses_that_its_nodes_chose(attempt: GangRun, bridge: LocalBridge) -> None:
    attempt.launch("print('hello from', NAME); print('trouble', file=sys.stderr); wait()", MASTER, WORKER)
    starts = attempt.started(2)
    assert {name for name, _, _ in starts} == {MASTER, WORKER}
    clusters = [cluster for _, _, cluster in starts]
    assert clusters[0] == clusters[1]
    addresses = clusters[0]["master"] + clusters[0]["worker"]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d{5}", address) for address in addresses)
    assert len(set(addresses)) == 2
    wait_until(lambda: {sample["r"] for sample in attempt.samples()} == {MASTER, WORKER}, attempt)
    assert all(sample["rss"] > 1 << 20 for sample in attempt.samples())
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    said = attempt.lines(WORKER)
    assert "hello from worker-replica-0" in said and "trouble" in said
    wait_until(lambda: not bridge.actors, attempt)
    replicas = attempt.folder.parent / "cache" / "replicas"
    wait_until(lambda: not [path for path in replicas.glob("*/*") if path.name != ".lock"], attempt)


def test_what_a_lost_machine_kept_is_removed_when_something_starts_there(attempt: GangRun) -> None:
    cache = attempt.folder.parent / "cache"
    lost = Path(workspace.replica_folder(str(cache), "trainshed/p/lost/1", MASTER), "0.0")
    os.close(workspace.create(str(lost), {"cache": str(cache)}))
    (lost / "work").mkdir()
    (lost / "work" / "checkpoint").write_text("what it had got to")
    attempt.launch("wait()", MASTER)
    attempt.started(1)
    assert not lost.parents[2].exists()
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"


@pytest.mark.parametrize("how, words", [(3, "exited with a non-zero status of 3"), (-11, "killed by signal 11")])
def test_it_ends_as_the_replica_ended(attempt: GangRun, how: int, words: str) -> None:
    attempt.launch("print('last output', file=sys.stderr); wait()", MASTER)
    attempt.end(how)
    end = attempt.ended()
    assert end["outcome"] == "FAILED"
    message = reason(end)
    assert words in message and "last output" in message
    assert [event["event"] for event in attempt.journal()][2:5] == ["replica_started", "running", "replica_exited"]
    exits = [event for event in attempt.journal() if event["event"] == "replica_exited"]
    assert (exits[0]["code"], exits[0]["signal"]) == ((how, None) if how > 0 else (None, -how))


def test_a_cancelled_replica_has_its_grace_time(attempt: GangRun) -> None:
    saves = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved', flush=True), sys.exit(0)))\n"
    attempt.launch(f"{saves}note('saves')\nwait()", MASTER, grace_s=90.0)
    wait_until((attempt.signs / "saves").exists, attempt)
    attempt.cancel()
    assert attempt.ended()["outcome"] == "CANCELLED"
    assert "saved" in attempt.lines(MASTER)


def test_a_replica_that_ignores_sigterm_is_killed_with_all_that_it_started(attempt: GangRun) -> None:
    hides = (
        "hidden = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    )
    attempt.launch(
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{hides}note('starts', 'hidden', hidden.pid, {{}})\nwait()",
        MASTER,
        grace_s=0.5,
    )
    pids = [pid for _, pid, _ in attempt.started(2)]
    attempt.cancel()
    assert attempt.ended()["outcome"] == "CANCELLED"
    wait_until(lambda: not any(map(alive, pids)), attempt)


def test_a_killed_stand_in_means_a_killed_replica_and_a_new_one_at_the_same_address(attempt: GangRun) -> None:
    attempt.launch("wait()", MASTER, PS)
    before = attempt.started(2)
    [old] = [pid for name, pid, _ in before if name == PS]
    attempt.kill(PS, signal.SIGKILL)
    again = attempt.started(3)[2]
    assert again[0] == PS
    assert again[2] == before[0][2]
    assert not alive(old)
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"


def _has_told(attempt: GangRun, line: str) -> bool:
    return line in attempt.lines(MASTER)


def _count(attempt: GangRun) -> int:
    """How many lines the replica has written, whether they have arrived or not."""
    return (attempt.signs / "count").read_text().count("\n")


def _has_counted(attempt: GangRun, number: int) -> bool:
    return _count(attempt) >= number


def test_no_line_is_lost_or_repeated_while_the_bridge_comes_and_goes(attempt: GangRun, bridge: LocalBridge) -> None:
    counts = (
        "for number in range(400):\n    print('line', number, flush=True)\n    note('count')\n    time.sleep(0.01)\n"
    )
    attempt.launch(counts, MASTER)
    attempt.started(1)
    for number in (10, 100, 200, 300):
        wait_until(partial(_has_told, attempt, f"line {number}"), attempt)
        bridge.stop()
        wait_until(partial(_has_counted, attempt, _count(attempt) + 20), attempt)
        bridge.start()
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    told = [line for line in attempt.lines(MASTER) if line.startswith("line ")]
    assert told == [f"line {number}" for number in range(400)]
    assert len(attempt.starts()) == 1


@pytest.mark.fault("F38")
def test_a_replica_whose_start_was_not_answered_is_found_again_and_runs_once(
    attempt: GangRun, bridge: LocalBridge
) -> None:
    bridge.lost_responses = 3
    attempt.launch("print('it runs'); wait()", MASTER, WORKER)
    attempt.started(2)
    wait_until(partial(_has_told, attempt, "it runs"), attempt)
    assert bridge.lost_responses == 0
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    assert sorted(name for name, _, _ in attempt.starts()) == [MASTER, WORKER]
    assert [event for event in attempt.journal() if event["event"].endswith("_restarted")] == []


def test_a_gang_that_starts_during_an_outage_waits_for_the_bridge(attempt: GangRun, bridge: LocalBridge) -> None:
    bridge.stop()
    attempt.launch("", MASTER)
    wait_until(lambda: "replica_started" in [event["event"] for event in attempt.journal()], attempt)
    assert not attempt.starts()
    bridge.start()
    assert attempt.ended()["outcome"] == "SUCCEEDED"


def test_after_the_loss_of_a_node_the_whole_gang_starts_again_at_other_addresses(
    attempt: GangRun, bridge: LocalBridge
) -> None:
    attempt.launch("wait()", MASTER, PS)
    before = attempt.started(2)
    bridge.lost[PS] = True
    after = attempt.started(4)[2:]
    assert {name for name, _, _ in after} == {MASTER, PS}
    assert after[0][2] == after[1][2] != before[0][2]
    assert not any(alive(pid) for _, pid, _ in before)
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"
    [restart] = [event for event in attempt.journal() if event["event"] == "gang_restarted"]
    assert (restart["code"], restart["signal"]) == (None, NODE_LOST)
    assert "The node a-node with ps-replica-0 was lost." in attempt.lines(PS)


def test_nothing_is_left_when_the_process_that_holds_the_agent_is_gone(attempt: GangRun, bridge: LocalBridge) -> None:
    attempt.launch("wait()", MASTER)
    [(_, pid, _)] = attempt.started(1)
    [actor] = bridge.actors.values()
    actor.lose()
    wait_until(lambda: not alive(pid), attempt)
    again = attempt.started(2)[1]
    assert again[1] != pid
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"


def test_a_replica_that_nobody_asks_for_ends_when_its_lease_does(attempt: GangRun, bridge: LocalBridge) -> None:
    attempt.launch("wait()", MASTER, lease_s=6.0)
    [(_, pid, _)] = attempt.started(1)
    created_s = psutil.Process(pid).create_time()
    wait_until(lambda: time.time() > created_s + 8 or not alive(pid), attempt)
    assert alive(pid), "a bridge asks for it all the time"
    bridge.stop()
    wait_until(lambda: not alive(pid), attempt)
    bridge.start()
    assert attempt.started(2)[1][1] != pid
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"


def test_a_killed_agent_takes_its_replica_with_it(attempt: GangRun, bridge: LocalBridge) -> None:
    attempt.launch("wait()", MASTER)
    [(_, pid, _)] = attempt.started(1)
    [actor] = bridge.actors.values()
    inner = int(Path(f"/proc/{actor.agent_pid}/task/{actor.agent_pid}/children").read_text().split()[0])
    os.kill(inner, signal.SIGKILL)
    wait_until(lambda: not alive(pid), attempt)
    attempt.started(2)
    attempt.end(0)
    assert attempt.ended()["outcome"] == "SUCCEEDED"


def test_the_death_of_the_supervisor_is_the_death_of_the_replicas(attempt: GangRun) -> None:
    attempt.launch("wait()", MASTER, WORKER)
    pids = [pid for _, pid, _ in attempt.started(2)]
    os.kill(attempt.journal()[0]["pid"], signal.SIGKILL)
    assert attempt.ended()["event"] == "lost"
    wait_until(lambda: not any(map(alive, pids)), attempt)


def test_a_runtime_that_cannot_be_built_fails_the_job_with_the_reason(attempt: GangRun, bridge: LocalBridge) -> None:
    (attempt.folder.parent / "cache" / "runtimes" / "test-0" / "complete.json").unlink()
    attempt.launch("wait()", MASTER, python="3.99")
    end = attempt.ended()
    assert end["outcome"] == "FAILED"
    assert "The runtime can't be built on this node" in reason(end)
    assert attempt.starts() == []


def test_a_job_runs_from_when_its_first_replica_does_and_not_while_a_node_gets_ready(attempt: GangRun) -> None:
    runtime = attempt.folder.parent / "cache" / "runtimes" / "test-0"
    (runtime / "complete.json").unlink()
    with open(f"{runtime}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as someone who builds it
        attempt.launch("wait()", MASTER, PS, max_running_s=2.5)
        told = "Runtime test is being built on this node. Waiting for it."
        wait_until(lambda: all(told in attempt.lines(name) for name in (MASTER, PS)), attempt)
        eventually(lambda: time.time() - attempt.journal()[-1]["t"] / 1e6, lambda waited_s: waited_s > 2.7)
        assert [event["event"] for event in attempt.journal()][-1] == "replica_started"
        (runtime / "complete.json").write_text("{}")
    assert attempt.ended()["outcome"] == "CANCELLED"
    assert "maxRunningTime of 2.5 s" in reason(attempt.ended())
    assert {name for name, _, _ in attempt.starts()} == {MASTER, PS}
    assert [event["event"] for event in attempt.journal()].count("running") == 1


def test_an_address_book_gives_what_was_entered(tmp_path: Path) -> None:
    book = GangAddresses(str(tmp_path / "book"))
    assert book.of(MASTER) is None
    book.enter(MASTER, "10.0.0.1", "2222")
    assert book.of(MASTER) == ("10.0.0.1", "2222")
