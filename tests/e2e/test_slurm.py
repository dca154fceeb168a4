"""The lines of docs/clusters.md for Slurm, typed on a real one with three nodes, which have addresses of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.node.process.ports import free_ports
from trainshed.testing.cache import RUNTIMES
from trainshed.testing.clusters.ray import ray_environment
from trainshed.testing.clusters.slurm import SlurmCluster
from trainshed.testing.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 180.0

#: Says where it runs. A replica that is told to last counts on in a file until another file says that it is enough.
TRAINER = """
import argparse, json, os, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir", type=pathlib.Path)
parser.add_argument("--last", action="store_true")
given = parser.parse_args()
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
given.job_dir.mkdir(parents=True, exist_ok=True)
address = config["cluster"][task["type"]][task["index"]]
(given.job_dir / "{type}-{index}".format(**task)).write_text(address.rpartition(":")[0])
print("cores", os.environ["OMP_NUM_THREADS"], flush=True)
count = given.job_dir / "count"
begun = int(count.read_text()) if count.exists() else 0
print("begins at", begun, "on", address.rpartition(":")[0], flush=True)
while given.last and not (given.job_dir / "enough").exists():
    begun += 1
    count.with_name("new").write_text(str(begun))
    count.with_name("new").rename(count)
    time.sleep(0.2)
peers = [given.job_dir / f"{kind}-{at}" for kind, all in config["cluster"].items() for at in range(len(all))]
while not all(peer.exists() for peer in peers):  # the end of the master ends the others
    time.sleep(0.1)
"""

#: Asks the head for its nodes, as anybody could.
STRANGER = """
import sys
from ray._raylet import GcsClient
print(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=20))
"""


def blocks(section: str) -> list[str]:
    """What stands in code in a section of the page."""
    page = (ROOT / "docs" / "clusters.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Login:
    """The login node: this machine, with a home folder that all nodes see at the same path."""

    def __init__(self, cluster: SlurmCluster, home: Path) -> None:
        self.cluster = cluster
        self.home = home
        ports = free_ports(2)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINSHED_", "RAY_"))}
        self._env |= cluster.env | {
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TRAINSHED_PROJECT": "slurm",
            "TRAINSHED_SERVER_PORT": str(ports[0]),
            "TRAINSHED_SERVER_TLS_PORT": str(ports[1]),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def types(self, lines: str) -> str:
        """What lines print that are typed into a shell in the home folder. All must end well."""
        done = subprocess.run(
            ["bash", "-eu", "-c", lines],
            env=self._env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def sees(self, line: str, words: str) -> str:
        """What a line prints once that has these words in it."""
        return eventually(lambda: self.types(f"sleep 1; {line}"), lambda said: words in said, within_s=PATIENCE_S)

    def ends_the_allocation(self) -> None:
        """Nothing of Ray's is left on a node then."""
        self.types("scancel --name ray.sh")
        eventually(self.cluster.jobs, lambda jobs: jobs == [], within_s=PATIENCE_S)
        eventually(self.cluster.processes, lambda left: left == [], within_s=PATIENCE_S)

    def counts_on(self, job: str) -> int:
        """How far a job has counted, once it goes on."""
        count = self.bucket / job / "count"
        before = _number(count)
        return eventually(lambda: _number(count), lambda now: now > before, within_s=PATIENCE_S)

    @property
    def bucket(self) -> Path:
        return self.home / ".trainshed" / "buckets" / "my-bucket"


def _number(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0


@pytest.fixture
def login(runtime_python: Path) -> Iterator[Login]:
    scratch = Path(tempfile.mkdtemp(prefix="trainshed-slurm-", dir="/var/tmp"))
    home = scratch / "home"
    for place in (home / ".trainshed", home / ".cache" / "trainshed"):
        place.mkdir(mode=0o700, parents=True)
        (place / "runtimes").symlink_to(RUNTIMES)
    (home / "ray").symlink_to(ray_environment(RUNTIMES).parents[1])
    (home / "trainer").mkdir()
    (home / "trainer" / "__init__.py").touch()
    (home / "trainer" / "task.py").write_text(TRAINER)
    with SlurmCluster(scratch) as cluster:
        made = Login(cluster, home)
        yield made
        made.types("trainshed down || true")
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_lines_for_slurm(login: Login) -> None:
    script, begin, submit = blocks("Under Slurm")
    cluster, hosts = login.cluster, [node.host for node in login.cluster.nodes]
    (login.home / "ray.sh").write_text(script)
    login.types(begin)
    assert (login.home / "ray-address").read_text() == f"{hosts[0]}:6379\n"

    # one replica on each machine
    login.types(f"trainshed buckets mb gs://my-bucket\n{submit}")
    login.sees("trainshed jobs describe slurm_job", "state: SUCCEEDED")
    assert sorted(place.read_text() for place in login.bucket.glob("slurm_job/*-[0-9]")) == hosts

    stranger = cluster.nodes[1].run([login.home / "ray" / "bin" / "python", "-c", STRANGER, f"{hosts[0]}:6379"])
    assert stranger.returncode != 0
    assert "token" in stranger.stderr

    login.types(
        "trainshed jobs submit training lasting --engine ray --package-path trainer --module-name trainer.task "
        "--region us-central1 --job-dir gs://my-bucket/lasting --runtime-version 2.21 -- --last"
    )
    login.counts_on("lasting")
    login.ends_the_allocation()
    said = login.sees("trainshed jobs describe lasting", f"The Ray cluster at {hosts[0]}:6379 has not answered since")
    assert "state: RUNNING" in said
    reached = [0, _number(login.bucket / "lasting" / "count")]

    login.types("sbatch ray.sh")
    login.counts_on("lasting")
    login.ends_the_allocation()
    reached.append(_number(login.bucket / "lasting" / "count"))

    # the head is at another address
    cluster.run("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    login.types(begin.replace("sbatch ray.sh", "sbatch --nodes=2 ray.sh; trainshed down"))
    login.counts_on("lasting")
    (login.bucket / "lasting" / "enough").touch()
    login.sees("trainshed jobs describe lasting", "state: SUCCEEDED")
    begun = re.findall(r"begins at (\d+) on (\S+)", login.types("trainshed jobs logs lasting"))
    assert [int(count) for count, _ in begun] == reached
    assert begun[-1][1] in hosts[1:]
    login.ends_the_allocation()
