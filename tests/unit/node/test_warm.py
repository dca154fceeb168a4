"""A module must not be able to tell whether it was started warm or cold, and is started cold where it could."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainshed.config import Home, Settings
from trainshed.domain.jobs.reconcile import AttemptPhase
from trainshed.engines.base import AttemptSpec, Replica
from trainshed.engines.local.engine import LocalEngine
from trainshed.errors import CannotProceedError
from trainshed.node.warm import compatibility
from trainshed.node.warm.preload import PreloadedTensorFlow
from trainshed.runtimes.catalogue import CATALOGUE
from trainshed.testing.contracts.engines import settle
from trainshed.testing.eventually import eventually

PYTHON = Path(sys.executable)
UV = Path(shutil.which("uv", path=f"{PYTHON.parent}") or shutil.which("uv") or "uv")
MODULES = ("multiprocessing.util", "tempfile", "decimal")

LOOK = """
import atexit, faulthandler, gc, json, os, signal, sys, tempfile, threading, time
handlers = {}
for number in range(1, 65):
    try:
        handlers[number] = str(signal.getsignal(number))
    except ValueError:
        pass
main = sys.modules["__main__"]
streams = [
    (s.encoding, s.errors, s.line_buffering, s.write_through, s.name, s.mode, s.isatty(), type(s.buffer).__name__)
    for s in (sys.stdin, sys.stdout, sys.stderr)
]
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print("SEEN " + json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "env": dict(os.environ), "cwd": os.getcwd(),
    "c_env": os.popen("env | sort").read(), "handlers": handlers, "fds": sorted(os.listdir("/proc/self/fd")),
    "links": [os.readlink("/proc/self/fd/0")], "streams": streams, "flags": str(sys.flags), "exe": sys.executable,
    "prefix": [sys.prefix, sys.base_prefix, sys.exec_prefix], "name": __name__, "file": __file__,
    "package": __package__, "spec": [__spec__.name, __spec__.origin], "doc": __doc__,
    "globals": sorted(n for n in vars(main) if n.startswith("__")),
    "main_is_this": main.__dict__ is globals(), "leader": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid()],
    "oom": open("/proc/self/oom_score_adj").read(), "umask": os.umask(0o77), "comm": status["Name"],
    "masks": [status[n] for n in ("SigBlk", "SigIgn", "SigCgt")], "privileges": status.get("NoNewPrivs"),
    "threads": [t.name for t in threading.enumerate()], "gc": [gc.isenabled(), gc.get_threshold()],
    "main_thread": threading.current_thread() is threading.main_thread(),
    "recursion": sys.getrecursionlimit(), "faulthandler": faulthandler.is_enabled(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile()], "warn": sys.warnoptions,
    "tmp": tempfile.gettempdir(), "zone": time.tzname, "ours": [n for n in sys.modules if "trainshed_node" in n],
    "bytecode": sys.dont_write_bytecode, "utf8": sys.flags.utf8_mode, "fsencoding": sys.getfilesystemencoding(),
}))
"""

#: Ways to end, by name. Each is run both ways; exit status, signal and every line must agree.
ENDS = {
    "silently": "pass",
    "with a status": "import sys; sys.exit(3)",
    "with a negative status": "import sys; sys.exit(-1)",
    "with nothing": "import sys; sys.exit()",
    "with words": "import sys; print('out'); sys.exit('no more')",
    "with an object": "import sys; sys.exit({'a': 1})",
    "with true": "raise SystemExit(True)",
    "with an error": "def f():\n    raise ValueError('deep')\nf()",
    "with a chain": "try:\n    1 / 0\nexcept ZeroDivisionError as exc:\n    raise KeyError('k') from exc",
    "with a syntax error": "exec('x = = 1')",
    "by an import of nothing": "import nothing_of_this_name",
    "by SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "by SIGTERM": "import os, time; os.kill(os.getpid(), 15); time.sleep(9)",
    "by Ctrl-C": "import atexit; atexit.register(print, 'bye'); raise KeyboardInterrupt",
    "by abort": "import os; os.abort()",
    "by _exit": "import os; print('gone', end=''); os._exit(5)",
    "after atexit": "import atexit; atexit.register(print, 'first'); atexit.register(print, 'last'); print('body')",
    "with an error in atexit": "import atexit; atexit.register(lambda: 1 / 0)",
    "after threads": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()
print('main')
""",
    "with an error in a thread": """
import threading
thread = threading.Thread(target=lambda: 1 / 0, name='T')
thread.start()
thread.join()
""",
    "with a hook": """
import sys
sys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_frame.f_code.co_name)
1 / 0
""",
    "with a broken hook": "import sys\ndef hook(*a):\n    raise OSError('hook')\nsys.excepthook = hook\n1 / 0",
    "with a hook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(7)\n1 / 0",
    "without a line end": "import sys\nsys.stdout.write('half'); sys.stderr.write('other half')",
    "with a destructor": "class A:\n    def __del__(self):\n        print('destroyed')\na = A()",
    "with a buffer": "import os, sys\nf = os.fdopen(os.dup(1), 'w')\nf.write('buffered')\nsys.exit(4)",
    "with a child": """
import subprocess, sys
code = 'import sys; print(sys.path[1:]); sys.exit(6)'
print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True))
""",
    "with a fork": """
import os
if os.fork() == 0:
    print('child')
    os._exit(2)
print(os.waitstatus_to_exitcode(os.wait()[1]))
""",
    "with an alarm": """
import signal
import time
rung = []
signal.signal(signal.SIGALRM, lambda *a: rung.append(print('alarm')))
signal.setitimer(signal.ITIMER_REAL, 0.05)
while not rung:
    time.sleep(0.01)
""",
    "with warnings": "import warnings; warnings.warn('careful')",
    "with a pool": """
import multiprocessing
def square(n):
    return n * n
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(3)))
""",
    "with a queue": """
import multiprocessing
def put(queue):
    queue.put(multiprocessing.current_process().name)
if __name__ == '__main__':
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    process = context.Process(target=put, args=(queue,), name='P')
    process.start()
    print(queue.get(), multiprocessing.parent_process())
    process.join()
""",
}


STARTED_WARM = "Started warm: the modules of the runtime were imported beforehand."


@dataclass(frozen=True)
class Done:
    lines: list[str]
    exits: list[tuple[int | None, int | None]]  #: status and signal, of each copy of the replica if it was restarted
    start: str

    def printed(self) -> list[str]:
        """What the module wrote, sorted, because its two streams are two pipes; addresses left out."""
        return sorted(re.sub("0x[0-9a-f]+", "0x", line) for line in self.lines if line != STARTED_WARM)


class Ways:
    """One engine with a warm process and one without, on the same trainers."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.code = tmp_path / "code"
        self.code.mkdir()
        self.cold = LocalEngine(Home(tmp_path / "cold-home"), UV)
        self.warm = LocalEngine(Home(tmp_path / "warm-home"), UV, {PYTHON: MODULES})
        self._count = 0

    def warm_up(self, **env: str) -> None:
        assert self.run(self.warm, "first", "pass", **env).start == "cold"
        eventually(lambda: list((self.tmp_path / "warm-home" / "warm").glob("*/socket")))

    def run(self, engine: LocalEngine, name: str, code: str, module: str = "trainer.task", **env: str) -> Done:
        folder = self.tmp_path / "attempt"  # the same for all, so that what they print can be compared
        shutil.rmtree(folder, ignore_errors=True)
        package = self.code / "trainer"
        shutil.rmtree(package, ignore_errors=True)
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "task.py").write_text(code)
        engine.observe([])
        launch = AttemptSpec(
            project="p",
            job=name,
            attempt=1,
            folder=folder,
            python=PYTHON,
            module=module,
            args=("--flag", "two words", ""),
            packages=(),
            site=self.tmp_path / "site",
            replicas=(Replica(name="master-replica-0", type="master", index=0, primary=True),),
            env={"PYTHONPATH": f"{self.code}:relative::{self.code}", "MINE": "é\n", **env},
            grace_s=5.0,
            max_running_s=60.0,
            log_limit_bytes=1 << 20,
        )
        engine.launch(launch)
        looking = LocalEngine(Home(self.tmp_path / "looking"), UV)  # remembers nothing of the attempt before
        settle(looking, folder, AttemptPhase.ENDED)
        events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
        [started] = [event for event in events if event["event"] == "supervisor_started"]
        exits = [(event["code"], event["signal"]) for event in events if event["event"] == "replica_exited"]
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        lines = [line["m"] for line in log if line["r"] == "master-replica-0"]
        return Done(lines, exits, started["start"])


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    made = Ways(tmp_path_factory.mktemp("ways"))
    made.warm_up()
    yield made
    made.warm.warm.close()


def _seen(done: Done) -> dict[str, Any]:
    [line] = [line for line in done.lines if line.startswith("SEEN ")]
    seen: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return seen


def test_a_module_sees_the_same(ways: Ways) -> None:
    cold, warm = ways.run(ways.cold, "look", LOOK), ways.run(ways.warm, "look", LOOK)
    assert (cold.start, warm.start) == ("cold", "warm")
    assert STARTED_WARM in warm.lines
    for what, value in _seen(cold).items():
        assert (what, _seen(warm)[what]) == (what, value)
    assert _seen(warm)["env"]["MINE"] == "é\n"


@pytest.mark.parametrize("name", ENDS)
def test_a_module_ends_the_same(ways: Ways, name: str) -> None:
    cold, warm = ways.run(ways.cold, "end", ENDS[name]), ways.run(ways.warm, "end", ENDS[name])
    assert warm.start == "warm"
    assert STARTED_WARM in warm.lines
    assert warm.printed() == cold.printed()
    assert warm.exits == cold.exits


@pytest.mark.parametrize("module", ["trainer.nowhere", "nowhere", "trainer"])
def test_a_module_that_is_not_there_is_missed_in_the_same_words(ways: Ways, module: str) -> None:
    cold, warm = ways.run(ways.cold, "end", "", module), ways.run(ways.warm, "end", "", module)
    assert warm.printed() == cold.printed()
    assert (warm.exits, warm.start) == (cold.exits, "warm")


def test_no_two_replicas_draw_the_same(ways: Ways) -> None:
    draw = "import random, multiprocessing as m\nprint('DRAWN', random.random(), m.current_process().authkey.hex())"
    drawn = [line for _ in range(3) for line in ways.run(ways.warm, "draw", draw).lines if line.startswith("DRAWN")]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'", "task.py names TF_ENABLE_ONEDNN_OPTS"),
        ("import os; os.environ['OMP_NUM_THREADS'] = '1'", "task.py names OMP_NUM_THREADS"),
    ],
)
def test_code_that_prepares_an_import_is_started_cold_and_told_so(ways: Ways, code: str, reason: str) -> None:
    done = ways.run(ways.warm, "prepares", code)
    assert done.exits == [(0, None)]
    [said] = [line for line in done.lines if line.startswith("Started ")]
    assert said.startswith(f"Started cold, with a new Python: {reason}")


@pytest.mark.parametrize("read", ["os.environ.get('OMP_NUM_THREADS')", "os.getenv( 'OMP_NUM_THREADS', '1')"])
def test_code_that_only_reads_such_a_variable_is_started_warm(ways: Ways, read: str) -> None:
    done = ways.run(ways.warm, "reads", f"import os; print('READ', {read})", OMP_NUM_THREADS="3")
    assert STARTED_WARM in done.lines
    assert "READ 3" in done.lines


def test_a_module_of_the_same_name_as_one_imported_is_the_one_that_counts(ways: Ways) -> None:
    (ways.code / "decimal.py").write_text("print('my own')")
    try:
        done = ways.run(ways.warm, "shadow", "import decimal")
    finally:
        (ways.code / "decimal.py").unlink()
    assert "my own" in done.lines
    assert "Started cold, with a new Python: the job has a module decimal of its own." in done.lines


def test_variables_that_python_reads_at_its_start_have_their_effect(ways: Ways) -> None:
    done = ways.run(ways.warm, "hash", "print('HASH', hash('x'))", PYTHONHASHSEED="0")
    again = ways.run(ways.cold, "hash", "print('HASH', hash('x'))", PYTHONHASHSEED="0")
    assert done.start == "cold"
    assert [line for line in done.lines if "HASH" in line] == [line for line in again.lines if "HASH" in line]


class TestFit:
    def test_only_what_is_read_once_is_baked(self) -> None:
        env = {"PATH": "/bin", "GCS_BUCKET": "mine", "TF_CONFIG": "{}", "PYTHONPATH": "/x", "PYTHONUNBUFFERED": "1"}
        assert compatibility.import_time_environment(env) == {}
        odd = {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TF_ENABLE_ONEDNN_OPTS": "0", "LD_PRELOAD": "x", "HOME": "/h"}
        assert compatibility.import_time_environment(env | odd) == odd
        torch = {"TORCH_LOGS": "+dynamo", "MKL_NUM_THREADS": "2", "OMP_DYNAMIC": "true"}
        assert compatibility.import_time_environment(env | torch | {"OMP_NUM_THREADS": "1"}) == torch

    def test_code_that_prepares_the_import_of_pytorch_is_a_misfit(self, tmp_path: Path) -> None:
        (tmp_path / "task.py").write_text("import os; os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'INFO'")
        reason = compatibility.cold_start_reason({"PYTHONPATH": str(tmp_path)}, "/nowhere", {})
        assert reason.startswith("task.py names TORCH_DISTRIBUTED_DEBUG")

    def test_a_variable_that_came_or_went_since_is_a_misfit(self, tmp_path: Path) -> None:
        assert compatibility.cold_start_reason({"LANG": "C"}, str(tmp_path), {"LANG": "C"}) == ""
        assert compatibility.cold_start_reason({}, str(tmp_path), {"LANG": "C"}).startswith("LANG ")
        assert compatibility.cold_start_reason({"LANG": "C"}, str(tmp_path), {}).startswith("LANG ")

    def test_a_variable_that_was_settled_since_is_a_misfit(self, tmp_path: Path) -> None:
        (tmp_path / "task.py").write_text("import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'")
        code, settled = {"PYTHONPATH": str(tmp_path)}, frozenset(["TF_CPP_MIN_LOG_LEVEL"])
        assert compatibility.cold_start_reason(code, "/nowhere", {}) == ""
        assert compatibility.cold_start_reason(code, "/nowhere", {}, settled).startswith(
            "task.py names TF_CPP_MIN_LOG_LEVEL"
        )
        assert compatibility.cold_start_reason({"TF_CPP_MIN_LOG_LEVEL": "2"}, "/nowhere", {}, settled).startswith(
            "TF_CPP_MIN_LOG_LEVEL is "
        )
        assert compatibility.cold_start_reason({"TF_CPP_MIN_LOG_LEVEL": "2"}, "/nowhere", {}) == ""

    def test_the_log_level_of_a_framework_is_settled_where_it_cannot_be_set_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "tensorflow.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
        gate = PreloadedTensorFlow()
        gate.load(["decimal"])
        assert gate.settled == frozenset()
        gate.load(["tensorflow"])
        assert gate.settled == {"TF_CPP_MIN_LOG_LEVEL"}

    def test_packages_that_share_a_name_space_are_compared_inside_it(self, tmp_path: Path) -> None:
        google, protobuf = types.ModuleType("google"), types.ModuleType("google.protobuf")
        google.__path__ = []
        protobuf.__file__ = "/site/google/protobuf/__init__.py"
        loaded = {"google": google, "google.protobuf": protobuf}
        (tmp_path / "google" / "cloud").mkdir(parents=True)
        assert compatibility.shadowed_module(str(tmp_path), loaded) == ""
        (tmp_path / "google" / "protobuf").mkdir()
        (tmp_path / "google" / "protobuf" / "__init__.py").touch()
        assert compatibility.shadowed_module(str(tmp_path), loaded) == "google.protobuf"

    def test_a_folder_without_code_hides_nothing(self, tmp_path: Path) -> None:
        numpy = types.ModuleType("numpy")
        numpy.__file__ = "/site/numpy/__init__.py"
        (tmp_path / "numpy").mkdir()
        assert compatibility.shadowed_module(str(tmp_path), {"numpy": numpy}) == ""
        (tmp_path / "numpy.cpython-311-x86_64-linux-gnu.so").touch()
        assert compatibility.shadowed_module(str(tmp_path), {"numpy": numpy}) == "numpy"

    def test_what_python_runs_at_its_start_is_run(self, tmp_path: Path) -> None:
        (tmp_path / "sitecustomize.py").touch()
        assert compatibility.shadowed_module(str(tmp_path), {}) == "sitecustomize"

    def test_very_much_code_is_not_looked_through(self, tmp_path: Path) -> None:
        with open(tmp_path / "large.py", "wb") as file:
            os.truncate(file.fileno(), 33 << 20)
        assert "too large" in compatibility.cold_start_reason({"PYTHONPATH": str(tmp_path)}, str(tmp_path / "work"), {})


def test_every_runtime_with_a_framework_has_a_warm_process() -> None:
    assert {name for name, runtime in CATALOGUE.items() if not runtime.warm} == {"python"}


def test_the_setting_is_auto_or_off() -> None:
    assert Settings.read({"TRAINSHED_SERVER_WARM_START": "off"}).warm_start == "off"
    with pytest.raises(CannotProceedError, match="auto or off"):
        Settings.read({"TRAINSHED_SERVER_WARM_START": "sometimes"})
