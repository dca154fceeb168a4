"""The frame of the command line: what is imported, how errors look, aliases, settings."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from trainshed.api.uvicorn_adapter import unknown_versions
from trainshed.cli import main
from trainshed.testing.processes.resources import cpu_s

HEAVY = ("sqlalchemy", "starlette", "uvicorn", "rich", "yaml", "cryptography", "httpx", "orjson", "psutil", "asyncio")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TRAINSHED_")}
    return clean | {"TRAINSHED_HOME": str(home)}


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in list(os.environ):
        if name.startswith("TRAINSHED_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINSHED_HOME", str(home))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, words, prog_name="trainshed")

    return invoke


@pytest.fixture
def held_lock(home: Path) -> Iterator[Path]:
    """The lock of a server that is alive."""
    home.mkdir(parents=True)
    lock = home / "server.lock"
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lock


def test_no_heavy_module_is_imported_for_help_or_a_listing(env: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from trainshed.cli import main\n"
        "try: main(sys.argv[1:], prog_name='trainshed')\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    for words in (
        *(["--help"], ["jobs", "list"], ["jobs", "--help"], ["buckets", "ls"]),
        *(["models", "list"], ["versions", "list", "--model", "m"], ["versions", "create", "--help"]),
        ["predict", "--model", "m", "--json-instances", os.devnull],
    ):
        done = subprocess.run([sys.executable, "-c", program, *words], env=env, capture_output=True, text=True)
        assert done.stderr.splitlines()[-1] == "[]", words


def test_starting_up_costs_little_more_than_python_and_click(env: dict[str, str]) -> None:
    bare = cpu_s([sys.executable, "-c", "import click, http.client, json"], env)
    assert cpu_s([sys.executable, "-m", "trainshed.cli", "--help"], env) < 3 * bare
    assert cpu_s([sys.executable, "-m", "trainshed.cli", "jobs", "list"], env, status=1) < 3 * bare


def test_without_a_server_a_command_says_how_to_start_one(run: Any, home: Path) -> None:
    done = run("jobs", "list")
    assert done.exit_code == 1
    assert done.stderr == (
        f"ERROR: (trainshed.jobs.list) No Trainshed server is running for {home}. Start one with: trainshed up\n"
    )
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("ml-engine", "jobs", "list"),
        ("ai-platform", "jobs", "list"),
        ("beta", "ml", "jobs", "list"),
        ("alpha", "ai-platform", "jobs", "list"),
        ("beta", "jobs", "list"),
        ("ml-engine", "models", "list"),
        ("ai-platform", "versions", "list", "--model", "m"),
        ("beta", "ml", "models", "describe", "m"),
        ("ml-engine", "versions", "set-default", "--model", "m", "v1"),
    ],
)
def test_old_words_for_the_same_commands_work_as_typed(run: Any, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 1
    assert re.match(rf"ERROR: \(trainshed\.{words[0]}\.[\w.-]+\) No Trainshed server is running", done.stderr)


def test_old_words_are_not_shown_in_the_help(run: Any) -> None:
    shown = run("--help").output
    assert "ml-engine" not in shown
    assert "beta" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("jobs", "describe"), "Missing argument 'JOB'."),
        (("nonsense",), "No such command 'nonsense'."),
        (("jobs", "list", "--nonsense"), "No such option"),
        (("jobs", "list", "--limit", "0"), "Invalid value for '--limit'"),
        (("jobs", "submit", "training", "j", "extra"), "Got unexpected extra argument (extra)"),
    ],
)
def test_a_bad_command_line_is_exit_status_2_with_its_usage(run: Any, words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Usage: trainshed" in done.stderr
    assert done.stdout == ""


def test_status_and_down_know_that_nothing_runs(run: Any) -> None:
    status = run("status")
    assert (status.exit_code, status.stdout) == (1, "")
    assert "Start one with: trainshed up" in status.stderr
    down = run("down")
    assert (down.exit_code, down.stderr) == (0, "No server is running.\n")


def test_an_announcement_without_the_lock_is_not_believed(run: Any, home: Path) -> None:
    """Whoever has the pid by now may be anyone: it must not be signalled."""
    home.mkdir()
    (home / "server.lock").touch()
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (home / "server.json").write_text(json.dumps(_announcement(home, stranger.pid)))
        assert run("status").exit_code == 1
        assert run("down").stderr == "No server is running.\n"
        assert stranger.poll() is None
    finally:
        stranger.communicate(b"\n")


def test_status_tells_of_the_server_that_holds_the_lock(run: Any, home: Path, held_lock: Path) -> None:
    (home / "server.json").write_text(json.dumps(_announcement(home, os.getpid())))
    told = json.loads(run("status", "--format", "json").stdout)
    said = {name: value for name, value in _announcement(home, os.getpid()).items() if value != ""}
    assert told == said | {"console": "http://127.0.0.1:1/"}
    assert run("status", "--format", "value(url,pid)").stdout == f"http://127.0.0.1:1\t{os.getpid()}\n"


def test_status_says_that_the_fast_path_is_off(run: Any, home: Path, held_lock: Path) -> None:
    reason = unknown_versions({"uvicorn": "0.999.1", "httptools": "0.999"})
    announced = _announcement(home, os.getpid()) | {"fast_path_off_reason": reason}
    (home / "server.json").write_text(json.dumps(announced))
    assert json.loads(run("status", "--format", "json").stdout)["fast_path_off_reason"] == reason
    assert yaml.safe_load(run("status").stdout)["fast_path_off_reason"] == reason


def test_up_says_that_the_server_runs_already(run: Any, home: Path, held_lock: Path) -> None:
    (home / "server.json").write_text(json.dumps(_announcement(home, os.getpid())))
    done = run("up")
    assert done.exit_code == 0
    assert f"already running at http://127.0.0.1:1 (process {os.getpid()})" in done.stderr


def test_what_a_dead_server_left_is_not_taken_for_the_word_of_the_next(run: Any, home: Path, held_lock: Path) -> None:
    """The next one holds the lock already, but has not announced itself; the pid in the file may be a stranger's."""
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (home / "server.json").write_text(json.dumps(_announcement(home, stranger.pid)))
        assert run("status").exit_code == 1
        assert "may be starting" in run("down").stderr
        assert stranger.poll() is None
    finally:
        stranger.communicate(b"\n")


def test_down_leaves_a_lock_holder_alone_that_does_not_say_who_it_is(run: Any, held_lock: Path) -> None:
    done = run("down")
    assert done.exit_code == 1
    assert "may be starting" in done.stderr


def _announcement(home: Path, pid: int) -> dict[str, Any]:
    urls = {"url": "http://127.0.0.1:1", "tls_url": "https://127.0.0.1:2"}
    return urls | {
        "pid": pid,
        "home": str(home),
        "version": "0",
        "fast_path_off_reason": "",
        "sandbox": "full",
        "sandbox_reason": "",
        "limits": "cgroups",
        "limits_reason": "",
        "network": "own",
        "network_reason": "",
    }


def test_settings_are_written_checked_read_and_removed(run: Any, home: Path) -> None:
    assert run("config", "get", "project").stdout == "trainshed\n"
    assert run("config", "set", "project", "my-project").stderr == "Updated property [core/project].\n"
    assert run("config", "set", "server/port", "9000").exit_code == 0
    assert run("config", "set", "authentication", "no").exit_code == 0
    assert tomllib.loads((home / "config.toml").read_text()) == {
        "client": {"project": "my-project"},
        "server": {"port": 9000, "authentication": False},
    }
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert run("config", "get", "core/project").stdout == "my-project\n"
    assert run("config", "get", "port").stdout == "9000\n"
    assert run("config", "get", "tls_port").stdout == "8471\n"
    assert (
        run("config", "list").stdout == "[core]\nproject = my-project\n[server]\nport = 9000\nauthentication = false\n"
    )
    assert run("config", "unset", "server/port").exit_code == 0
    assert run("config", "get", "port").stdout == "8470\n"
    assert run("config", "unset", "server/port").exit_code == 0


def test_machines_and_buckets_survive_a_change_of_settings(run: Any, home: Path) -> None:
    home.mkdir(exist_ok=True)
    machine = {"cpu": 8, "memory_gb": 30.5, "gpu": 1, "resources": {"accelerator_type:T4": 1}}
    text = '[machines.big]\ncpu = 8\nmemory_gb = 30.5\ngpu = 1\nresources = {"accelerator_type:T4" = 1}\n'
    text += '[buckets.lab-data]\nurl = "s3://lab"\n[buckets."lab.data"]\nurl = "s3://lab/x"\nproject = "p-one"\n'
    (home / "config.toml").write_text(text)
    assert run("config", "set", "server/port", "9000").exit_code == 0
    assert tomllib.loads((home / "config.toml").read_text()) == {
        "server": {"port": 9000},
        "machines": {"big": machine},
        "buckets": {"lab-data": {"url": "s3://lab"}, "lab.data": {"url": "s3://lab/x", "project": "p-one"}},
    }


def test_the_tutorials_way_of_asking_for_the_project_works(run: Any) -> None:
    run("config", "set", "project", "my-project")
    assert run("config", "list", "project", "--format", "value(core.project)").stdout == "my-project\n"


def test_any_text_survives_being_a_setting(run: Any, home: Path) -> None:
    url = 'postgresql://u:p"\\\t\x7f@h/d'
    assert run("config", "set", "server/database", url).exit_code == 0
    assert tomllib.loads((home / "config.toml").read_text())["server"]["database"] == url


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("server/prot", "1"), "There is no property [server/prot]"),
        (("nonsense/port", "1"), "There is no property [nonsense/port]"),
        (("port", "many"), "must be a whole number"),
        (("port", "-1"), ""),
        (("project", "No Project"), "A project id is"),
    ],
)
def test_a_setting_that_makes_no_sense_changes_nothing(
    run: Any, home: Path, words: tuple[str, ...], message: str
) -> None:
    done = run("config", "set", *words)
    assert done.exit_code in (1, 2)
    assert message in done.stderr
    assert not (home / "config.toml").exists()


def test_up_says_what_is_wrong_with_a_setting_and_starts_nothing(run: Any, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[server]\nprot = 1\n")
    done = run("up")
    assert done.exit_code == 1
    assert "Unknown setting prot in config.toml" in done.stderr
    assert not (home / "server.log").exists()


def test_the_token_is_printed_by_print_access_token_alone(run: Any, home: Path) -> None:
    missing = run("auth", "print-access-token")
    assert (missing.exit_code, missing.stdout) == (1, "")
    home.mkdir()
    (home / "token").write_text("secret\n")
    assert run("auth", "print-access-token").stdout == "secret\n"


def test_the_servers_log_is_shown_whole_or_by_its_end(run: Any, home: Path) -> None:
    assert "There is no log yet" in run("logs").stderr
    home.mkdir()
    (home / "server.log").write_bytes(b"one\ntwo\n\xff three\n")
    assert run("logs").stdout_bytes == b"one\ntwo\n\xff three\n"
    assert run("logs", "--tail", "2").stdout_bytes == b"two\n\xff three\n"
    assert run("logs", "--tail", "0").stdout_bytes == b""
