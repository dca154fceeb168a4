"""TensorFlow imported ahead of time, and handed over when a trainer imports it.

What TensorFlow does at its import, and a trainer may have prepared for, is held back until then: the variables that it
sets, the level of its log, the first line of its log, and the choice between the two Keras.
"""

from __future__ import annotations

import importlib
import mmap
import os
import re
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional

_NAME = "tensorflow"
_CPU_GUARD = "tensorflow.python.platform._pywrap_cpu_feature_guard"
_FIRST_LINE = "InfoAboutUnusedCPUFeatures"
_SET_LEVEL = re.compile(rb"_ZN4absl\w*?SetMinLogLevelENS\w*?LogSeverityAtLeastE\0")
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


class PreloadedTensorFlow:
    """A finder of modules. `load` in the process that imports for others, `close` in the one that runs a trainer."""

    def __init__(self) -> None:
        self._module: Optional[ModuleType] = None
        self._set: dict[str, str] = {}
        self._legacy = os.environ.get(_LEGACY_KERAS)
        self._first_line: list[Callable[[], None]] = []
        self._set_level: Optional[Callable[[int], None]] = None

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
            self._set_level = _level_setter()

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
        level = os.environ.get(_LEVEL, "")
        if self._set_level is not None and level.isdigit():
            self._set_level(int(level))
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


def _level_setter() -> Optional[Callable[[int], None]]:
    """TensorFlow's own function for it, where the level is fixed at the import; None where it is read later."""
    import ctypes

    for path in mapped_files("libtensorflow_framework.so"):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _SET_LEVEL.search(content)
            symbol = found.group()[:-1].decode() if found else ""
        if symbol:
            function = getattr(ctypes.CDLL(path), symbol)
            function.restype, function.argtypes = None, [ctypes.c_int]
            return function  # type: ignore[no-any-return]
    return None


def mapped_files(part: str) -> list[str]:
    """The libraries of this process with `part` in their file name."""
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if part in path.rpartition("/")[2]:
                found.add("/" + path)
    return sorted(found)
