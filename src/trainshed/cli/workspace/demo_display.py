"""Display of the stages of `trainshed demo`: a live view on a terminal, lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainshed.client.job_format import duration, percent

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WAITING, RUNNING, DONE, STOPPED, FAILED = "waiting", "running", "done", "stopped", "failed"
LINE_INTERVAL_S = 10.0  #: between two lines of one stage, unless it advances by LINE_SHARE
LINE_SHARE = 0.1
_MARKS = {
    WAITING: ("·", "dim"),
    RUNNING: ("▸", "bold cyan"),
    DONE: ("✓", "green"),
    STOPPED: ("■", "bold yellow"),
    FAILED: ("✗", "bold red"),
}
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.1
_BAR_COLUMNS = 40


@dataclass(slots=True)
class Stage:
    """One stage. Once it is done, `text` is its result."""

    key: str
    title: str
    state: str = WAITING
    text: str = ""
    fraction: float | None = None
    more: tuple[str, ...] = ()
    began_s: float = 0.0
    ended_s: float = 0.0

    def seconds(self, now_s: float) -> float:
        """Return how long it takes so far, or took."""
        if self.state == WAITING:
            return 0.0
        return (now_s if self.state == RUNNING else self.ended_s) - self.began_s


@dataclass(slots=True)
class Board:
    """All stages. `notify` is called after each change of a stage."""

    stages: Sequence[Stage]
    clock: Callable[[], float] = time.monotonic
    notify: Callable[[Stage], None] = lambda stage: None
    link: str = ""  #: signs a browser in
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    @contextmanager
    def stage(self, key: str) -> Iterator[Stage]:
        """Run one stage. It is done when the block ends, stopped after Ctrl-C, and failed if the block raises."""
        stage = next(each for each in self.stages if each.key == key)
        stage.state, stage.began_s = RUNNING, self.clock()
        self.notify(stage)
        try:
            yield stage
        except BaseException as exc:
            stage.state = STOPPED if isinstance(exc, KeyboardInterrupt) else FAILED
            raise
        else:
            stage.state, stage.more, stage.fraction = DONE, (), None
        finally:
            stage.ended_s = self.clock()
            self.notify(stage)

    def update(self, stage: Stage, text: str, fraction: float | None = None, more: tuple[str, ...] = ()) -> None:
        """Set the progress of a stage that runs."""
        stage.text, stage.fraction, stage.more = text, fraction, more
        self.notify(stage)

    def seconds(self) -> dict[str, float]:
        """Return the seconds by stage, and in total."""
        now_s = self.clock()
        return {each.key: round(each.seconds(now_s), 1) for each in self.stages} | {
            "total": round(now_s - self.began_s, 1)
        }


class Lines:
    """Writes a line when a stage starts and ends, and now and then in between."""

    def __init__(self, board: Board, write: Callable[[str], None]) -> None:
        self._board = board
        self._write = write
        self._shown_s = 0.0
        self._shown_fraction = 0.0
        self._shown_text = ""

    def show(self, stage: Stage) -> None:
        """Write the line of a stage that changed, if it is due."""
        number = 1 + list(self._board.stages).index(stage)
        head = f"[{number}/{len(self._board.stages)}] {stage.title}"
        took = duration(stage.seconds(self._board.clock()))
        if stage.state == DONE:
            self._write(f"{head}: {stage.text} ({took})")
        elif stage.state in (STOPPED, FAILED):
            self._write(f"{head}: {stage.state} after {took}")
        elif not stage.text:
            self._remember(stage)
            self._write(f"{head} ...")
        elif self._due(stage):
            self._remember(stage)
            texts = (percent(stage.fraction, "{}  ") + stage.text, *stage.more)
            self._write(f"{head}: {'; '.join(text.rstrip('.') for text in texts)}")

    def _due(self, stage: Stage) -> bool:
        if stage.text == self._shown_text:
            return False
        further = (stage.fraction or 0.0) - self._shown_fraction >= LINE_SHARE
        return further or self._board.clock() - self._shown_s >= LINE_INTERVAL_S

    def _remember(self, stage: Stage) -> None:
        self._shown_s, self._shown_text = self._board.clock(), stage.text
        self._shown_fraction = stage.fraction or 0.0


@contextmanager
def show_board(board: Board, console: Console, write: Callable[[str], None]) -> Iterator[None]:
    """Show the board while the block runs: live if the console is a terminal that can move its cursor."""
    if not console.is_terminal or console.is_dumb_terminal:
        board.notify = Lines(board, write).show
        yield
        return
    from rich.live import Live

    with Live(get_renderable=lambda: picture(board), console=console, refresh_per_second=8) as live:
        try:
            yield
        finally:
            board.link = ""  # expired by the time anyone reads the final screen
            live.refresh()


def picture(board: Board) -> RenderableType:
    """Return all stages, each with its result, and the current one with a bar and its activity."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    now_s = board.clock()
    width = max(len(stage.title) for stage in board.stages)
    parts: list[RenderableType] = [_heading(board, now_s)]
    for stage in board.stages:
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(width=1)
        row.add_column(width=width)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        mark, style = _MARKS[stage.state]
        if stage.state == RUNNING:
            mark = _FRAMES[int(now_s / _FRAME_S) % len(_FRAMES)]
        result = stage.text if stage.state == DONE else ""
        took = "" if stage.state == WAITING else duration(stage.seconds(now_s))
        title_style = {WAITING: "dim", RUNNING: "bold"}.get(stage.state, "")
        row.add_row(
            Text(mark, style=style), Text(stage.title, style=title_style), Text(result), Text(took, style="dim")
        )
        parts.append(row)
        if stage.state in (RUNNING, STOPPED, FAILED):
            parts.extend(Padding(line, (0, 0, 0, 2)) for line in _details(stage))
    if board.link:
        parts += [
            Text(""),
            Text.assemble(("Console  ", "bold"), (board.link, f"cyan link {board.link}"), overflow="fold"),
        ]
    if any(stage.state == RUNNING for stage in board.stages):
        parts.append(Text("Ctrl-C stops the demo; the next run goes on from there.", style="dim"))
    return Group(*parts)


def _heading(board: Board, now_s: float) -> RenderableType:
    """Return the heading: Trainshed demo, stage 4 of 6, 1 min 12 s"""
    from rich.text import Text

    started = sum(stage.state != WAITING for stage in board.stages)
    total_s = duration(now_s - board.began_s)
    return Text.assemble(("Trainshed demo", "bold"), (f", stage {started} of {len(board.stages)}, {total_s}", "dim"))


def _details(stage: Stage) -> Iterator[RenderableType]:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if stage.fraction is not None:
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=1.0, completed=stage.fraction, width=_BAR_COLUMNS), percent(stage.fraction))
        yield row
    for line in filter(None, (stage.text, *stage.more)):
        yield Text(line, style="dim" if line in stage.more else "")
