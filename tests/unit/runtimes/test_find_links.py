"""Where packages come from besides the index: the setting, and pip's own configuration as pip reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.errors import CannotProceedError
from trainshed.runtimes.find_links import find_links


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration files are all below `tmp_path`."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


def _write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_the_setting_comes_first_and_nothing_comes_twice(env: dict[str, str], tmp_path: Path) -> None:
    env["PIP_FIND_LINKS"] = "/wheels https://example.org/page"
    found = find_links(" /mine, /wheels ,", env, prefix=tmp_path)
    assert found == ("/mine", "/wheels", "https://example.org/page")


def test_the_most_specific_configuration_of_pip_counts(env: dict[str, str], tmp_path: Path) -> None:
    def found() -> tuple[str, ...]:
        return find_links("", env, prefix=tmp_path / "venv")

    assert found() == ()
    _write(tmp_path / "xdg/pip/pip.conf", "[global]\nfind-links = /machine\n")
    assert found() == ("/machine",)
    user = _write(tmp_path / "home/.config/pip/pip.conf", "[global]\nfind-links =\n    /a%20b\n    /c\n")
    assert found() == ("/a%20b", "/c")
    user.write_text("[global]\nfind-links = /all\n[install]\nfind-links = /install\n")
    assert found() == ("/install",)
    _write(tmp_path / "venv/pip.conf", "[global]\nno-index = false\n")
    assert found() == ("/install",)
    env["PIP_CONFIG_FILE"] = str(_write(tmp_path / "named.conf", "[global]\nfind-links = /named\n"))
    assert found() == ("/named",)
    env["PIP_CONFIG_FILE"] = "/dev/null"
    assert found() == ()
    env["PIP_FIND_LINKS"] = "/env"
    assert found() == ("/env",)


def test_a_configuration_that_is_none_is_named(env: dict[str, str], tmp_path: Path) -> None:
    broken = _write(tmp_path / "home/.pip/pip.conf", "find-links = /wheels\n")
    with pytest.raises(CannotProceedError, match=f"pip in {broken} can't be read"):
        find_links("", env, prefix=tmp_path)
