"""Runs `python -m MODULE` in a fork: changes what must change for it to look like a new process."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
import types

from .compatibility import THREAD_VARIABLES
from .preload import mapped_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

_OPENMP_THREADS = "OMP_NUM_THREADS"  #: all that PyTorch follows of these variables without MKL's own
_SET_THREADS_SYMBOLS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads",
)


def run_as_main(argv: list[str], env: dict[str, str], path: list[str], ready: Callable[[], None]) -> None:
    """Run `argv`, which is [python, "-m", module, ...], in the current folder, and exit as Python would. Never returns.

    `path` is the rest of sys.path, after that folder and PYTHONPATH. `ready` is called right before the module runs.
    """
    import runpy

    status: Optional[int] = 0
    failure: Optional[BaseException] = None
    try:
        _prepare_process(argv, env, path)
        ready()
        runpy._run_module_as_main(argv[2])  # type: ignore[attr-defined]  # as `python -m` does, so tracebacks agree
    except SystemExit as exc:
        status = _status(exc)
    except BaseException as exc:  # noqa: BLE001 - of user code
        failure = exc
    if failure is not None:  # outside of the handler, so that a hook sees nothing but its arguments
        status = _report(failure)
    _exit(status)


def _prepare_process(argv: list[str], env: dict[str, str], path: list[str]) -> None:
    _set_environment(env)
    _set_signals()
    python_path = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH")]
    sys.path[:] = [os.getcwd(), *_absolute(python_path + path)]
    sys.argv = ["-m", *argv[3:]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(argv)
    _reset_modules()
    _apply_threads(env)


def _set_environment(env: dict[str, str]) -> None:
    os.environ.clear()  # one by one, so that C code does not see them either
    os.environ.update(env)
    time.tzset()


def _set_signals() -> None:
    """Set the signal handlers of a new Python."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _absolute(entries: list[str]) -> list[str]:
    result: list[str] = []
    for entry in entries:
        entry = os.path.abspath(entry)
        if entry not in result:
            result.append(entry)
    return result


def _reset_modules() -> None:
    """Reset state that modules computed at import for another process."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    for name in ("__main__", "__mp_main__"):
        if name in sys.modules:
            sys.modules[name] = main
    for name in [name for name in sys.modules if name.split(".")[0] == __name__.split(".")[0]]:
        del sys.modules[name]
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process().authkey = os.urandom(32)
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def set_threads(count: int) -> bool:
    """Set NumPy's thread count. Returns False if a library has no function for it."""
    import ctypes

    for path in _openblas_files():
        library = ctypes.CDLL(path)
        setter = next((name for name in _SET_THREADS_SYMBOLS if hasattr(library, name)), None)
        if setter is None:
            return False
        getattr(library, setter)(ctypes.c_int(count))
    return True


@functools.lru_cache(maxsize=1)  # before a fork enters a sandbox, in which the kernel names the same files otherwise
def _openblas_files() -> list[str]:
    return mapped_files("openblas")


def _apply_threads(env: dict[str, str]) -> None:
    requested = [env[name] for name in THREAD_VARIABLES if env.get(name, "").isdigit() and int(env[name]) > 0]
    cpus = len(os.sched_getaffinity(0))
    set_threads(min(int(requested[0]), cpus) if requested else cpus)
    torch: Any = sys.modules.get("torch")
    if torch is not None and env.get(_OPENMP_THREADS, "").isdigit() and int(env[_OPENMP_THREADS]) > 0:
        torch.set_num_threads(int(env[_OPENMP_THREADS]))


def _status(exc: SystemExit) -> int:
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code
    sys.stdout.flush()
    sys.stderr.write("%s\n" % (exc.code,))
    return 1


def _report(exc: BaseException) -> Optional[int]:
    """Print the traceback without this file. Returns None if the process should end by SIGINT."""
    trace = exc.__traceback__.tb_next if exc.__traceback__ else None
    exc = exc.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, trace
    try:
        sys.excepthook(type(exc), exc, trace)
    except SystemExit as other:
        return _status(other)
    except BaseException as other:  # noqa: BLE001 - of the user's hook
        sys.stderr.write("Error in sys.excepthook:\n")
        other = other.with_traceback(other.__traceback__.tb_next if other.__traceback__ else None)
        sys.__excepthook__(type(other), other, other.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(exc), exc, trace)
    by_signal = isinstance(exc, KeyboardInterrupt) and sys.version_info >= (3, 8)
    return None if by_signal else 1


def _exit(status: Optional[int]) -> None:
    """Exit as Python does: join threads, run atexit functions, flush, finalize."""
    import ctypes

    if status is None:
        import atexit
        import threading

        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    ctypes.pythonapi.Py_Exit(ctypes.c_int(status or 0))
