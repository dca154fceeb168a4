"""TensorFlow imported ahead of time, and handed over when a trainer imports it.

What TensorFlow does at its import, and a trainer may have prepared for, is held back until then: the variables that it
sets, the level of its log, the first line of its log, and the choice between the two Keras.
"""

from __future__ import annotations

import importlib
import mmap
import os
import re
import struct
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from types import ModuleType
    from typing import Any, Callable, Optional

_NAME = "tensorflow"
_CPU_GUARD = "tensorflow.python.platform._pywrap_cpu_feature_guard"
_FIRST_LINE = "InfoAboutUnusedCPUFeatures"
_SET_LEVEL = re.compile(rb"_ZN4absl\w*?SetMinLogLevelENS\w*?LogSeverityAtLeastE\0")
#: TensorFlow up to 2.15 has a log of its own, and a flag that says whether the level was read, which happens once.
_OWN_LOG = re.compile(rb"_ZN(?:3tsl|10tensorflow)8internal10LogMessageD")
_LEVEL_READ = re.compile(rb"\0(_ZGVZN\w*?LogMessageD\dEvE13min_log_level)\0")
#: Where the log is. 1.15 has it in both.
_LIBRARIES = ("libtensorflow_framework.so", "_pywrap_tensorflow_internal.so")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


class PreloadedTensorFlow:
    """A finder of modules. `load` in the process that imports for others, `close` in the one that runs a trainer."""

    def __init__(self) -> None:
        self._module: Optional[ModuleType] = None
        self._set: dict[str, str] = {}
        self._legacy = os.environ.get(_LEGACY_KERAS)
        self._first_line: list[Callable[[], None]] = []
        self._read_level: Optional[Callable[[], None]] = None

    def load(self, modules: list[str]) -> None:
        """Import the modules. Their own errors go through."""
        before = dict(os.environ)
        sys.meta_path.insert(0, self)
        try:
            for name in modules:
                importlib.import_module(name)
        finally:
            sys.meta_path.remove(self)
        self._set = {name: value for name, value in os.environ.items() if before.get(name) != value}
        self._module = sys.modules.get(_NAME)
        if self._module is not None:
            self._read_level = _level_reader()

    @property
    def settled(self) -> frozenset[str]:
        """Variables that have no effect any more when a trainer sets them before it imports TensorFlow."""
        return frozenset([LEVEL] if self._module is not None and self._read_level is None else [])

    def hide(self) -> None:
        """From now on TensorFlow counts as not imported, until it is."""
        if self._module is not None:
            del sys.modules[_NAME]
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """As Python asks every finder."""
        if name == _CPU_GUARD and self._module is None:
            return self._muted(PathFinder.find_spec(name, path))
        if name != _NAME or self._module is None:
            return None
        sys.meta_path.remove(self)
        for variable, value in self._set.items():
            os.environ.setdefault(variable, value)
        self._open_log()
        if os.environ.get(_LEGACY_KERAS) != self._legacy:
            return None  # only the outermost module knows of it, and that one is quickly imported anew
        return ModuleSpec(name, _PreloadedLoader(self._module))

    def _muted(self, spec: Optional[ModuleSpec]) -> Optional[ModuleSpec]:
        """The module that writes TensorFlow's first line, which fixes the level of its log, without that line."""
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._first_line.append(getattr(module, _FIRST_LINE))
            setattr(module, _FIRST_LINE, lambda: None)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _open_log(self) -> None:
        if self._read_level is not None:
            self._read_level()
        for write in self._first_line:
            write()


class _PreloadedLoader(Loader):
    """The loader of a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        module.__loader__ = self._spec.loader if self._spec else None


def _level_reader() -> Optional[Callable[[], None]]:
    """What makes TensorFlow go by the level that is in the environment now; None if nothing does.

    It reads the level when it is imported, or before the first line that it may write, which some processors make it
    write while it is imported.
    """
    import ctypes

    own, flags = False, []
    for path in [path for name in _LIBRARIES for path in mapped_files(name)]:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            read = _address(content, _LEVEL_READ)
            own = own or _OWN_LOG.search(content) is not None
            found = None if own else _SET_LEVEL.search(content)
            setter = found.group()[:-1].decode() if found else ""
        if setter:
            function = getattr(ctypes.CDLL(path), setter)
            function.restype, function.argtypes = None, [ctypes.c_int]
            return lambda: _set_level(function)
        if read is not None:
            flags.append(ctypes.c_uint8.from_address(_base(path) + read))
    return (lambda: _reset(flags)) if flags else None


def _reset(flags: list[ctypes.c_uint8]) -> None:
    for flag in flags:
        flag.value = 0


def _set_level(function: Callable[[int], None]) -> None:
    level = os.environ.get(LEVEL, "")
    if level.isdigit():
        function(int(level))


def _address(content: mmap.mmap, name: re.Pattern[bytes]) -> Optional[int]:
    """Where a library has a variable, relative to where it is mapped; also one that it does not export."""
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    first, size, count = (int.from_bytes(content[at : at + n], "little") for at, n in ((40, 8), (58, 2), (60, 2)))
    sections = [_SECTION.unpack_from(content, first + number * size) for number in range(count)]
    for table in (section for section in sections if section[1] == _SYMBOL_TABLE):
        names = sections[table[6]]
        found = name.search(content, names[4], names[4] + names[5])
        if found:
            wanted = found.start(1) - names[4]
            symbols = _SYMBOL.iter_unpack(content[table[4] : table[4] + table[5]])
            return next((symbol[4] for symbol in symbols if symbol[0] == wanted), None)
    return None


def _base(path: str) -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return min(int(line.partition("-")[0], 16) for line in maps if line.rstrip("\n").endswith(path))


def mapped_files(part: str) -> list[str]:
    """The libraries of this process with `part` in their file name."""
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if part in path.rpartition("/")[2]:
                found.add("/" + path)
    return sorted(found)
