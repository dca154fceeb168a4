"""Bad versions in a staged rollout under load: how many requests saw them, how long it took, and what failed after.

python bench/rollout.py          # about 4 minutes

A server with one model, its good version, and bad ones: slow, failing, crashing and wrong. Each is rolled out under
load, once with shadow traffic before the steps and once without.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainshed.testing import cache
from trainshed.testing.eventually import eventually
from trainshed.testing.processes.servers import RunningServer
from trainshed.testing.workloads.deployer import Deployer

THREADS = 8
AFTER = 2000  #: requests that are counted after each rollback
GOOD = "return ['good'] * len(instances)"
BAD = {
    "slow": "time.sleep(0.1); return ['good'] * len(instances)",
    "failing": "raise ValueError('no')",
    "crashing": "os.kill(os.getpid(), signal.SIGKILL)",
    "wrong": "return ['bad'] * len(instances)",
}
LIMITS = ["error_rate>0.5%", "p99>3x"]
PLAN = {"steps": [1, 10, 50, 100], "stepSeconds": 10, "minRequests": 100}


class Clients:
    """Threads that send requests to the model. Each answer is counted with what it said."""

    def __init__(self, deployer: Deployer) -> None:
        self.answers: Counter[str] = Counter()
        self._deployer = deployer
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def going(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def reset(self) -> Counter[str]:
        """Begin to count anew. Returns what was counted."""
        with self._lock:
            answers, self.answers = self.answers, Counter()
        return answers

    def wait_for(self, count: int) -> None:
        eventually(lambda: self.answers.total(), lambda total: total >= count, within_s=120)

    def _run(self) -> None:
        server = self._deployer.server
        headers = {"authorization": f"Bearer {server.token}"}
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        while not self._ended.is_set():
            connection.request("POST", f"{self._deployer.path}:predict", b'{"instances": [1]}', headers)
            answer = connection.getresponse()
            body = answer.read()
            said = json.loads(body)["predictions"][0] if answer.status == 200 else f"error {answer.status}"
            with self._lock:
                self.answers[said] += 1
        connection.close()


def roll_out(deployer: Deployer, version: str, plan: dict[str, Any]) -> tuple[str, ...]:
    """Roll a bad version out under load. Returns a row of the table. Raises `SystemExit` if it is not rolled back."""
    server, path, clients = deployer.server, f"/trainshed{deployer.path}", Clients(deployer)
    with clients.going():
        clients.wait_for(500)
        before = served(deployer, version)
        clients.reset()
        began = time.monotonic()
        started = server.call("POST", f"{path}/rollouts", {"version": version, **PLAN, **plan})
        ended = eventually(
            lambda: server.call("GET", f"{path}/rollouts/{started['id']}"),
            lambda body: body["state"] != "RUNNING",
            within_s=300,
        )
        seconds = time.monotonic() - began
        during = clients.reset()
        clients.wait_for(THREADS)  # those that were under way at that moment
        during += clients.reset()
        clients.wait_for(AFTER)
        after = clients.reset()
    failed_after = after.total() - after["good"]
    if ended["state"] != "ROLLED_BACK" or failed_after:
        raise SystemExit(f"{version}: {ended['state']}, {failed_after} bad answers after it. {ended['reason']}")
    shadow = "shadow" if "shadowSeconds" in plan else "steps"
    saw, bad = served(deployer, version) - before, during.total() - during["good"]
    return version, shadow, str(saw), str(bad), f"{seconds:.1f}", f"{failed_after} of {after.total()}", ended["reason"]


def served(deployer: Deployer, version: str) -> int:
    """How many requests of clients a version has answered."""
    traffic = deployer.server.call("GET", f"/trainshed{deployer.path}")["traffic"]
    return int(traffic[version]["count"]) if version in traffic else 0


def main() -> None:
    print("| version | first stage | requests that it got | bad answers | seconds | bad answers after | by |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        server = RunningServer(cache.link_runtimes(Path(scratch) / "home"))
        server.start()
        try:
            deployer = Deployer(server, "rollout", Path(scratch) / "models")
            deployer.deploy_routine("good", answer=GOOD)
            for name, answer in BAD.items():
                deployer.deploy_routine(name, answer=answer)
                plans: list[dict[str, Any]] = [{"shadowSeconds": 60, "abortIf": [*LIMITS, "changed>1%"]}]
                if name != "wrong":  # which shadow traffic alone can tell
                    plans.append({"abortIf": LIMITS})
                for plan in plans:
                    print(f"| {' | '.join(roll_out(deployer, name, plan))} |", flush=True)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
