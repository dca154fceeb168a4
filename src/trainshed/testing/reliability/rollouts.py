"""Rolls out one version after the other under load, and checks that no request fails or meets the wrong version.

python -m trainshed.testing.reliability.rollouts --rounds 100 --seed 1
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import click

from trainshed.testing.cache import link_runtimes
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.reports import FaultReport, run_rounds
from trainshed.testing.reliability.stamps import processes_of
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.prediction_load import PredictionLoad, PredictionSeen

PROJECT = "rollouts"
ROUNDS_PER_BATCH = 10  #: between two checks
CLIENTS = 4
REFUSALS = (503, 507)  #: not the server's own fault; a rollout is no reason for them either
_ANSWER = "return [{word!r}] * len(instances)"


@dataclass(frozen=True, slots=True)
class VersionsInForce:
    """The versions that may answer requests which are sent between two moments, and end before the second one."""

    began_s: float
    ended_s: float
    versions: frozenset[str]


class RolloutRun:
    """One model, whose versions follow each other. `traffic` has what was acknowledged, and when."""

    def __init__(self, deployer: Deployer, chance: random.Random) -> None:
        self.traffic: list[VersionsInForce] = []
        self._deployer = deployer
        self._chance = chance
        self._in_force: tuple[float, frozenset[str]] = (0.0, frozenset())

    def begin(self, version: str) -> None:
        """Deploy the first version."""
        self._deploy(version)
        self._change(version, verb=f"/versions/{version}:setDefault")

    def replace(self, old: str, new: str, load: PredictionLoad) -> None:
        """Deploy a version, send it a share of the requests or all at once, and delete the one before."""
        self._deploy(new)
        if self._chance.random() < 0.5:
            weights = {old: self._chance.randint(1, 99)}
            weights[new] = 100 - weights[old]
            self._change(old, new, verb=":split", body={"weights": weights}, own=True)
            load.wait_for_more()
            self._change(old, new, verb=f"/versions/{new}:setDefault")
            self._change(new, verb=":split", body={"weights": {}}, own=True)
        else:
            self._change(new, verb=f"/versions/{new}:setDefault")
        if self._chance.random() < 0.3:
            load.wait_for_more()
            self._change(old, verb=":rollback", own=True)
            load.wait_for_more()
            self._change(new, verb=f"/versions/{new}:setDefault")
        load.wait_for_more()
        deleted = self._deployer.finish(self._deployer.delete(old))
        assert "response" in deleted, deleted

    def _deploy(self, version: str) -> None:
        self._deployer.deploy_routine(version, answer=_ANSWER.format(word=version))

    def _change(self, *versions: str, verb: str, body: object = None, own: bool = False) -> None:
        """Change who answers. From the acknowledgement on, and until the next change is sent, these versions do."""
        began_s, before = self._in_force
        self.traffic.append(VersionsInForce(began_s, time.monotonic(), before))
        prefix = "/trainshed" if own else ""
        self._deployer.server.call("POST", f"{prefix}{self._deployer.path}{verb}", body or {})
        self._in_force = time.monotonic(), frozenset(versions)

    def end(self) -> None:
        """Note what was in force until now."""
        began_s, versions = self._in_force
        self.traffic.append(VersionsInForce(began_s, time.monotonic(), versions))


def check_responses(seen: Iterable[PredictionSeen], traffic: Sequence[VersionsInForce]) -> list[Violation]:
    """Return a violation for each request that failed, or was answered by a version that others had replaced."""
    found = []
    for each in seen:
        if each.status != 200:
            is_fault = each.status >= 500 and each.status not in REFUSALS
            found.append(Violation("5xx" if is_fault else "lost", f"a request got {each.status}: {each.text[:200]}"))
            continue
        for span in traffic:
            inside = span.began_s <= each.began_s and each.ended_s <= span.ended_s
            if span.versions and inside and each.text not in span.versions:
                wanted = " or ".join(sorted(span.versions))
                late_s = each.began_s - span.began_s
                found.append(Violation("lost", f"{each.text} answered, not {wanted}, {late_s:.3f} s after the change"))
    return found


def check_files(home: Path, deployer: Deployer, gone: Iterable[str]) -> list[Violation]:
    """Return a violation for each version that was deleted and still has processes or files."""
    found = []
    for version in gone:
        folder = home / "hosts" / deployer.project / deployer.model / version
        try:
            eventually(partial(processes_of, folder), lambda left: not left, within_s=30)
            eventually(folder.exists, lambda exists: not exists, within_s=30)
        except AssertionError as exc:
            found.append(Violation("survivors", f"of version {version}: {exc}"))
    return found


def run_batch(deployer: Deployer, *, seed: int, batch: int, rounds: int) -> FaultReport:
    """Roll out `rounds` versions on a running server, and check them. No version is left."""
    began_s = time.monotonic()
    names = [f"v{batch}_{number}" for number in range(rounds + 1)]
    rollout = RolloutRun(deployer, random.Random(f"{seed}/{batch}"))
    rollout.begin(names[0])
    load = PredictionLoad(deployer, threads=CLIENTS)
    with load.going():
        load.wait_for_more()
        for old, new in pairwise(names):
            rollout.replace(old, new, load)
        load.wait_for_more()
    rollout.end()
    found = check_responses(load.seen, rollout.traffic)
    deployer.finish(deployer.delete(names[-1]))
    found += check_files(deployer.server.home, deployer, names)
    seconds = time.monotonic() - began_s
    return FaultReport("rollouts", rounds, seconds, operations=len(load.seen), violations=found)


def run(rounds: int, seed: int, folder: Path, tell: Callable[[FaultReport], None]) -> list[Violation]:
    """Run batches on one state folder in `folder`, and tell of each. Returns all violations."""
    violations: list[Violation] = []
    server = RunningServer(link_runtimes(folder / "home")).start()
    try:
        deployer = Deployer(server, PROJECT, folder / "routines")
        for batch, start in enumerate(range(0, rounds, ROUNDS_PER_BATCH)):
            count = min(ROUNDS_PER_BATCH, rounds - start)
            report = run_batch(deployer, seed=seed, batch=batch, rounds=count)
            violations += report.violations
            tell(report)
    finally:
        server.kill()
        server.end_jobs()
    return violations


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How many versions to roll out.")
@click.option("--seed", default=1, show_default=True, help="For how each one is rolled out.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(rounds: int, seed: int, recorded: bool) -> None:
    """Roll out versions under load. Keeps the state folder if something is wrong."""
    run_rounds("F51", rounds, lambda folder, tell: run(rounds, seed, folder, tell), recorded=recorded)


if __name__ == "__main__":
    main()
