"""Take the picture of `trainshed demo` that README.md shows: the lines of a real run.

python docs/site/demo_picture.py    # some minutes on two cores, with the runtimes of the tests
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from trainshed.local.demo import MARKER
from trainshed.testing.cache import link_runtimes

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
TRAINSHED = Path(sys.executable).with_name("trainshed")
WIDTH = 124
FONT = "DejaVu Sans Mono"
PROGRESS_LINES = 5  #: of the training; it reports a line every few seconds
_STEP = re.compile(r"^\[\d/\d\] ")
_REPORT = re.compile(r"^\[\d/\d\] [^:]+: +\d+ %")
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_CODE = re.compile(r"(?<=code=)[\w-]+")


def run_demo(home: Path) -> str:
    """Run the demo on a state folder of its own, and remove it. Returns what a person reads, without a terminal."""
    link_runtimes(home)
    (home / MARKER).touch()
    command = [str(TRAINSHED), "demo", "--home", str(home)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    finally:
        subprocess.run([*command, "--clean"], check=True, stderr=subprocess.DEVNULL)
    return done.stdout.replace(str(TRAINSHED), "trainshed").replace(f"TRAINSHED_HOME={home} ", "")


def shown_lines(output: str) -> list[str]:
    """Return the lines for the picture: the end of every step, some reports of the training, and the result."""
    lines = output.partition("\nNext")[0].splitlines()
    training = [line for line in lines if _REPORT.match(line) and "Train" in line]
    kept = training[:: max(1, len(training) // PROGRESS_LINES)]
    ends = [line for line in lines if not _REPORT.match(line) and not line.endswith(" ...")]
    wanted = {*kept, *ends}
    shown = [line.partition("; ")[0] if _STEP.match(line) else line for line in lines if line in wanted]
    return [_CODE.sub("…", _PORT.sub("8470", line)) for line in shown]


def picture(lines: list[str]) -> str:
    """Draw a terminal. The fonts are the reader's own: the picture names no other host."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ trainshed demo", style="bold green"))
    for line in lines:
        text = Text(line)
        if _STEP.match(line):
            text.stylize("bold", 0, line.find(":") if ":" in line else len(line))
        console.print(text, no_wrap=True, overflow="ellipsis")
    template = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = template.replace("Fira Code", FONT)
    return console.export_svg(title="trainshed demo", code_format=template)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        output = run_demo(Path(folder) / "home")
    PICTURE.write_text(picture(shown_lines(output)))
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
