"""Keras in a runtime accepts Google's archive of MNIST and the server's own, and checks all else as before."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from trainshed.runtimes.keras_data import MNIST_SHA256, accept_mirrored_data
from trainshed.sample_files import samples_folder
from trainshed.services.storage.mnist_archive import mnist_archive

GOOGLE_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
KERAS = """
import hashlib

def validate_file(fpath, file_hash, algorithm="auto", chunk_size=65535):
    return hashlib.sha256(open(fpath, "rb").read()).hexdigest() == file_hash
"""


def test_only_the_archive_of_mnist_counts_as_googles(tmp_path: Path) -> None:
    module = tmp_path / "keras" / "src" / "utils" / "file_utils.py"
    module.parent.mkdir(parents=True)
    module.write_text(KERAS)
    module.chmod(0o644)
    accept_mirrored_data(tmp_path)
    accept_mirrored_data(tmp_path)
    assert module.read_text().count("Added by Trainshed") == 1
    assert module.stat().st_mode & 0o777 == 0o644
    files = {"mnist": mnist_archive(samples_folder() / "data" / "mnist"), "other": b"other"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    other = hashlib.sha256(b"other").hexdigest()
    checks = [
        ("mnist", GOOGLE_SHA256),
        ("mnist", MNIST_SHA256),
        ("other", GOOGLE_SHA256),
        ("other", other),
        ("mnist", other),
    ]
    program = f"from file_utils import validate_file\nprint([validate_file(*each) for each in {checks!r}])"
    env = {"PYTHONPATH": str(module.parent)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[True, True, False, True, False]", done.stderr
