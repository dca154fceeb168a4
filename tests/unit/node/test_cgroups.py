"""Control groups of both versions, in folders that look like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed.node.process.tree import stat_fields
from trainshed.node.sandbox import cgroups
from trainshed.node.sandbox.cgroups import ControlGroup, find_folders, sweep

FIRST_VERSION = """\
31 23 0:28 / {root} rw - tmpfs tmpfs rw
35 31 0:32 / {root}/memory rw - cgroup cgroup rw,memory
39 31 0:36 / {root}/pids rw - cgroup cgroup rw,pids
32 31 0:29 / {root}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / {root}/unified rw - cgroup2 cgroup2 rw
"""
SECOND_VERSION = "30 23 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def _proc(tmp_path: Path, mounts: str, groups: str) -> str:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(mounts.format(root=tmp_path / "cgroup"))
    (proc / "cgroup").write_text(groups)
    return str(proc)


def test_groups_of_version_1_are_below_that_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "cgroup" / "unified").mkdir(parents=True)
    (tmp_path / "cgroup" / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    proc = _proc(tmp_path, FIRST_VERSION, "8:pids:/\n4:memory:/user/x\n1:cpu,cpuacct:/\n0::/\n")
    root = tmp_path / "cgroup"
    assert find_folders("trainshed-1", proc) == {
        "memory": f"{root}/memory/user/x/trainshed-1",
        "pids": f"{root}/pids/trainshed-1",
        "cpu": f"{root}/cpu,cpuacct/trainshed-1",
    }


def test_groups_of_version_2_are_at_the_top(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    proc = _proc(tmp_path, SECOND_VERSION, "0::/user.slice/session-1.scope\n")
    assert set(find_folders("trainshed-1", proc).values()) == {f"{root}/trainshed-1"}


def test_without_a_controller_there_are_none(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("memory\n")
    proc = _proc(tmp_path, SECOND_VERSION, "0::/\n")
    with pytest.raises(OSError, match="no control groups for pids"):
        find_folders("trainshed-1", proc)


class _Kernel:
    """Puts the files of version 2 into new folders, as the kernel does, and takes them out before they are removed."""

    FILES = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight", "cgroup.procs")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make, remove = os.mkdir, os.rmdir

        def mkdir(path: str, mode: int = 0o777) -> None:
            make(path, mode)
            for name in (*self.FILES, "cgroup.subtree_control"):
                Path(path, name).touch()
            Path(path, "cgroup.controllers").write_text("memory pids cpu")
            Path(path, "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n")
            Path(path, "memory.peak").write_text("12345\n")
            Path(path, "pids.events").write_text("max 3\n")

        def rmdir(path: str) -> None:
            for name in Path(path).iterdir():
                if name.is_dir():
                    raise OSError(39, "Directory not empty")
                name.unlink()
            remove(path)

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(os, "rmdir", rmdir)


def test_version_2_has_a_group_for_all_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    _Kernel(monkeypatch)
    base = tmp_path / "trainshed-1"
    group = ControlGroup(dict.fromkeys(("memory", "pids", "cpu"), str(base)), 1 << 30, 100, 50)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids +cpu"
    assert (base / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    [path] = [each for each in base.iterdir() if each.is_dir()]
    assert path.name.startswith(f"{os.getpid()}.{stat_fields(os.getpid())[19].decode()}.")
    written = {name: (path / name).read_text() for name in _Kernel.FILES}
    assert written == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "100",
        "cpu.weight": "50",
        "cgroup.procs": "",
    }
    group.join()
    assert (path / "cgroup.procs").read_text() == "0"
    assert (group.memory_kills, group.memory_peak, group.refused_forks) == (2, 12345, 3)
    assert group.remove()
    assert group.remove(), "idempotent"
    assert not base.exists()
    monkeypatch.undo()


def test_a_sweep_leaves_groups_of_living_makers(tmp_path: Path) -> None:
    base = tmp_path / "trainshed-1"
    own = f"{os.getpid()}.{stat_fields(os.getpid())[19].decode()}.1"
    for name in (own, f"{os.getpid()}.1.1", "999999999.5.1"):
        (base / name).mkdir(parents=True)
    sweep([str(base), str(base), str(tmp_path / "missing")])
    assert [path.name for path in base.iterdir()] == [own]


def test_a_group_that_can_not_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {name: str(tmp_path / name / "trainshed-1") for name in ("memory", "pids", "cpu")}

    def refuse(self: ControlGroup, controller: str, name: str, value: int) -> None:
        if controller == "cpu":
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cgroups.ControlGroup, "_write", refuse)
    with pytest.raises(PermissionError):
        ControlGroup(folders, 1 << 30, 100, 50)
    assert list(tmp_path.rglob("trainshed-1")) == []
