"""The Python client runs in kernels and trainers, which have none of the server's packages."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"{{name}} is a package of the server")

sys.meta_path.insert(0, Absent())
import trainshed.client, trainshed.sdk
for package in (trainshed.client, trainshed.sdk):
    for module in pkgutil.iter_modules(package.__path__, f"{{package.__name__}}."):
        # a widget, which needs anywidget, and a plugin that only MLflow imports
        if module.name not in ("trainshed.sdk.pad", "trainshed.sdk.mlflow_deployments"):
            importlib.import_module(module.name)
"""
SERVER = (
    "orjson",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "numpy",
    "cryptography",
    "psutil",
    "re2",
)


def test_the_client_needs_no_package_of_the_server() -> None:
    program = PROGRAM.format(packages=set(SERVER))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
