"""Preloads TensorFlow, and hands it over when a trainer imports it.

Effects of the import that a trainer may have prepared for are delayed until then: the variables it sets, the level and
the first line of its log, and the choice between the two versions of Keras.
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
_FIRST_LINE_FUNCTION = "InfoAboutUnusedCPUFeatures"
_SET_LEVEL_SYMBOL = re.compile(rb"_ZN4absl\w*?SetMinLogLevelENS\w*?LogSeverityAtLeastE\0")
#: TensorFlow up to 2.15 has its own log, and a flag that says whether the level was read, which happens once.
_OWN_LOG = re.compile(rb"_ZN(?:3tsl|10tensorflow)8internal10LogMessageD")
_LEVEL_READ_SYMBOL = re.compile(rb"\0(_ZGVZN\w*?LogMessageD\dEvE13min_log_level)\0")
#: Libraries with the log. In 1.15 both have it.
_LIBRARIES = ("libtensorflow_framework.so", "_pywrap_tensorflow_internal.so")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LEGACY_KERAS_VARIABLE = "TF_USE_LEGACY_KERAS"


class PreloadedTensorFlow:
    """A module finder. `load` is called in the warm process, `hide` in the fork that runs a trainer."""

    def __init__(self) -> None:
        self._module: Optional[ModuleType] = None
        self._variables: dict[str, str] = {}
        self._legacy_keras = os.environ.get(_LEGACY_KERAS_VARIABLE)
        self._first_line: list[Callable[[], None]] = []
        self._read_level: Optional[Callable[[], None]] = None

    def load(self, modules: list[str]) -> None:
        """Import the modules. Propagates their own errors."""
        before = dict(os.environ)
        sys.meta_path.insert(0, self)
        try:
            for name in modules:
                importlib.import_module(name)
        finally:
            sys.meta_path.remove(self)
        self._variables = {name: value for name, value in os.environ.items() if before.get(name) != value}
        self._module = sys.modules.get(_NAME)
        if self._module is not None:
            self._read_level = _level_reader()

    @property
    def settled(self) -> frozenset[str]:
        """Variables that have no effect if a trainer sets them before it imports TensorFlow."""
        return frozenset([LEVEL] if self._module is not None and self._read_level is None else [])

    def hide(self) -> None:
        """Make TensorFlow count as not imported, until a trainer imports it."""
        if self._module is not None:
            del sys.modules[_NAME]
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Finder protocol of Python's import system."""
        if name == _CPU_GUARD and self._module is None:
            return self._mute(PathFinder.find_spec(name, path))
        if name != _NAME or self._module is None:
            return None
        sys.meta_path.remove(self)
        for variable, value in self._variables.items():
            os.environ.setdefault(variable, value)
        self._open_log()
        if os.environ.get(_LEGACY_KERAS_VARIABLE) != self._legacy_keras:
            return None  # only the outermost module depends on it, and its import is fast
        return ModuleSpec(name, _PreloadedLoader(self._module))

    def _mute(self, spec: Optional[ModuleSpec]) -> Optional[ModuleSpec]:
        """Load the module that writes TensorFlow's first log line, without that line. The
        line would fix the log level."""
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._first_line.append(getattr(module, _FIRST_LINE_FUNCTION))
            setattr(module, _FIRST_LINE_FUNCTION, lambda: None)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _open_log(self) -> None:
        if self._read_level is not None:
            self._read_level()
        for write in self._first_line:
            write()


class _PreloadedLoader(Loader):
    """Loader of a module that is imported already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        module.__loader__ = self._spec.loader if self._spec else None


def _level_reader() -> Optional[Callable[[], None]]:
    """Returns a function that makes TensorFlow read the log level from the environment again.
    Returns None if nothing does.

    TensorFlow reads the level on import, or before its first log line. On some processors it writes
    that line during the import.
    """
    import ctypes

    own_log, flags = False, []
    for path in [path for name in _LIBRARIES for path in mapped_files(name)]:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            flag_address = _symbol_address(content, _LEVEL_READ_SYMBOL)
            own_log = own_log or _OWN_LOG.search(content) is not None
            match = None if own_log else _SET_LEVEL_SYMBOL.search(content)
            setter = match.group()[:-1].decode() if match else ""
        if setter:
            function = getattr(ctypes.CDLL(path), setter)
            function.restype, function.argtypes = None, [ctypes.c_int]
            return lambda: _set_level(function)
        if flag_address is not None:
            flags.append(ctypes.c_uint8.from_address(_load_address(path) + flag_address))
    return (lambda: _reset_flags(flags)) if flags else None


def _reset_flags(flags: list[ctypes.c_uint8]) -> None:
    for flag in flags:
        flag.value = 0


def _set_level(function: Callable[[int], None]) -> None:
    level = os.environ.get(LEVEL, "")
    if level.isdigit():
        function(int(level))


def _symbol_address(content: mmap.mmap, name: re.Pattern[bytes]) -> Optional[int]:
    """Address of a variable in a library, relative to its load address. Also finds variables that are not exported."""
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    table_offset, size, count = (
        int.from_bytes(content[offset : offset + n], "little") for offset, n in ((40, 8), (58, 2), (60, 2))
    )
    sections = [_SECTION.unpack_from(content, table_offset + index * size) for index in range(count)]
    for table in (section for section in sections if section[1] == _SYMBOL_TABLE):
        names = sections[table[6]]
        match = name.search(content, names[4], names[4] + names[5])
        if match:
            name_offset = match.start(1) - names[4]
            symbols = _SYMBOL.iter_unpack(content[table[4] : table[4] + table[5]])
            return next((symbol[4] for symbol in symbols if symbol[0] == name_offset), None)
    return None


def _load_address(path: str) -> int:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return min(int(line.partition("-")[0], 16) for line in maps if line.rstrip("\n").endswith(path))


def mapped_files(part: str) -> list[str]:
    """The libraries of this process with `part` in their file name."""
    paths = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if part in path.rpartition("/")[2]:
                paths.add("/" + path)
    return sorted(paths)
