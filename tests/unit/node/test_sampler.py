"""CPU and memory of real processes, and lines that come further apart the longer a job runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from trainshed.node.process.sampler import MAX_INTERVAL_S, SampleWriter, sample_interval_s
from trainshed.node.process.tree import children
from trainshed.testing.eventually import eventually

SUPERVISOR = """
import json, os, subprocess, sys, time
from trainshed.node.process import tree
from trainshed.node.process.sampler import SampleWriter

tree.become_subreaper()
told, tell = os.pipe()
replica = '''
import os, subprocess, sys, time
hold = "import time; held = bytearray(40 << 20); held[::4096] = b'x' * len(held[::4096]); "
child = subprocess.Popen([sys.executable, "-c", hold + "print(1, flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.read(1)
orphan = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r])" % (hold + "time.sleep(600)")
subprocess.run([sys.executable, "-c", orphan], check=True)
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
os.write(int(sys.argv[1]), b".")
time.sleep(600)
'''
process = subprocess.Popen([sys.executable, "-c", replica, str(tell)], pass_fds=[tell], start_new_session=True)
os.read(told, 1)
sampler = SampleWriter(sys.argv[1])
deadline = time.monotonic() + 90
now, seen = 0.0, {"processes": 0, "rss": 0}
while (seen["processes"] < 3 or seen["rss"] <= 80 << 20) and time.monotonic() < deadline:  # the orphan's memory grows
    now += 10.0
    sampler.sample({"master-replica-0": process.pid}, now)
    seen = json.loads(open(sys.argv[1]).readlines()[-1])
    time.sleep(0.05)
tree.kill_descendants()
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_replica_is_its_whole_tree_with_those_that_lost_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    script = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), str(path)]
    subprocess.run(script, check=True, timeout=180)
    found = lines(path)
    assert {line["r"] for line in found} == {"master-replica-0"}
    assert found[0]["cpu"] * found[0]["span"] >= 0.3
    assert found[-1]["processes"] == 3
    assert found[-1]["rss"] > 80 << 20


def test_a_line_a_second_at_first_and_fewer_later(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    sampler = SampleWriter(str(path))
    pids = {"master-replica-0": os.getpid()}
    for second in range(60):
        sampler.sample(pids, 100.0 + second)
    assert len(lines(path)) == 60
    for second in range(60):
        sampler.sample(pids, 100.0 + 5 * 3600 + second)
    later = lines(path)[61:]
    assert 10 <= len(later) <= 13
    assert later[-1]["span"] == 5.0
    assert sample_interval_s(7 * 24 * 3600) == MAX_INTERVAL_S


def test_a_new_copy_of_a_replica_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    sampler = SampleWriter(str(path))
    busy = (
        "import time\nwhile time.process_time() < 0.6: pass\nprint(bytearray(40 << 20).count(0), flush=True)\ninput()"
    )
    for second, code in enumerate((busy, "print(1, flush=True); input()")):
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as copy:
            assert copy.stdout is not None
            copy.stdout.readline()
            sampler.sample({"worker-replica-0": copy.pid}, 1.0 + second)
            copy.communicate(b"\n")
    first, later = lines(path)
    assert (first["processes"], later["processes"]) == (1, 1)
    assert first["cpu"] >= 0.5 > later["cpu"] >= 0


def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    SampleWriter(str(path)).sample({"worker-replica-0": gone.pid}, 1.0)
    assert [(line["rss"], line["processes"]) for line in lines(path)] == [(0, 0)]


def test_what_runs_a_container_is_not_a_part_of_it(tmp_path: Path) -> None:
    inner = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sleep", "60"]
    outer = [sys.executable, "-c", f"import subprocess; subprocess.run({inner!r})"]
    with subprocess.Popen(outer) as runner, subprocess.Popen(["sleep", "60"]) as client:
        try:
            [unshare] = eventually(lambda: children(runner.pid))
            [first] = eventually(lambda: children(unshare))
            for name, inside, pids in (
                ("all", False, [runner]),
                ("below", True, [runner]),
                ("elsewhere", True, [client]),
            ):
                (tmp_path / name).mkdir()
                if name == "elsewhere":  # as with Docker: its container is not below its client
                    (tmp_path / name / "master-replica-0.pid").write_text(str(first))
                sampler = SampleWriter(str(tmp_path / name / "samples.jsonl"), inside=inside)
                sampler.sample({"master-replica-0": pids[0].pid}, 10.0)
        finally:
            runner.kill()
            client.kill()
            os.kill(unshare, signal.SIGKILL)
    counts = {name: lines(tmp_path / name / "samples.jsonl")[0]["processes"] for name in ("all", "below", "elsewhere")}
    assert counts == {"all": 3, "below": 1, "elsewhere": 1}
