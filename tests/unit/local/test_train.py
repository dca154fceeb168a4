"""What a training without a server runs, what it is told, and what it is warned of."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home
from trainshed.errors import CannotProceedError, InvalidArgumentError, NotFoundError
from trainshed.local import interpreters, tensorboard
from trainshed.local.buckets import LocalBuckets
from trainshed.local.processes import Program
from trainshed.local.train import (
    ReplicaCounts,
    Trainer,
    check_module,
    check_ports,
    cluster_programs,
    explain_exit,
    single_program,
    warnings,
)
from trainshed.testing.processes.resources import held_port

TRAINER = Trainer(
    python=Path("/usr/bin/python"),
    module="trainer.task",
    folder=Path("/code"),
    args=("--steps", "5", "--job-dir", "out"),
)
JOB = {"job_name": "trainer.task", "args": ["--steps", "5", "--job-dir", "out"]}


def tf_config(program: Program) -> Any:
    return json.loads(program.env["TF_CONFIG"])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that could be submitted as it is."""
    folder = tmp_path / "trainer"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text('parser.add_argument("--job-dir")\n')
    (tmp_path / "setup.py").touch()
    return folder


def test_alone_it_has_a_tf_config_without_cluster() -> None:
    program = single_program(TRAINER, {"HOME": "/me"})
    assert program.argv == ("/usr/bin/python", "-m", "trainer.task", "--steps", "5", "--job-dir", "out")
    assert program.folder == Path("/code")
    assert program.env["HOME"] == "/me"
    assert "RANK" not in program.env
    assert tf_config(program) == {"job": JOB, "task": {}, "cluster": {}, "environment": "cloud"}


@pytest.mark.parametrize("primary", ["chief", "master"])
def test_distributed_each_has_its_place_in_one_cluster(primary: str) -> None:
    counts = ReplicaCounts(servers=2, workers=1, evaluators=1)
    programs = cluster_programs(TRAINER, {}, counts, start_port=27182, primary=primary)
    assert [program.name for program in programs] == [
        "master-replica-0",
        "ps-replica-0",
        "ps-replica-1",
        "worker-replica-0",
        "evaluator-replica-0",
    ]
    configs = [tf_config(program) for program in programs]
    cluster = {
        primary: ["localhost:27182"],
        "ps": ["localhost:27183", "localhost:27184"],
        "worker": ["localhost:27185"],
    }
    assert all(config["cluster"] == cluster and config["job"] == JOB for config in configs)
    assert [config["task"] for config in configs] == [
        {"type": primary, "index": 0},
        {"type": "ps", "index": 0},
        {"type": "ps", "index": 1},
        {"type": "worker", "index": 0},
        {"type": "evaluator", "index": 0},
    ]


def test_distributed_the_primary_and_the_workers_have_ranks() -> None:
    counts = ReplicaCounts(servers=1, workers=2, evaluators=1)
    programs = cluster_programs(TRAINER, {}, counts, start_port=27182, primary="chief")
    ranked = {program.name: program.env for program in programs if "RANK" in program.env}
    assert {name: env["RANK"] for name, env in ranked.items()} == {
        "master-replica-0": "0",
        "worker-replica-0": "1",
        "worker-replica-1": "2",
    }
    for env in ranked.values():
        assert (env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("3", "0")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.0.1", "27182")
        assert (env["JAX_PROCESS_ID"], env["JAX_NUM_PROCESSES"]) == (env["RANK"], "3")
        assert env["JAX_COORDINATOR_ADDRESS"] == "127.0.0.1:27182"


def test_a_role_that_nobody_has_is_not_in_the_cluster() -> None:
    counts = ReplicaCounts(servers=0, workers=1, evaluators=0)
    config = tf_config(cluster_programs(TRAINER, {}, counts, start_port=100, primary="chief")[0])
    assert config["cluster"] == {"chief": ["localhost:100"], "worker": ["localhost:101"]}


def test_a_good_package_gets_no_warning(package: Path) -> None:
    assert warnings(package, "trainer.task") == []


def test_job_dir_may_be_known_anywhere_in_the_package(package: Path) -> None:
    (package / "task.py").write_text("from trainer.flags import parse\n")
    assert len(warnings(package, "trainer.task")) == 1
    (package / "flags.py").write_text("args, _ = parser.parse_known_args()\n")
    assert warnings(package, "trainer.task") == []


@pytest.mark.parametrize(
    ("missing", "words"), [("trainer/__init__.py", "can't be submitted"), ("setup.py", "no setup.py")]
)
def test_what_would_fail_when_submitted_is_said(package: Path, missing: str, words: str) -> None:
    (package.parent / missing).unlink()
    [text] = warnings(package, "trainer.task")
    assert words in text


def test_a_trainer_that_refuses_job_dir_is_explained(package: Path) -> None:
    assert explain_exit(2, package, ("--job-dir", "out")) == ""
    (package / "task.py").write_text("parser.parse_args()\n")
    assert '"--job-dir"' in explain_exit(2, package, ("--job-dir", "out"))
    assert explain_exit(2, package, ()) == ""
    assert explain_exit(1, package, ("--job-dir", "out")) == ""


def test_a_module_that_is_not_there_is_named_with_those_that_are(package: Path) -> None:
    check_module(package, "trainer.task")
    check_module(package, "elsewhere.task")  # may be installed
    with pytest.raises(InvalidArgumentError, match=r"no module trainer\.tsk .*: trainer\.task"):
        check_module(package, "trainer.tsk")


def test_a_port_in_use_is_refused() -> None:
    with held_port() as port:
        with (
            socket.create_server(("127.0.0.1", port)),
            pytest.raises(CannotProceedError, match=f"Port {port} .*--start-port"),
        ):
            check_ports(port, 2)
        check_ports(port, 1)
    with pytest.raises(CannotProceedError, match="65535"):
        check_ports(65535, 2)


def test_addresses_become_paths_where_the_bucket_is_here(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.buckets / "mine").mkdir(parents=True)
    buckets = LocalBuckets(home)
    assert buckets.resolve("gs://mine/data/a.csv") == str(home.buckets / "mine" / "data" / "a.csv")
    assert buckets.resolve("a,gs://other/x") == "a,gs://other/x"
    assert buckets.unknown == ["gs://other/x"]
    with pytest.raises(NotFoundError, match="gs://other"):
        buckets.folder("gs://other/x")


def test_the_python_is_that_of_the_path(tmp_path: Path) -> None:
    with pytest.raises(CannotProceedError, match="--runtime-version"):
        interpreters.on_path(str(tmp_path))
    (tmp_path / "python").symlink_to(sys.executable)
    assert interpreters.on_path(os.pathsep.join([str(tmp_path), "/usr/bin"])) == tmp_path / "python"


def test_the_version_of_tensorflow_is_found_without_importing_it(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    assert interpreters.tensorflow_version(python) is None
    [site] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "tensorflow-1.15.5.dist-info").mkdir()
    (site / "tensorflow-1.15.5.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 1.15.5\n"
    )
    assert interpreters.tensorflow_version(python) == "1.15.5"


@pytest.mark.parametrize(
    ("logdir", "flag"),
    [("/a/b", "--logdir"), ("one:/a,two:/b", "--logdir_spec"), ("/a,/b", "--logdir_spec"), ("x:/a", "--logdir_spec")],
)
def test_several_folders_are_a_spec(logdir: str, flag: str) -> None:
    made = tensorboard.program(Path("/py"), logdir, {}, host="127.0.0.1", port=0)
    assert made.argv[3:5] == (flag, logdir)
