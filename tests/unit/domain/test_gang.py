"""Scale tiers become gangs, and gangs become TF_CONFIG."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainshed.domain.jobs.gang import (
    ReplicaAddress,
    accelerators,
    common_environment,
    gang,
    loopback_addresses,
    machine_types,
    placeholder_addresses,
    primary_key,
    replica_environment,
    shortfall,
    tf_config,
)
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import Training

CUSTOM = {"scaleTier": "CUSTOM"} | dict.fromkeys(
    ("masterType", "workerType", "parameterServerType", "evaluatorType"), "n1-standard-4"
)


def training(**changes: Any) -> Training:
    return Training.parse({"pythonModule": "trainer.task", "args": ["--x"], "runtimeVersion": "2.1", **changes})


def job_of(given: Training, *, runtime: str = "2.15") -> Job:
    return Job(project="shed", id="j1", workload=given, runtime=runtime, created_us=1)


def counts(given: Training) -> dict[str, int]:
    found: dict[str, int] = {}
    for replica in gang(given):
        found[replica.type] = found.get(replica.type, 0) + 1
    return found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"master": 1}),
        ({"scaleTier": "BASIC"}, {"master": 1}),
        ({"scaleTier": "STANDARD_1"}, {"master": 1, "worker": 4, "ps": 3}),
        ({"scaleTier": "PREMIUM_1"}, {"master": 1, "worker": 19, "ps": 11}),
        (CUSTOM, {"master": 1}),
        (
            CUSTOM | {"workerCount": "2", "parameterServerCount": "1", "evaluatorCount": "1"},
            {"master": 1, "worker": 2, "ps": 1, "evaluator": 1},
        ),
    ],
)
def test_a_tier_has_its_replicas(given: dict[str, Any], wanted: dict[str, int]) -> None:
    assert counts(training(**given)) == wanted


def test_replicas_have_names_and_one_of_them_decides() -> None:
    members = gang(training(scaleTier="STANDARD_1"))
    assert [member.name for member in members if member.primary] == ["master-replica-0"]
    assert members[0].primary
    assert [member.name for member in members if member.type == "ps"] == [
        "ps-replica-0",
        "ps-replica-1",
        "ps-replica-2",
    ]


@pytest.mark.parametrize(
    ("asked", "runtime", "use_chief", "key"),
    [
        ("1.2", "1.15", False, "master"),
        ("1.15", "1.15", False, "master"),
        ("2.0", "2.15", False, "master"),
        ("2.1", "2.15", False, "chief"),
        ("2.15", "2.15", False, "chief"),
        ("2.21", "2.21", False, "chief"),
        ("1.15", "2.15", False, "master"),  # the trainer was written for what was asked for
        ("1.15", "1.15", True, "chief"),
        ("", "2.21", False, "chief"),
        ("", "1.15", False, "master"),
        ("python", "python", False, "chief"),
    ],
)
def test_the_master_is_called_as_the_trainer_expects(asked: str, runtime: str, use_chief: bool, key: str) -> None:
    given = training(runtimeVersion=asked, useChiefInTfConfig=use_chief)
    assert primary_key(given, runtime=runtime) == key


def test_tf_config_of_a_gang() -> None:
    given = training(**CUSTOM, workerCount="2", parameterServerCount="1", evaluatorCount="1", runtimeVersion="1.15")
    members = gang(given)
    addresses = loopback_addresses(members, [2222, 2223, 2224, 2225])
    cluster = {
        "master": ["127.0.0.1:2222"],
        "worker": ["127.0.0.1:2223", "127.0.0.1:2224"],
        "ps": ["127.0.0.1:2225"],
    }
    tasks = []
    for member in members:
        config = tf_config(job_of(given), given, member, addresses)
        assert config["cluster"] == cluster
        assert config["environment"] == "cloud"
        tasks.append((config["task"]["type"], config["task"]["index"]))
    assert tasks == [("master", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]


def test_the_environment_of_a_replica() -> None:
    given = training(region="us-central1", packageUris=["gs://b/p.tar.gz"])
    [master] = gang(given)
    job = job_of(given)
    env = common_environment(job, given, cpus=3)
    env |= replica_environment(job, given, master, {"master-replica-0": ReplicaAddress("127.0.0.1", "2222")})
    config = json.loads(env["TF_CONFIG"])
    assert config["cluster"] == {"chief": ["127.0.0.1:2222"]}
    assert config["task"] == {"type": "chief", "index": 0, "cloud": "shed"}
    assert config["job"]["python_module"] == "trainer.task"
    assert config["job"]["package_uris"] == ["gs://b/p.tar.gz"]
    assert (env["CLOUD_ML_JOB_ID"], env["CLOUD_ML_PROJECT_ID"], env["OMP_NUM_THREADS"]) == ("j1", "shed", "3")
    assert env["TRAINSHED_REPLICA"] == "master-replica-0"
    assert all(isinstance(value, str) for value in env.values())


def test_cluster_spec_calls_the_first_replica_master_and_holds_the_job_as_text() -> None:
    given = training(scaleTier="STANDARD_1")
    members = gang(given)
    addresses = loopback_addresses(members, range(2222, 2230))
    env = replica_environment(job_of(given), given, members[0], addresses)
    spec = json.loads(env["CLUSTER_SPEC"])
    assert json.loads(env["TF_CONFIG"])["task"]["type"] == "chief"
    assert spec["task"]["type"] == "master"
    assert {role: len(hosts) for role, hosts in spec["cluster"].items()} == {"master": 1, "worker": 4, "ps": 3}
    assert json.loads(spec["job"])["python_module"] == "trainer.task"
    assert spec["open_ports"] == list(range(2222, 2230))


def test_pytorch_and_jax_count_the_master_and_the_workers() -> None:
    given = training(**CUSTOM, workerCount="2", parameterServerCount="1")
    members = gang(given)
    addresses = loopback_addresses(members, [2222, 2223, 2224, 2225])
    envs = {member.name: replica_environment(job_of(given), given, member, addresses) for member in members}
    ranks = {name: (env["RANK"], env["WORLD_SIZE"]) for name, env in envs.items() if "RANK" in env}
    assert ranks == {"master-replica-0": ("0", "3"), "worker-replica-0": ("1", "3"), "worker-replica-1": ("2", "3")}
    for name in ranks:
        env = envs[name]
        assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["LOCAL_RANK"]) == ("127.0.0.1", "2222", "0")
        assert (env["LOCAL_WORLD_SIZE"], env["ROLE_NAME"]) == ("1", "default")  # as torchrun: a process on each node
        assert env["GROUP_RANK"] == env["ROLE_RANK"] == env["RANK"]
        assert env["GROUP_WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == env["WORLD_SIZE"]
        assert not [variable for variable in env if variable.startswith("TORCHELASTIC_")]
        assert (env["JAX_COORDINATOR_ADDRESS"], env["JAX_NUM_PROCESSES"]) == ("127.0.0.1:2222", "3")
        assert env["JAX_PROCESS_ID"] == env["RANK"]


@pytest.mark.parametrize(
    ("given", "cpus", "words"),
    [
        ({}, 4, ""),
        ({}, 2, "BASIC stands for 1 machine with 4 cores in all; here its replica has the 2 cores of this machine."),
        (
            {"scaleTier": "STANDARD_1"},
            2,
            "STANDARD_1 stands for 8 machines with 52 cores in all; "
            "here its 8 replicas share the 2 cores of this machine.",
        ),
        (CUSTOM | {"workerCount": "1"}, 8, ""),
    ],
)
def test_a_machine_with_less_than_the_tier_promises_is_said(given: dict[str, Any], cpus: int, words: str) -> None:
    assert shortfall(training(**given), cpus=cpus) == words


def test_a_gang_needs_a_port_for_each_that_listens() -> None:
    with pytest.raises(ValueError, match="zip"):
        loopback_addresses(gang(training(scaleTier="STANDARD_1")), [1, 2])


@pytest.mark.parametrize(("asked", "key"), [({}, "master"), ({"useChiefInTfConfig": True}, "chief")])
def test_in_a_container_the_master_is_called_what_the_job_says(asked: dict[str, Any], key: str) -> None:
    given = Training.parse({"masterConfig": {"imageUri": "i"}, "workerCount": "1", **CUSTOM, **asked})
    assert primary_key(given, runtime="container") == key
    master, worker = gang(given)
    addresses = loopback_addresses([master, worker], [1, 2])
    told = replica_environment(job_of(given, runtime="container"), given, master, addresses)
    assert set(json.loads(told["TF_CONFIG"])["cluster"]) == {key, "worker"}
    assert set(json.loads(told["CLUSTER_SPEC"])["cluster"]) == {"master", "worker"}


def test_addresses_that_are_not_known_yet_are_words_for_text_and_whole_strings_for_numbers() -> None:
    given = training(**CUSTOM | {"workerCount": "1", "evaluatorCount": "1"})
    members = gang(given)
    env = replica_environment(job_of(given), given, members[1], placeholder_addresses(members))
    master, worker = (
        "@host:master-replica-0@:@port:master-replica-0@",
        "@host:worker-replica-0@:@port:worker-replica-0@",
    )
    assert json.loads(env["TF_CONFIG"])["cluster"] == {"chief": [master], "worker": [worker]}
    assert env["JAX_COORDINATOR_ADDRESS"] == master
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("@host:master-replica-0@", "@port:master-replica-0@")
    filled = env["CLUSTER_SPEC"].replace('"@port:master-replica-0@"', "7").replace('"@port:worker-replica-0@"', "8")
    assert json.loads(filled)["open_ports"] == [7, 8]
    assert json.loads(filled)["cluster"]["worker"] == [worker]


def test_each_replica_has_the_machine_type_of_its_role() -> None:
    assert machine_types(training(scaleTier="STANDARD_1")) == {
        "master-replica-0": "n1-highcpu-8",
        **{f"worker-replica-{number}": "n1-highcpu-8" for number in range(4)},
        **{f"ps-replica-{number}": "n1-standard-4" for number in range(3)},
    }


def test_each_replica_has_the_accelerators_of_its_role() -> None:
    t4 = {"acceleratorConfig": {"count": "2", "type": "NVIDIA_TESLA_T4"}}
    gang = training(
        scaleTier="CUSTOM", masterType="n1-standard-4", workerType="n1-standard-4", workerCount="2", workerConfig=t4
    )
    assert accelerators(gang) == {"worker-replica-0": 2, "worker-replica-1": 2}
    assert accelerators(training(scaleTier="BASIC_GPU")) == {}
    assert machine_types(training(scaleTier="BASIC_GPU")) == {"master-replica-0": "standard_gpu"}
