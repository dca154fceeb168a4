"""The hosts that a package build reaches: those that the settings for the package index name."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.node.sandbox import builds

DEFAULT = {("pypi.org", 443), ("files.pythonhosted.org", 443)}


def test_variables_and_files_name_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_MACHINE_SETTINGS", ())
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    (tmp_path / ".config" / "uv" / "uv.toml").write_text('[[index]]\nurl = "https://Mirror.example.com/simple"\n')
    named = tmp_path / "named.toml"
    named.write_text("index-url = 'https://ada:secret@other.example.com:8443/simple'\n")
    env = {
        "HOME": str(tmp_path),
        "UV_INDEX": "inner=http://127.0.0.1:3141/root/pypi http://[::1]:3142/simple",
        "UV_CONFIG_FILE": str(named),
        "PIP_FIND_LINKS": "/opt/wheels",
        "HOMEPAGE": "https://not-an-index.example.com",
    }
    assert set(builds.index_hosts(env)) == DEFAULT | {
        ("mirror.example.com", 443),
        ("other.example.com", 8443),
        ("127.0.0.1", 3141),
        ("::1", 3142),
    }
