"""`trainshed demo` without a server: what is shown, which folders it takes, what it tells a server."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from trainshed.cli import main
from trainshed.cli.workspace import demo as command
from trainshed.cli.workspace.demo_display import Board, Lines, Stage, picture, show_board
from trainshed.client.demo import _report_args
from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.local import demo as local


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board([Stage("server", "Start a server"), Stage("training", "Train")], clock=clock)


def drawn(board: Board, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(picture(board))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_lines_say_when_a_stage_begins_comes_further_and_ends(board: Board, clock: Clock) -> None:
    lines: list[str] = []
    board.notify = Lines(board, lines.append).show
    with board.stage("server") as stage:
        clock.now_s += 2
        stage.text = "http://127.0.0.1:1"
    with board.stage("training") as stage:
        board.update(stage, "step 1 of 100", 0.01)  # neither late nor far enough
        board.update(stage, "step 12 of 100", 0.12, ("Evaluated at step 10: accuracy 0.9.", "master 0"))
        board.update(stage, "step 13 of 100", 0.13)
        clock.now_s += 10
        board.update(stage, "step 14 of 100", 0.14)
        clock.now_s += 10
        board.update(stage, "step 14 of 100", 0.14)  # nothing new
        stage.text = "accuracy 0.980"
    assert lines == [
        "[1/2] Start a server ...",
        "[1/2] Start a server: http://127.0.0.1:1 (2 s)",
        "[2/2] Train ...",
        "[2/2] Train: 12 %  step 12 of 100; Evaluated at step 10: accuracy 0.9; master 0",
        "[2/2] Train: 14 %  step 14 of 100",
        "[2/2] Train: accuracy 0.980 (20 s)",
    ]
    assert board.seconds() == {"server": 2.0, "training": 20.0, "total": 22.0}


@pytest.mark.parametrize(("error", "word"), [(ValueError(), "failed"), (KeyboardInterrupt(), "stopped")])
def test_a_stage_that_does_not_end_well_is_shown_so(
    board: Board, clock: Clock, error: BaseException, word: str
) -> None:
    lines: list[str] = []
    board.notify = Lines(board, lines.append).show
    with pytest.raises(type(error)), board.stage("server") as stage:
        clock.now_s += 3
        board.update(stage, "In /tmp/demo")
        raise error
    assert lines[-1] == f"[1/2] Start a server: {word} after 3 s"
    mark = {"failed": "✗", "stopped": "■"}[word]
    assert [line[:16] for line in drawn(board)[1:3]] == [f"{mark} Start a server", "  In /tmp/demo"]


def test_the_live_view_has_results_a_bar_what_runs_and_a_link(board: Board, clock: Clock) -> None:
    with board.stage("server") as stage:
        stage.text = "http://127.0.0.1:1"
    board.link = "http://127.0.0.1:1/console/enter?code=abc"
    with board.stage("training") as stage:
        clock.now_s += 72
        board.update(stage, "step 25 of 100, accuracy 0.7", 0.25, ("master 0, worker 0: CPU 90 %, 1.2 GiB",))
        show_board = drawn(board)
        stage.text = "accuracy 0.980"
    assert show_board[0] == "Trainshed demo, stage 2 of 2, 1 min 12 s"
    assert show_board[1].split() == ["✓", "Start", "a", "server", "http://127.0.0.1:1", "0", "s"]
    assert show_board[2].endswith("1 min 12 s")
    assert show_board[3].startswith("  ━━━━━━━━━━")
    assert show_board[3].endswith("25 %")
    assert show_board[4:6] == ["  step 25 of 100, accuracy 0.7", "  master 0, worker 0: CPU 90 %, 1.2 GiB"]
    assert "Console  http://127.0.0.1:1/console/enter?code=abc" in show_board[7]
    done = drawn(board)
    assert "accuracy 0.980" in done[2]
    assert not [line for line in done if "Ctrl-C" in line or "%" in line]


def test_a_narrow_terminal_cuts_nothing_off(board: Board) -> None:
    link = "http://127.0.0.1:12345/console/enter?code=" + "x" * 43
    with board.stage("server") as stage:
        board.link = link
        board.update(stage, "a sentence that is longer than the forty columns of this terminal", 0.5)
        text = drawn(board, width=40)
    assert max(map(len, text)) <= 40
    assert link in "".join(line.strip() for line in text)
    assert "a sentence that is longer than the forty columns of this terminal" in " ".join(
        line.strip() for line in text
    )


def test_there_is_a_live_view_on_a_terminal_only(board: Board) -> None:
    for terminal in (True, False):
        lines: list[str] = []
        output = io.StringIO()
        console = Console(file=output, force_terminal=terminal, _environ={"TERM": "xterm"}, width=80)
        with show_board(board, console, lines.append), board.stage("server") as stage:
            stage.text = "ready"
        assert bool(lines) is not terminal
        assert ("✓" in output.getvalue()) is terminal


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(board: Board) -> None:
    lines: list[str] = []
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    with show_board(board, console, lines.append), board.stage("server") as stage:
        stage.text = "ready"
    assert lines[-1] == "[1/2] Start a server: ready (0 s)"


def test_the_progress_of_a_job_in_words() -> None:
    replica = {"name": "worker-replica-0", "state": "running", "cpu": 0.5, "memoryBytes": 1 << 30}
    found: dict[str, Any] = {"state": "QUEUED", "progress": None, "waiting": "It is next.", "replicas": []}
    assert _report_args("mnist_1", found) == ("Job mnist_1 is QUEUED. It is next.", None, ())
    found |= {"state": "RUNNING", "waiting": "", "replicas": [replica]}
    assert _report_args("mnist_1", found) == (
        "The replicas of job mnist_1 start.",
        None,
        ("worker 0: CPU 50 %, 1.0 GiB",),
    )


# Folders.


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "mine")
    home.path.mkdir()
    (home.path / "state.db").touch()
    with pytest.raises(CannotProceedError, match="no demo made it"), local.hold_lock(home):
        pass
    assert [path.name for path in home.path.iterdir()] == ["state.db"]


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path / "demo")
    with local.hold_lock(home), pytest.raises(CannotProceedError, match="A demo runs in"), local.hold_lock(home):
        pass
    with local.hold_lock(home):
        pass


def test_removal_follows_no_links_and_leaves_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    home = Home(tmp_path / "demo")
    with local.hold_lock(home):
        (home.path / "runtimes").symlink_to(outside)
        (home.path / "buckets" / "b").mkdir(parents=True)
        (home.path / "buckets" / "b" / "object").touch()
        local.remove(home)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "kept").exists()


# The command.


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in list(os.environ):
        if name.startswith("TRAINSHED_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, ("demo", *words), prog_name="trainshed")

    return invoke


def test_cleaning_up_where_no_demo_was_says_so(run: Any, tmp_path: Path) -> None:
    done = run("--clean")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"There is no demo in {tmp_path}/.trainshed-demo: nothing to remove.\n"


def test_the_users_own_state_folder_is_neither_used_nor_removed(run: Any, tmp_path: Path) -> None:
    own = tmp_path / ".trainshed"
    own.mkdir()
    (own / "token").write_text("secret")
    for words in ((), ("--clean",)):
        done = run("--home", str(own), *words)
        assert done.exit_code == 1
        assert done.stderr.startswith(f"ERROR: (trainshed.demo) The folder {own} is not empty, and no demo made it.")
    assert (own / "token").read_text() == "secret"
    assert [path.name for path in own.iterdir()] == ["token"]


def test_what_is_set_for_another_server_does_not_reach_the_demos(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_SERVER_DATABASE", "postgresql://theirs")
    monkeypatch.setenv("TRAINSHED_URL", "http://127.0.0.1:9")
    env = command._server_environment(Home(tmp_path / "demo"))
    assert {name: value for name, value in env.items() if name.startswith("TRAINSHED_")} == {
        "TRAINSHED_HOME": str(tmp_path / "demo"),
        "TRAINSHED_SERVER_GS_IN_TRAINERS": "trainshed",
    }


def test_a_printed_command_line_reaches_the_demos_server_whatever_is_set(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINSHED_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TRAINSHED_PROJECT", "theirs")
    home = Home(tmp_path / "a demo")
    words = shlex.split(command._command("jobs", "list", home=home))
    assert words[:3] == [f"TRAINSHED_HOME={home.path}", "TRAINSHED_URL=", "TRAINSHED_PROJECT=trainshed"]
    assert words[-2:] == ["jobs", "list"]


def test_the_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom trainshed.cli import main\n"
        "try: main(['demo', '--help'], prog_name='trainshed')\nexcept SystemExit: pass\n"
        "names = ('rich', 'yaml', 'psutil', 'orjson', 'asyncio', 'setuptools')\n"
        "import json; print(json.dumps([name for name in names if name in sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stderr) == []


def test_a_second_demo_says_that_one_runs(run: Any, tmp_path: Path) -> None:
    home = tmp_path / ".trainshed-demo"
    home.mkdir()
    with open(home / local.MARKER, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in ((), ("--clean",)):
            done = run(*words)
            assert done.exit_code == 1
            assert "A demo runs in" in done.stderr
    assert home.is_dir()
