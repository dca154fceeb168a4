"""What a row's runs test: the parts of the source whose change makes its figures worthless.

The figures of a row survive every change elsewhere, and every change of comments and docstrings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainshed.testing.reliability.rows import ROOT

SOURCE = ROOT / "src" / "trainshed"

#: Whether what is below a place is under test. The longest place that fits a file decides.
Parts = Mapping[str, bool]

#: What jobs, models, buckets, objects and tokens go through: from the service to the row, the file and the process.
_STATE: Parts = {
    "api/ml/jobs.py": True,
    "api/ml/models.py": True,
    "api/ml/versions.py": True,
    "api/storage": True,
    "api/storage/public.py": False,
    "attempts": True,
    "attempts/event_files.py": False,
    "attempts/event_records.py": False,
    "attempts/trial_metrics.py": False,
    "background.py": True,
    "buckets": True,
    "buckets/cloud": False,
    "control": True,
    "control/tuning": False,
    "domain": True,
    "domain/access": False,
    "domain/filters": False,
    "domain/tuning": False,
    "engines": True,
    "engines/ray": False,
    "node": True,
    "node/containers": False,
    "node/remote": False,
    "node/sandbox": False,
    "server.py": True,
    "services/access/tokens.py": True,
    "services/jobs": True,
    "services/jobs/chaos.py": False,
    "services/jobs/exports.py": False,
    "services/jobs/tuning.py": False,
    "services/models": True,
    "services/storage": True,
    "services/storage/mirrors.py": False,
    "services/storage/mnist_archive.py": False,
    "services/storage/public_data.py": False,
    "services/storage/public_mirrors.py": False,
    "state_lock.py": True,
    "store": True,
    "store/access": False,
    "store/sql": True,
    "store/tuning": False,
}
_CONNECTIONS: Parts = {
    "api/acceptor.py": True,
    "api/app.py": True,
    "api/http": True,
    "api/listener.py": True,
    "api/shutdown.py": True,
    "api/unread_responses.py": True,
    "api/uvicorn_adapter.py": True,
    "connections.py": True,
    "node/connect.py": True,
    "node/remote/tunnels.py": True,
    "proxy/connect_proxy.py": True,
}
_REQUESTS: Parts = {
    **_CONNECTIONS,
    "api": True,
    "buckets": True,
    "domain": True,
    "errors.py": True,
    "gateway": True,
    "services": True,
    "store": True,
}
_DEPLOYMENTS: Parts = {
    "api/http/predictions.py": True,
    "api/ml": True,
    "control/deployments": True,
    "engines/hosts": True,
    "gateway": True,
    "serving/host": True,
    "store/models.py": True,
}
_PARSERS: Parts = {
    "api/http": True,
    "api/storage/uploads.py": True,
    "attempts": True,
    "buckets/glob.py": True,
    "domain": True,
    "node/archives": True,
    "node/connect.py": True,
    "proxy/request_normalizer.py": True,
    "serving/codec": True,
    "serving/formats": True,
    "serving/frames.py": True,
}
_ALL: Parts = {"": True}

#: By row, or by row and case. The whole program, without what is never under test, is behind any other one.
_PARTS: Mapping[str, Parts] = {
    "F01": {
        **_STATE,
        "control/tuning": True,
        "domain/tuning": True,
        "services/access/secret_key.py": True,
        "services/access/secrets.py": True,
        "services/tuning": True,
        "store/access/secrets.py": True,
        "store/tuning": True,
    },
    "F02": _STATE,
    "F03": _STATE,
    "F06": _STATE,
    "F51": _DEPLOYMENTS,
    "F54": _REQUESTS,
    "F60": _CONNECTIONS,
    "F74": _REQUESTS,
    "F75": _PARSERS,
}
#: Never under test. A migration changes nothing without a query that uses it, and that one counts.
_NEVER = ("testing/", "console/", "store/sql/0")


def code_digest(key: str = "", source: Path = SOURCE) -> str:
    """A digest of the code that a row, or a case of it, is about."""
    parts = _PARTS.get(key) or _PARTS.get(key.partition(" ")[0]) or _ALL
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if "__pycache__" in name or name.startswith(_NEVER) or not _is_under_test(name, parts) or not path.is_file():
            continue
        content = _meaning(path, path.stat().st_mtime_ns)
        digest.update(f"{name}\0".encode() + content)
    return digest.hexdigest()[:16]


def _is_under_test(name: str, parts: Parts) -> bool:
    while name:
        if name in parts:
            return parts[name]
        name = name.rpartition("/")[0]
    return parts.get("", False)


@cache
def _meaning(path: Path, changed_ns: int) -> bytes:
    """What a file does, as a digest: a module without its comments and docstrings, any other file as it is."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return hashlib.sha256(content).digest()
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).digest()


def unknown_places(source: Path = SOURCE) -> list[str]:
    """Places that a row names and the source does not have."""
    return sorted({place for parts in _PARTS.values() for place in parts if not (source / place).exists()})
