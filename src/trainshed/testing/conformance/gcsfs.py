"""gcsfs's own suite, from its source on the package index. Releases after 2025.12 leave the tests out of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainshed.testing.conformance.environments import ROOT, python_environment
from trainshed.testing.conformance.pytest_results import run_pytest
from trainshed.testing.conformance.storage_clients import fetch_source
from trainshed.testing.conformance.suites import Case, Installed, Suite
from trainshed.testing.conformance.targets import Target

VERSION = "2025.12.0"
PACKAGES = (
    *(f"gcsfs=={VERSION}", "google-cloud-storage-control", "fusepy", "crcmod", "pip", "setuptools", "wheel"),
    *("pytest==8.*", "pytest-timeout", "pytest-asyncio", "pytest-subtests"),
)
_TIMEOUT_S = 3600


def install(folder: Path) -> Installed:
    installed = python_environment(folder, python="3.11", packages=PACKAGES, shown=("gcsfs",))
    fetch_source(installed, "gcsfs", VERSION, folder)
    return installed


def run(installed: Installed, target: Target, folder: Path) -> Sequence[Case]:
    """Run it in `trainshed shell`, at Google's host: at another one it takes the server for a fake."""
    source = ROOT / "gcsfs" / f"gcsfs-{VERSION}"
    environment = {
        **target.environment,
        "STORAGE_EMULATOR_HOST": "https://storage.googleapis.com",
        "GCSFS_TEST_PROJECT": target.project,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # or gcsfs asks a gRPC service for each bucket's type
    }
    options = ["-q", "--timeout=120", "-p", "no:cacheprovider", f"--rootdir={source}", "-W", "ignore"]
    command = [str(installed.program), "-m", "pytest", *options, str(source / "gcsfs" / "tests")]
    return run_pytest(command, folder=folder, environment=environment, timeout_s=_TIMEOUT_S, shell_of=target)


_BOTH = "`a` and `a/b` can't both be objects: objects are files"
_REASONS = {
    r".*(large_upload|multi_upload|simple_upload|rm_recursive)": _BOTH,
    r".*_with_kms": "there is no key service, and settings that are not kept are refused",
    r".*user_project_cat": "requesters do not pay here, and settings that are not kept are refused",
    r".*test_sign": "the credential of the shell is a token, which signs nothing: a key of a service account does",
    r".*write_blocks2": "a part of an upload is kept whole, and not in multiples of 256 KiB",
    r".*credentials_from_raw_token.*": "a 401 has words of its own; with Google's, gcsfs repeats a refused request",
}

SUITE = Suite(name="gcsfs", title="gcsfs's own suite", install=install, run=run, reasons=_REASONS)
