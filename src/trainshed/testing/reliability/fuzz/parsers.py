"""Looks for bytes that break a parser: every parser of what strangers send, by coverage, with Atheris.

python -m trainshed.testing.reliability.fuzz.parsers --seconds 60

Atheris goes to an environment of its own, which the first run makes below `.cache`. What it has found to reach new code
is kept there, so each run goes on from the last.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import CACHE
from trainshed.testing.reliability.checker import Violation
from trainshed.testing.reliability.code_under_test import SOURCE
from trainshed.testing.reliability.fuzz.table import MEMORY, parser_targets
from trainshed.testing.reliability.fuzz.targets import ParserTarget
from trainshed.testing.reliability.reports import FaultReport, record_report

ROW = "F75"
REQUIRES = ("atheris==3.*",)
FOLDER = CACHE / "fuzz"
INPUT_TIMEOUT_S = 20  #: for one input; the machine is shared
MAX_RSS_MB = 2048
_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVERED = re.compile(r"cov: (\d+)")
_FAILED = re.compile(r"^.*(?:UnexpectedParserError|ERROR: libFuzzer): ?.*$", re.MULTILINE)


def atheris_python() -> Path:
    """The interpreter of the environment with Atheris."""
    folder = FOLDER / f"python{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp = folder / "bin" / "python", folder / "complete"
    if not stamp.exists():
        uv = str(find_uv())
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *REQUIRES], check=True)
        stamp.touch()
    return python


def fuzz_parser(python: Path, target: ParserTarget, *, seconds: int, seed: int, crashes: Path) -> FaultReport:
    """Run one parser for a while. Inputs that break it are written to `crashes`."""
    corpus = FOLDER / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate((*target.seeds, *target.broken)):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={target.max_bytes}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={MAX_RSS_MB}",
        f"-artifact_prefix={crashes}/{target.name}-",
        "-print_final_stats=1",
    ]
    with _dictionary(target.words) as words:
        command = [str(python), "-m", "trainshed.testing.reliability.fuzz.guided", target.name, str(corpus)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE.parent), *site.getsitepackages()))}
        began_s = time.monotonic()
        done = subprocess.run([*command, *options, *words], env=environment, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode(errors="replace")  # the error of the parser comes first
    executed, covered = _EXECUTED.search(output), _COVERED.findall(output)
    report = FaultReport("inputs", int(executed[1]) if executed else 0, time.monotonic() - began_s)
    report.details = f"{target.name}, {covered[-1] if covered else 0} edges"
    if done.returncode != 0:
        reasons = _FAILED.findall(output) or [output[-2000:]]
        report.violations.append(Violation("5xx", f"{target.name}: {reasons[0][:2000]}"))
    return report


@contextmanager
def _dictionary(words: Sequence[bytes]) -> Iterator[list[str]]:
    """libFuzzer's option for words of a format."""
    with tempfile.NamedTemporaryFile("w", suffix=".dict") as file:
        file.writelines('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word)) for word in words if len(word) < 60)
        file.flush()
        yield [f"-dict={file.name}"] if words else []


@click.command()
@click.option("--seconds", default=30, show_default=True, help="For each parser.")
@click.option("--seed", default=1, show_default=True, help="For the mutations.")
@click.option("--target", "names", multiple=True, help="A parser, instead of all. Can be repeated.")
@click.option("--record", "recorded", is_flag=True, help="Add the figures to docs/reliability.md.")
def main(seconds: int, seed: int, names: Sequence[str], recorded: bool) -> None:
    """Look for inputs that break a parser. Keeps those that do."""
    crashes = Path(tempfile.mkdtemp(prefix="parsers-"))
    python, failed = atheris_python(), False
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        targets = parser_targets(Path(folder))
        for name in names or targets:
            report = fuzz_parser(python, targets[name], seconds=seconds, seed=seed, crashes=crashes)
            click.echo(str(report))
            for each in report.violations:
                click.echo(f"  {each}", err=True)
            failed = failed or bool(report.violations)
            if recorded:
                record_report(ROW, report)
    if failed:
        click.echo(f"The inputs are kept: {crashes}", err=True)
        sys.exit(1)
    crashes.rmdir()


if __name__ == "__main__":
    main()
