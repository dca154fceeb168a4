"""Gangs: the replicas of a scale tier, and the environment of each replica, TF_CONFIG included."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from trainshed.domain.capacity.machine_types import STANDARD, MachineTypes
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.training import ScaleTier, Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.json_fields import snake_keys

MASTER = "master"
WORKER = "worker"
PS = "ps"
EVALUATOR = "evaluator"

#: tier -> number of replicas and machine type by role; CUSTOM comes from the request
_TIERS: Mapping[ScaleTier, Mapping[str, tuple[int, str]]] = {
    ScaleTier.BASIC: {MASTER: (1, "n1-standard-4")},
    ScaleTier.BASIC_GPU: {MASTER: (1, "standard_gpu")},
    ScaleTier.STANDARD_1: {MASTER: (1, "n1-highcpu-8"), WORKER: (4, "n1-highcpu-8"), PS: (3, "n1-standard-4")},
    ScaleTier.PREMIUM_1: {MASTER: (1, "n1-highcpu-16"), WORKER: (19, "n1-highcpu-16"), PS: (11, "n1-highmem-8")},
}


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica listens. Either part may be a placeholder until the gang starts."""

    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """One replica of a gang. The master is the primary: its exit ends the job."""

    type: str  #: master, worker, ps or evaluator; the primary is `master`, whatever TF_CONFIG calls it
    index: int

    @property
    def name(self) -> str:
        return f"{self.type}-replica-{self.index}"

    @property
    def primary(self) -> bool:
        return self.type == MASTER


def _roles(training: Training) -> Mapping[str, tuple[int, str]]:
    if training.scale_tier is not ScaleTier.CUSTOM:
        return _TIERS[training.scale_tier]
    counts = {
        MASTER: 1,
        WORKER: training.worker_count,
        PS: training.parameter_server_count,
        EVALUATOR: training.evaluator_count,
    }
    return {role: (count, training.machine_types[role]) for role, count in counts.items() if count}


def gang(workload: Workload) -> tuple[ReplicaSpec, ...]:
    """All replicas of the job: the master, then workers, parameter servers and evaluators by index."""
    roles = _roles(workload) if isinstance(workload, Training) else {MASTER: (1, "")}
    return tuple(ReplicaSpec(type=role, index=index) for role, (count, _) in roles.items() for index in range(count))


def machine_type_of(training: Training, role: str) -> str:
    """The machine type of a role that the job has."""
    return _roles(training)[role][1]


def machine_types(workload: Workload) -> dict[str, str]:
    """The machine type of each replica, by name. Empty for a batch prediction."""
    roles = _roles(workload) if isinstance(workload, Training) else {}
    return {replica.name: roles[replica.type][1] if roles else "" for replica in gang(workload)}


def accelerators(workload: Workload) -> dict[str, int]:
    """The number of extra GPUs by replica name, beside those of the machine type. Replicas without any are left out."""
    counts = workload.accelerators if isinstance(workload, Training) else {}
    return {replica.name: counts[replica.type] for replica in gang(workload) if replica.type in counts}


def shortfall(training: Training, *, cpus: int, machines: MachineTypes = STANDARD) -> str:
    """A sentence about cores that the tier promises and this machine lacks. Empty if there are enough."""
    roles = _roles(training)
    replicas = sum(count for count, _ in roles.values())
    promised = sum(count * machines.of(machine).cpu for count, machine in roles.values())
    if promised <= cpus:
        return ""
    machine_count = "1 machine" if replicas == 1 else f"{replicas} machines"
    share = "its replica has" if replicas == 1 else f"its {replicas} replicas share"
    return (
        f"{training.scale_tier} stands for {machine_count} with {promised:g} cores in all; "
        f"here {share} the {cpus} {'core' if cpus == 1 else 'cores'} of this machine."
    )


def primary_key(training: Training, *, runtime: str) -> str:
    """The master's name in TF_CONFIG: `chief` from runtime 2.1 on, `master` before.

    A job with containers sets it itself. Otherwise the requested runtime version decides, because the trainer was
    written for it. Without a request, `runtime` decides, the version that the job runs on.
    """
    if training.containers:
        return "chief" if training.use_chief else MASTER
    numbers = re.match(r"(\d+)(?:\.(\d+))?", training.runtime_version or runtime)
    if training.use_chief or numbers is None:
        return "chief"
    return "chief" if (int(numbers[1]), int(numbers[2] or 0)) >= (2, 1) else MASTER


def tf_config(
    job: Job, training: Training, replica: ReplicaSpec, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, Any]:
    """TF_CONFIG as AI Platform wrote it. `addresses` maps replica names to addresses, without evaluators."""
    key = primary_key(training, runtime=job.runtime)
    cluster: dict[str, list[str]] = {}
    for member in gang(training):
        if member.type != EVALUATOR:  # evaluators are not part of the cluster
            cluster.setdefault(_task_type(member, key), []).append(str(addresses[member.name]))
    trial = {"trial": str(job.trial)} if job.trial else {}
    return {
        "cluster": cluster,
        "task": {"type": _task_type(replica, key), "index": replica.index, "cloud": job.project, **trial},
        "job": snake_keys(dict(training.input)),
        "environment": "cloud",
    }


def _task_type(replica: ReplicaSpec, primary: str) -> str:
    return primary if replica.primary else replica.type


def common_environment(job: Job, workload: Workload, *, cpus: int) -> dict[str, str]:
    """Environment variables of every replica of the job."""
    return _trial_environment(job, workload) | {
        "CLOUD_ML_JOB_ID": job.parent or job.id,
        "CLOUD_ML_PROJECT_ID": job.project,
        "CLOUD_ML_REGION": workload.region,
        "KMP_AFFINITY": "none",  # replicas share the cores; affinity would pin all of them to the first ones
        "KMP_BLOCKTIME": "0",
        "KMP_SETTINGS": "0",
        "OMP_NUM_THREADS": str(cpus),
        "TRAINSHED_JOB": job.id,
        "TRAINSHED_PROJECT": job.project,
    }


def _trial_environment(job: Job, workload: Workload) -> dict[str, str]:
    """Variables by which trainers know that they are a trial. Empty for any other job."""
    if not job.trial or not isinstance(workload, Training) or workload.tuning is None:
        return {}
    return {"CLOUD_ML_TRIAL_ID": str(job.trial), "CLOUD_ML_HP_METRIC_TAG": workload.tuning.tag}


def replica_environment(
    job: Job, training: Training, replica: ReplicaSpec, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, str]:
    """Environment variables of one replica: its name and the addresses of the others.

    TF_CONFIG and CLUSTER_SPEC are for TensorFlow and custom containers. The rest is for PyTorch and JAX, whose ranks
    are the master and then the workers.
    """
    config = tf_config(job, training, replica, addresses)
    environment = {
        "TF_CONFIG": orjson.dumps(config).decode(),
        "CLUSTER_SPEC": orjson.dumps(_cluster_spec(config, training, addresses)).decode(),
        "TRAINSHED_REPLICA": replica.name,
    }
    return environment | _rank_environment(training, replica, addresses)


def _cluster_spec(
    config: Mapping[str, Any], training: Training, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, Any]:
    """CLUSTER_SPEC: like TF_CONFIG, but `job` is a string and the primary is always `master`."""
    cluster = {_container_task_type(key): hosts for key, hosts in config["cluster"].items()}
    task = config["task"] | {"type": _container_task_type(config["task"]["type"])}
    ports = [int(address.port) if address.port.isdigit() else address.port for address in addresses.values()]
    return {
        "cluster": cluster,
        "task": task,
        "job": orjson.dumps(config["job"]).decode(),
        "environment": config["environment"],
        "open_ports": ports,
    }


def _container_task_type(key: str) -> str:
    return MASTER if key == "chief" else key


def _rank_environment(
    training: Training, replica: ReplicaSpec, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, str]:
    """Rendezvous variables of PyTorch and JAX. Empty for parameter servers and evaluators."""
    ranked = [member for member in gang(training) if member.type in (MASTER, WORKER)]
    if replica not in ranked:
        return {}
    return rank_variables(ranked.index(replica), len(ranked), first=addresses[ranked[0].name])


def rank_variables(index: int, count: int, *, first: ReplicaAddress) -> dict[str, str]:
    """Rendezvous variables of PyTorch and JAX for one of `count` processes, which meet at the first one's address.

    PyTorch's are those of torchrun for one process on each of several nodes. Those of its agent, which Trainshed
    replaces, are left out: PyTorch would look for the agent's store.
    """
    rank, size = str(index), str(count)
    return {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": first.port,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": rank,
        "GROUP_WORLD_SIZE": size,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "ROLE_NAME": "default",
        "JAX_COORDINATOR_ADDRESS": str(first),
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
    }


def loopback_addresses(replicas: Sequence[ReplicaSpec], ports: Sequence[int]) -> dict[str, ReplicaAddress]:
    """Addresses of a gang on one machine, by replica name. One port each; evaluators have none."""
    return {
        name: ReplicaAddress("127.0.0.1", str(port))
        for name, port in zip(_listening_names(replicas), ports, strict=True)
    }


def placeholder_addresses(replicas: Sequence[ReplicaSpec]) -> dict[str, ReplicaAddress]:
    """Placeholder addresses of a gang, by replica name. Each node fills in its own when its replica is placed."""
    return {name: ReplicaAddress(f"@host:{name}@", f"@port:{name}@") for name in _listening_names(replicas)}


def _listening_names(replicas: Sequence[ReplicaSpec]) -> list[str]:
    return [replica.name for replica in replicas if replica.type != EVALUATOR]
