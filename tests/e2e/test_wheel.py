"""The wheel holds all that an installed Trainshed needs besides its modules."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from trainshed.runtimes.uv import find_uv

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_the_console_and_the_samples(tmp_path: Path) -> None:
    command = [str(find_uv()), "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, timeout=280)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    console = ROOT / "src" / "trainshed" / "console" / "assets"
    files = [path for path in console.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if f"trainshed/console/assets/{path.relative_to(console)}" not in held]
    beside = [name for name in held if name.startswith("trainshed/console/") and "/assets/" not in name]
    assert {Path(name).suffix for name in beside} == {".py"}  # neither types nor the settings of tools
    assert "trainshed/samples/samples.toml" in held
    assert "trainshed/samples/mnist_async/trainer/task.py" in held
