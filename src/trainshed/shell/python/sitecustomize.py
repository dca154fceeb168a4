"""Run by each Python of `trainshed shell` when it starts, also by old ones: it parses as Python 2 too.

Sessions of aiohttp obey the proxy variables, as those of other clients do without being told. The module of the same
name that this one hides is run too.
"""

# mypy: ignore-errors

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _AiohttpFinder(object):
    """Finds `aiohttp.client` as the others do, and changes a default of it once it is imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "aiohttp.client":
            return None
        for finder in sys.meta_path:
            spec = None if finder is cls else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module = _then_trust(spec.loader.exec_module)
                return spec
        return None


def _then_trust(execute):
    def exec_module(module):
        execute(module)
        defaults = module.ClientSession.__init__.__kwdefaults__ or {}
        if "trust_env" in defaults:
            defaults["trust_env"] = True

    return exec_module


def _run_hidden():
    """Run the sitecustomize that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    folders = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if sys.version_info >= (3, 5):
    sys.meta_path.insert(0, _AiohttpFinder)
    _run_hidden()
