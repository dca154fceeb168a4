"""From a scale tier to a gang of replicas, and from there to what each of them is told: TF_CONFIG and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from trainshed.domain.fields import snake_keys
from trainshed.domain.jobs import Job
from trainshed.domain.training import ScaleTier, Training

MASTER = "master"
WORKER = "worker"
PS = "ps"
EVALUATOR = "evaluator"

#: tier -> how many workers and parameter servers it has beside the master; CUSTOM says so itself
_TIERS: Mapping[ScaleTier, tuple[int, int]] = {
    ScaleTier.BASIC: (0, 0),
    ScaleTier.STANDARD_1: (4, 3),
    ScaleTier.PREMIUM_1: (19, 11),
    ScaleTier.BASIC_GPU: (0, 0),
    ScaleTier.BASIC_TPU: (0, 0),
}


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


def gang(training: Training) -> tuple[ReplicaSpec, ...]:
    """Every replica of the job, the master first, then workers, parameter servers and evaluators by number."""
    if training.scale_tier is ScaleTier.CUSTOM:
        workers, servers, evaluators = training.worker_count, training.parameter_server_count, training.evaluator_count
    else:
        (workers, servers), evaluators = _TIERS[training.scale_tier], 0
    counts = ((MASTER, 1), (WORKER, workers), (PS, servers), (EVALUATOR, evaluators))
    return tuple(ReplicaSpec(type=kind, index=index) for kind, count in counts for index in range(count))


def primary_key(training: Training, *, runtime: str) -> str:
    """What TF_CONFIG calls the master: `chief` from runtime 2.1 on, `master` before.

    The version that the user asked for decides, because the trainer was written for that one; `runtime`, the one it
    runs on, decides if none was asked for.
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", training.runtime_version or runtime)
    if training.use_chief or numbers is None:
        return "chief"
    return "chief" if (int(numbers[1]), int(numbers[2] or 0)) >= (2, 1) else MASTER


def tf_config(job: Job, training: Training, replica: ReplicaSpec, addresses: Mapping[str, str]) -> dict[str, Any]:
    """TF_CONFIG as AI Platform wrote it. `addresses` has `host:port` of each replica by name, evaluators aside."""
    key = primary_key(training, runtime=job.runtime)
    cluster: dict[str, list[str]] = {}
    for member in gang(training):
        if member.type != EVALUATOR:  # evaluators watch; they are not part of the cluster
            cluster.setdefault(_key(member, key), []).append(addresses[member.name])
    return {
        "cluster": cluster,
        "task": {"type": _key(replica, key), "index": replica.index, "cloud": job.project},
        "job": snake_keys(dict(training.input)),
        "environment": "cloud",
    }


def _key(replica: ReplicaSpec, primary: str) -> str:
    return primary if replica.primary else replica.type


def common_environment(job: Job, training: Training, *, cpus: int) -> dict[str, str]:
    """What every replica of the job has in its environment."""
    return {
        "CLOUD_ML_JOB_ID": job.id,
        "CLOUD_ML_PROJECT_ID": job.project,
        "CLOUD_ML_REGION": training.region,
        "KMP_AFFINITY": "none",  # replicas share the cores; pinning would put all of them on the first ones
        "KMP_BLOCKTIME": "0",
        "KMP_SETTINGS": "0",
        "OMP_NUM_THREADS": str(cpus),
        "TRAINSHED_JOB": job.id,
        "TRAINSHED_PROJECT": job.project,
    }


def environment(
    job: Job, training: Training, replica: ReplicaSpec, addresses: Mapping[str, str], *, cpus: int
) -> dict[str, str]:
    """Everything this replica is told by its environment: what all have in common, its name and its TF_CONFIG."""
    config = orjson.dumps(tf_config(job, training, replica, addresses)).decode()
    return common_environment(job, training, cpus=cpus) | {"TF_CONFIG": config, "TRAINSHED_REPLICA": replica.name}


def loopback_addresses(replicas: Sequence[ReplicaSpec], ports: Sequence[int]) -> dict[str, str]:
    """Where each replica of a gang on one machine listens, by name. One port each; an evaluator has none."""
    listening = [replica.name for replica in replicas if replica.type != EVALUATOR]
    return {name: f"127.0.0.1:{port}" for name, port in zip(listening, ports, strict=True)}
