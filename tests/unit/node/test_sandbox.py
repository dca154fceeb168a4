"""Parts of the sandbox: its filter of system calls, and what it shows of the machine."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from trainshed.node.sandbox import filter as calls
from trainshed.node.sandbox.view import View, interpreter_paths, is_below

_JUMPS = (0x15, 0x35, 0x45)
_RETURN, _ALLOW, _LOAD = 0x06, 0x7FFF0000, 0x20


def _run(program: bytes, number: int, architecture: int, arguments: tuple[int, ...] = ()) -> int:
    """What a filter returns for a call: the kernel's machine in a few lines."""
    seen = struct.pack("IIQ6Q", number, architecture, 0, *(arguments + (0,) * 6)[:6])
    lines = list(struct.iter_unpack("HBBI", program))
    position, value = 0, 0
    while True:
        code, then, otherwise, constant = lines[position]
        position += 1
        if code == _LOAD:
            value = int(struct.unpack_from("I", seen, constant)[0])
        elif code == _RETURN:
            return int(constant)
        elif code in _JUMPS:
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            position += then if holds else otherwise
        else:
            raise AssertionError(code)


MACHINES = {"x86_64": (0xC000003E, 56, 41, 16, 0), "aarch64": (0xC00000B7, 220, 198, 29, 63)}


@pytest.mark.parametrize("machine", MACHINES)
class TestFilter:
    def test_what_is_named_is_denied(self, machine: str) -> None:
        program, architecture = calls.build(machine), MACHINES[machine][0]
        denied = calls.denied(machine)
        assert {name for name, number in denied.items() if _run(program, number, architecture) != 0x50001} == set()
        assert len(set(denied.values())) == len(denied)
        assert _run(program, 435, architecture) == 0x50000 | 38, "clone3 is missing, so that libraries use clone"

    def test_all_else_is_allowed(self, machine: str) -> None:
        program = calls.build(machine)
        architecture, clone, socket, ioctl, read = MACHINES[machine]
        assert _run(program, read, architecture) == _ALLOW
        assert _run(program, clone, architecture, (0x3D0F00,)) == _ALLOW, "a thread"
        assert _run(program, ioctl, architecture, (0, 0x5401)) == _ALLOW
        for family in (1, 2, 10, 16):
            assert _run(program, socket, architecture, (family, 1, 0)) == _ALLOW

    def test_arguments_are_looked_at(self, machine: str) -> None:
        program = calls.build(machine)
        architecture, clone, socket, ioctl, _ = MACHINES[machine]
        for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
            assert _run(program, clone, architecture, (flag | 17,)) == 0x50001
        for arguments in ((17, 3, 0), (38, 5, 0), (16, 3, 9), (40, 1, 0)):
            assert _run(program, socket, architecture, arguments) == 0x50000 | 97
        assert _run(program, ioctl, architecture, (0, 0x5412)) == 0x50001
        assert _run(program, ioctl, architecture, (0, 0x100005412)) == 0x50001, "the kernel takes the lower half"

    def test_another_architecture_has_no_calls(self, machine: str) -> None:
        assert _run(calls.build(machine), 0, 0x40000003) == 0x50000 | 38
        assert _run(calls.build(machine), 0x40000000 | 101, MACHINES[machine][0]) == 0x50000 | 38


def test_a_hidden_folder_matters_below_what_is_seen_alone() -> None:
    assert View([], [], ["/home/u/.trainshed"]).hidden == []
    assert View([], [], ["/opt/trainshed"]).hidden == ["/opt/trainshed"]
    assert View(["/data"], [], ["/data/shed"]).hidden == ["/data/shed"]
    assert View(["/usr/share/x", "/data", "/data/"], ["/b"]).read_only == ["/data"]
    assert is_below("/data/x", ["/data/"])
    assert not is_below("/database", ["/data"])


def test_an_interpreter_is_seen_with_all_that_its_links_lead_to(tmp_path: Path) -> None:
    real = tmp_path / "pythons" / "3.11.9" / "bin" / "python3.11"
    real.parent.mkdir(parents=True)
    real.touch()
    (tmp_path / "pythons" / "3.11").symlink_to("3.11.9")
    python = tmp_path / "runtime" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "pythons" / "3.11" / "bin" / "python3.11")
    assert interpreter_paths(str(python)) == [
        str(tmp_path / "runtime"),
        str(tmp_path / "pythons" / "3.11"),
        str(tmp_path / "pythons" / "3.11.9"),
    ]
