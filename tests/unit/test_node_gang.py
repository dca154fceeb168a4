"""What the end of a replica means for its gang."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from trainshed.node.gang import FAILED, SUCCEEDED, Exit, ending

GANG: list[dict[str, Any]] = [
    {"name": "ps-replica-0", "type": "ps", "index": 0, "primary": False, "env": {}},
    {"name": "master-replica-0", "type": "master", "index": 0, "primary": True, "env": {}},
    {"name": "worker-replica-0", "type": "worker", "index": 0, "primary": False, "env": {}},
]
FATES = (None, Exit(0), Exit(1), Exit(None, 9))


@pytest.mark.parametrize("fates", list(itertools.product(FATES, repeat=3)))
def test_the_primary_decides_and_no_other_may_fail(fates: tuple[Exit | None, ...]) -> None:
    exits = {each["name"]: fate for each, fate in zip(GANG, fates, strict=True) if fate is not None}
    found = ending(GANG, exits, 3.0)
    primary = exits.get("master-replica-0")
    failed = [name for name, fate in exits.items() if not fate.ok]
    if primary is not None:
        assert found is not None
        assert (found.outcome, found.blame) == ((SUCCEEDED, "") if primary.ok else (FAILED, "master-replica-0"))
    elif failed:
        assert found is not None
        assert (found.outcome, found.blame) == (FAILED, failed[0])
    else:
        assert found is None
    assert found is None or found.grace_s == 3.0


def test_an_exit_is_a_code_or_a_signal() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    ended = Exit.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok) == (3, None, False)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "kill -11 $$"], {})
    ended = Exit.of(os.waitpid(pid, 0)[1])
    assert (ended.code, ended.signal, ended.ok) == (None, 11, False)
    assert Exit(0).ok
