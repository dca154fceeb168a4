"""From a scale tier to a gang of replicas, and from there to what each of them is told: TF_CONFIG and the rest."""

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

#: tier -> for each role how many replicas it has and on which machines; CUSTOM says so itself
_TIERS: Mapping[ScaleTier, Mapping[str, tuple[int, str]]] = {
    ScaleTier.BASIC: {MASTER: (1, "n1-standard-4")},
    ScaleTier.BASIC_GPU: {MASTER: (1, "standard_gpu")},
    ScaleTier.STANDARD_1: {MASTER: (1, "n1-highcpu-8"), WORKER: (4, "n1-highcpu-8"), PS: (3, "n1-standard-4")},
    ScaleTier.PREMIUM_1: {MASTER: (1, "n1-highcpu-16"), WORKER: (19, "n1-highcpu-16"), PS: (11, "n1-highmem-8")},
}


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where a replica listens. Either part may be a word that stands for what is known only when the gang starts."""

    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """One replica of a gang. The master is the primary one: the job ends as it ends."""

    type: str  #: master, worker, ps or evaluator; the first one is a master whatever TF_CONFIG calls it
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


def gang(work: Workload) -> tuple[ReplicaSpec, ...]:
    """Every replica of the job, the master first, then workers, parameter servers and evaluators by number."""
    roles = _roles(work) if isinstance(work, Training) else {MASTER: (1, "")}
    return tuple(ReplicaSpec(type=role, index=index) for role, (count, _) in roles.items() for index in range(count))


def machine_type_of(training: Training, role: str) -> str:
    """The machine type of a role that the job has."""
    return _roles(training)[role][1]


def machine_types(work: Workload) -> dict[str, str]:
    """The machine type of each replica of the job, by its name. A batch prediction asks for none."""
    roles = _roles(work) if isinstance(work, Training) else {}
    return {replica.name: roles[replica.type][1] if roles else "" for replica in gang(work)}


def accelerators(work: Workload) -> dict[str, int]:
    """How many GPUs each replica of the job has beside those of its machine, by its name; those with some alone."""
    counts = work.accelerators if isinstance(work, Training) else {}
    return {replica.name: counts[replica.type] for replica in gang(work) if replica.type in counts}


def shortfall(training: Training, *, cpus: int, machines: MachineTypes = STANDARD) -> str:
    """What the tier promises and this machine does not have, as a sentence; empty if it has enough."""
    roles = _roles(training)
    replicas = sum(count for count, _ in roles.values())
    promised = sum(count * machines.of(machine).cpu for count, machine in roles.values())
    if promised <= cpus:
        return ""
    stands = "1 machine" if replicas == 1 else f"{replicas} machines"
    share = "its replica has" if replicas == 1 else f"its {replicas} replicas share"
    return (
        f"{training.scale_tier} stands for {stands} with {promised:g} cores in all; "
        f"here {share} the {cpus} {'core' if cpus == 1 else 'cores'} of this machine."
    )


def primary_key(training: Training, *, runtime: str) -> str:
    """What TF_CONFIG calls the master: `chief` from runtime 2.1 on, `master` before.

    In a container it is what the job says. Else the version that the user asked for decides, because the trainer was
    written for that one; `runtime`, the one it runs on, decides if none was asked for.
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
    """TF_CONFIG as AI Platform wrote it. `addresses` has that of each replica by name, evaluators aside."""
    key = primary_key(training, runtime=job.runtime)
    cluster: dict[str, list[str]] = {}
    for member in gang(training):
        if member.type != EVALUATOR:  # evaluators watch; they are not part of the cluster
            cluster.setdefault(_key(member, key), []).append(str(addresses[member.name]))
    return {
        "cluster": cluster,
        "task": {"type": _key(replica, key), "index": replica.index, "cloud": job.project},
        "job": snake_keys(dict(training.input)),
        "environment": "cloud",
    }


def _key(replica: ReplicaSpec, primary: str) -> str:
    return primary if replica.primary else replica.type


def common_environment(job: Job, work: Workload, *, cpus: int) -> dict[str, str]:
    """What every replica of the job has in its environment."""
    return {
        "CLOUD_ML_JOB_ID": job.id,
        "CLOUD_ML_PROJECT_ID": job.project,
        "CLOUD_ML_REGION": work.region,
        "KMP_AFFINITY": "none",  # replicas share the cores; pinning would put all of them on the first ones
        "KMP_BLOCKTIME": "0",
        "KMP_SETTINGS": "0",
        "OMP_NUM_THREADS": str(cpus),
        "TRAINSHED_JOB": job.id,
        "TRAINSHED_PROJECT": job.project,
    }


def replica_environment(
    job: Job, training: Training, replica: ReplicaSpec, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, str]:
    """What this replica alone has in its environment: its name, and where the others are.

    TF_CONFIG and CLUSTER_SPEC are for TensorFlow and custom containers, the rest for PyTorch and JAX, whose processes
    are the master and the workers, in this order.
    """
    config = tf_config(job, training, replica, addresses)
    told = {
        "TF_CONFIG": orjson.dumps(config).decode(),
        "CLUSTER_SPEC": orjson.dumps(_cluster_spec(config, training, addresses)).decode(),
        "TRAINSHED_REPLICA": replica.name,
    }
    return told | _ranks(training, replica, addresses)


def _cluster_spec(
    config: Mapping[str, Any], training: Training, addresses: Mapping[str, ReplicaAddress]
) -> dict[str, Any]:
    """As TF_CONFIG, with the job as text and the first replica always called master."""
    cluster = {_plain(key): hosts for key, hosts in config["cluster"].items()}
    task = config["task"] | {"type": _plain(config["task"]["type"])}
    ports = [int(each.port) if each.port.isdigit() else each.port for each in addresses.values()]
    return {
        "cluster": cluster,
        "task": task,
        "job": orjson.dumps(config["job"]).decode(),
        "environment": config["environment"],
        "open_ports": ports,
    }


def _plain(key: str) -> str:
    return MASTER if key == "chief" else key


def _ranks(training: Training, replica: ReplicaSpec, addresses: Mapping[str, ReplicaAddress]) -> dict[str, str]:
    """The variables by which PyTorch's and JAX's processes find each other; none for other kinds of replicas."""
    ranked = [member for member in gang(training) if member.type in (MASTER, WORKER)]
    if replica not in ranked:
        return {}
    first = addresses[ranked[0].name]
    rank, size = str(ranked.index(replica)), str(len(ranked))
    return {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": first.port,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "JAX_COORDINATOR_ADDRESS": str(first),
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
    }


def loopback_addresses(replicas: Sequence[ReplicaSpec], ports: Sequence[int]) -> dict[str, ReplicaAddress]:
    """Where each replica of a gang on one machine listens, by name. One port each; an evaluator has none."""
    return {
        name: ReplicaAddress("127.0.0.1", str(port)) for name, port in zip(_listening(replicas), ports, strict=True)
    }


def placeholder_addresses(replicas: Sequence[ReplicaSpec]) -> dict[str, ReplicaAddress]:
    """Words that stand for the addresses of a gang, by name, until each replica is on its machine and knows its own."""
    return {name: ReplicaAddress(f"@host:{name}@", f"@port:{name}@") for name in _listening(replicas)}


def _listening(replicas: Sequence[ReplicaSpec]) -> list[str]:
    return [replica.name for replica in replicas if replica.type != EVALUATOR]
