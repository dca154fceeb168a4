"""Kernels of notebooks: one for each runtime, in JupyterLab's launcher. Each is built at its first start.

`python -m trainshed.local.kernels RUNTIME CONNECTION_FILE` is what JupyterLab starts. It becomes the kernel.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from trainshed.config import Home, environment
from trainshed.errors import NotFoundError, TrainshedError
from trainshed.local.interpreters import links_of
from trainshed.node.files import write_file
from trainshed.runtimes.catalogue import KERNELS, NOTEBOOK
from trainshed.runtimes.environments import Runtimes
from trainshed.runtimes.progress import ProgressCallback
from trainshed.runtimes.pythons import Pythons
from trainshed.runtimes.uv import find_uv

_TITLES = {"torch": "PyTorch", "jax": "JAX"}


def interpreter(home: Home, runtime: str, progress: ProgressCallback) -> Path:
    """Return the Python of a runtime's kernel. Builds it if it is missing. Raises `NotFoundError` if there is none."""
    if runtime not in KERNELS:
        raise NotFoundError(f"There is no kernel {runtime!r}. The kernels are: {', '.join(KERNELS)}.")
    kernel = KERNELS[runtime]
    home.create()
    runtimes = Runtimes(home.runtimes, find_uv(), catalogue={kernel.name: kernel}, find_links=links_of(home))
    return runtimes.ensure(kernel.name, progress)


def write_specs(data: Path) -> list[str]:
    """Write the kernels into Jupyter's data folder. Returns the runtimes whose Python is to be had."""
    pythons = Pythons(find_uv())
    available = [name for name, kernel in KERNELS.items() if pythons.can_be_had(kernel.python)]
    for name in available:
        title = _TITLES.get(name, f"TensorFlow {name}")
        spec = {
            "argv": [sys.executable, "-P", "-m", "trainshed.local.kernels", name, "{connection_file}"],
            "display_name": f"{title} (Python {KERNELS[name].python})",
            "language": "python",
            "metadata": {"debugger": True},
        }
        folder = data / "kernels" / f"trainshed-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / "kernel.json", json.dumps(spec).encode())
    return available


def kernel_environment(env: Mapping[str, str], python: Path, home: Home) -> dict[str, str]:
    """Return `env` with the kernel's programs, such as its `pip`, in the place of JupyterLab's own on the PATH."""
    jupyter = str(home.runtimes / NOTEBOOK.key / "bin")
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    place = folders.index(jupyter) if jupyter in folders else 0
    rest = [folder for folder in folders[place:] if folder != jupyter]
    return {**env, "PATH": os.pathsep.join([*folders[:place], str(python.parent), *rest])}


def main(runtime: str, connection_file: str) -> None:
    """Become the kernel. What a build tells goes to JupyterLab's log."""

    def tell(fraction: float, text: str) -> None:
        sys.stderr.write(f"The kernel {runtime} is built once: {fraction:4.0%}  {text}\n")

    home = Home.find(environment())
    try:
        python = interpreter(home, runtime, tell)
    except TrainshedError as exc:
        sys.exit(f"The kernel {runtime} can't start. {exc}")
    command = [str(python), "-m", "ipykernel_launcher", "-f", connection_file]
    os.execve(python, command, kernel_environment(environment(), python, home))  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
