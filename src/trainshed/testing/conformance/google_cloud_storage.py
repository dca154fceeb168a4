"""google-cloud-storage's own system tests, from its source on the package index, with a key of a service account."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainshed.testing.conformance.environments import ROOT, python_environment
from trainshed.testing.conformance.pytest_results import run_pytest
from trainshed.testing.conformance.storage_clients import direct_environment, fetch_source, key_file
from trainshed.testing.conformance.suites import Case, Installed, Suite
from trainshed.testing.conformance.targets import Target

PACKAGE, VERSION = "google-cloud-storage", "3.17.1"
PACKAGES = (
    *(f"{PACKAGE}=={VERSION}", "google-cloud-testutils", "google-cloud-iam", "google-cloud-kms", "google-cloud-pubsub"),
    *("mock", "brotli", "opentelemetry-sdk", "pip", "setuptools", "wheel"),
    *("pytest==8.*", "pytest-timeout", "pytest-asyncio", "pytest-xdist"),
)
_TIMEOUT_S = 3600


def install(folder: Path) -> Installed:
    installed = python_environment(folder, python="3.11", packages=PACKAGES, shown=(PACKAGE,))
    fetch_source(installed, PACKAGE, VERSION, folder)
    return installed


def run(installed: Installed, target: Target, folder: Path) -> Sequence[Case]:
    """Files of tests run beside each other: they sleep for minutes, for the real service to catch up."""
    source = ROOT / "google_cloud_storage" / f"google_cloud_storage-{VERSION}"
    environment = {**direct_environment(target, key_file(target, folder)), "API_ENDPOINT_OVERRIDE": target.url}
    own = ["-c", os.devnull, f"--rootdir={source}", "-p", "no:cacheprovider"]  # no settings of the folders above
    options = ["-q", "--tb=native", "--timeout=90", "-n", "4", "--dist", "loadfile", *own]
    command = [str(installed.program), "-m", "pytest", *options, str(source / "tests" / "system")]
    return run_pytest(command, folder=folder, environment=environment, timeout_s=_TIMEOUT_S)


_CSEK = "keys that come with requests are refused: objects would lie unencrypted"
_KMS = "there is no key service, and settings that are not kept are refused"
_NOT_KEPT = "a setting that is not kept is refused"
_ACL = "access lists are not kept: tokens decide"
_NAMES = "a name can't have an empty part, `.` or `..`: objects are files in folders"
_ELSEWHERE = "asks another of Google's services, which is not here"
_CONTEXTS = "contexts of objects are not kept, and refused"
_REASONS = {
    r".*(_csek|add_key|rotate_key|csek_to_cmek|encryption_key).*": _CSEK,
    r".*(kms|cmek|encryption_enforcement).*": _KMS,
    r".*(autoclass|soft_delete_policy|restore_bucket|ip_filter|dual_region|hns|hierarchical_namespace).*": _NOT_KEPT,
    r".*(retention_lock|ubla_set|inherited_pap|managed_folders|copy_blob_w_metageneration).*": _NOT_KEPT,
    r".*(acl|_w_owner).*": _ACL,
    r".*get_set_iam_policy.*": "policies of buckets are not kept, and storage has no account of its own here",
    r".*(contexts|w_filter).*": _CONTEXTS,
    r".*(download_many_to_path|quoted_blob_names).*": _NAMES,
    r".*hierarchy.*": "an object whose name ends in a slash is a folder, and has no content",
    r".*(notification|access_token).*": _ELSEWHERE,
    r".*hmac.*": "HMAC keys are not offered",
    r".*post_policy.*": "policies of forms are not offered",
    r".*wo_content_type.*": "every object has a content type",
}

SUITE = Suite(
    name="google_cloud_storage",
    title="google-cloud-storage's system tests",
    install=install,
    run=run,
    reasons=_REASONS,
)
