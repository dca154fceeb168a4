"""Settings: read once, unknown names refused, the environment over the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.config import ClientSettings, Home, Settings
from trainshed.errors import CannotProceedError


def test_the_environment_wins_over_the_file() -> None:
    settings = Settings.read({"TRAINSHED_SERVER_PORT": "9000", "PATH": "/bin"}, {"port": 8000, "slots": 3})
    assert (settings.port, settings.slots, settings.authentication) == (9000, 3, True)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TRAINSHED_SERVER_PROT": "1"}, "Unknown setting TRAINSHED_SERVER_PROT"),
        ({"TRAINSHED_SERVER_PORT": "many"}, "must be a whole number"),
        ({"TRAINSHED_SERVER_POLL_S": "0"}, "more than 0"),
        ({"TRAINSHED_SERVER_AUTHENTICATION": "maybe"}, "must be true or false"),
        ({"TRAINSHED_SERVER_SLOTS": "-1"}, "negative"),
        ({"TRAINSHED_SERVER_PORT": "70000"}, "ports go from 0 to 65535"),
        ({"TRAINSHED_SERVER_TLS_PORT": "-1"}, "ports go from 0 to 65535"),
        ({"TRAINSHED_SERVER_POLL_S": "nan"}, "more than 0"),
        ({"TRAINSHED_SERVER_GRACE_S": "inf"}, "more than 0"),
        ({"TRAINSHED_SERVER_WARM_START": "on"}, "warm_start is 'on'; it must be auto or off"),
        ({"TRAINSHED_SERVER_GS_IN_TRAINERS": "s3"}, "it must be auto, trainshed or google"),
        ({"TRAINSHED_SERVER_RAY_PLACEMENT": "PACK"}, "it must be pack or spread"),
        ({"TRAINSHED_SERVER_RAY_ADDRESS": "head"}, "it must be HOST:PORT"),
        ({"TRAINSHED_SERVER_RAY_ADDRESS": "http://head:1"}, "it must be HOST:PORT"),
        ({"TRAINSHED_SERVER_RAY_VERSION": "new"}, "must be a version such as 2.58.0"),
        ({"TRAINSHED_SERVER_RAY_PYTHON": "3"}, "must be a version such as 3.11"),
        ({"TRAINSHED_SERVER_RAY_CPU_SHARE": "0"}, "more than 0"),
    ],
)
def test_nonsense_is_refused_by_name(env: dict[str, str], words: str) -> None:
    with pytest.raises(CannotProceedError, match=words):
        Settings.read(env)


@pytest.mark.parametrize("address", ["10.0.0.5:6379", "head.example:6379", "[::1]:6379", "ray://head:10001"])
def test_an_address_of_ray_is_a_host_and_a_port(address: str) -> None:
    assert Settings.read({"TRAINSHED_SERVER_RAY_ADDRESS": address}).ray_address == address


def test_the_project_comes_from_the_environment_the_file_or_the_default(tmp_path: Path) -> None:
    env = {"TRAINSHED_HOME": str(tmp_path)}
    assert ClientSettings.read(env).project == "trainshed"
    (tmp_path / "config.toml").write_text('[client]\nproject = "from-file"\n')
    assert ClientSettings.read(env).project == "from-file"
    assert ClientSettings.read(env | {"TRAINSHED_PROJECT": "from-env"}).project == "from-env"


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("project = ")
    with pytest.raises(CannotProceedError, match=r"config\.toml can't be read"):
        Home(tmp_path).file_settings()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sever]\nport = 1\n", r"a table \[sever\]"),
        ("machines = 3\n", "'machines' outside of a table"),
        ("client = 3\n", "'client' outside of a table"),
        ("port = 9000\n", "'port' outside of a table"),
        ("[[server]]\nport = 1\n", "'server' outside of a table"),
    ],
)
def test_a_file_of_other_tables_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(CannotProceedError, match=words):
        ClientSettings.read({"TRAINSHED_HOME": str(tmp_path)})


def test_the_state_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    home.create()
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert list(home.path.iterdir()) == []


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotProceedError, match="can't be written to"):
        Home(tmp_path / "file" / "home").create()
