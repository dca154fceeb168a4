"""Which of the server's variables user code gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.config import Settings
from trainshed.node.process import environment


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LC_ALL", "https_proxy", "TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"]
)
def test_what_programs_and_frameworks_read_is_passed(name: str) -> None:
    assert environment.is_passed(name)


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "DATABASE_URL", "PGPASSWORD"),
        *(
            "TF_VAR_password",
            "TF_TOKEN_app_terraform_io",
            "KERAS_API_KEY",
            "GRPC_TOKEN",
            "UV_INDEX_URL",
            "PIP_INDEX_URL",
        ),
        *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "TRAINSHED_TOKEN", "PYTHONPATH", "Path"),
    ],
)
def test_what_may_be_a_secret_is_not(name: str) -> None:
    assert not environment.is_passed(name)


def test_builds_get_the_index_and_both_get_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX_URL", "LAB_DATA", "TRAINSHED_TOKEN", "OTHER"):
        monkeypatch.setenv(name, "x")
    user, build = environment.user_environment({"LAB_DATA"}), environment.build_environment({"LAB_DATA"})
    assert "UV_INDEX_URL" in build
    assert {name for name in build if name not in user} == {name for name in build if name.startswith(("UV_", "PIP_"))}
    assert "LAB_DATA" in user
    assert not {"OTHER", "TRAINSHED_TOKEN"} & set(build)
    assert environment.without_installer(build) == user


def test_the_setting_names_variables() -> None:
    assert Settings(job_environment=" A, B ,,").passed_variables == {"A", "B"}
    assert Settings().passed_variables == set()


def test_the_page_has_the_list() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    prefixes = [*environment.PASSED_PREFIXES, *environment.INSTALLER_PREFIXES]
    names = [name for name in environment.PASSED_VARIABLES if not name.endswith("_PROXY")]  # "also in capitals"
    assert [name for name in [*names, *(f"{prefix}*" for prefix in prefixes)] if f"`{name}`" not in page] == []
