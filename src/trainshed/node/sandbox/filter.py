"""The filter of system calls: what user code can't call, as a program for the kernel's packet filter machine.

All that is not named is allowed. Denied is what reaches into other processes, changes mounts, namespaces or the
machine, or is a large part of the kernel that training does not need. A denied call fails as it does without the right
to make it.
"""

from __future__ import annotations

import errno
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Union

    Target = Union[int, str]  # an offset, or the name of a label

#: The architecture's own name for itself, and the numbers of denied calls.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED = {
    "x86_64": """
        ptrace=101 process_vm_readv=310 process_vm_writev=311 kcmp=312
        mount=165 umount2=166 pivot_root=155 chroot=161 unshare=272 setns=308
        keyctl=250 add_key=248 request_key=249 bpf=321 userfaultfd=323 perf_event_open=298
        kexec_load=246 kexec_file_load=320 create_module=174 init_module=175 finit_module=313 delete_module=176
        open_by_handle_at=304 name_to_handle_at=303 acct=163 swapon=167 swapoff=168 reboot=169 quotactl=179
        sethostname=170 setdomainname=171 settimeofday=164 clock_settime=227 clock_adjtime=305 adjtimex=159
        iopl=172 ioperm=173 modify_ldt=154 syslog=103 vhangup=153 lookup_dcookie=212 nfsservctl=180 uselib=134
        _sysctl=156 move_pages=279 migrate_pages=256 fanotify_init=300
    """,
    "aarch64": """
        ptrace=117 process_vm_readv=270 process_vm_writev=271 kcmp=272
        mount=40 umount2=39 pivot_root=41 chroot=51 unshare=97 setns=268
        keyctl=219 add_key=217 request_key=218 bpf=280 userfaultfd=282 perf_event_open=241
        kexec_load=104 kexec_file_load=294 init_module=105 finit_module=273 delete_module=106
        open_by_handle_at=265 name_to_handle_at=264 acct=89 swapon=224 swapoff=225 reboot=142 quotactl=60
        sethostname=161 setdomainname=162 settimeofday=170 clock_settime=112 clock_adjtime=266 adjtimex=171
        syslog=116 vhangup=58 lookup_dcookie=18 nfsservctl=42 move_pages=239 migrate_pages=238 fanotify_init=262
    """,
}
_DENIED_EVERYWHERE = """
    io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428 move_mount=429 fsopen=430 fsconfig=431
    fsmount=432 fspick=433 pidfd_getfd=438 mount_setattr=442 quotactl_fd=443 open_tree_attr=467
"""
#: Calls whose arguments are looked at.
_CHECKED = {
    "x86_64": {"clone": 56, "socket": 41, "ioctl": 16, "personality": 135},
    "aarch64": {"clone": 220, "socket": 198, "ioctl": 29, "personality": 92},
}
_CLONE3 = 435  #: its arguments are in memory, where a filter can't look; libraries use `clone` if it is missing
_NEW_NAMESPACES = 0x7E020080  #: any of the CLONE_NEW flags
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
_TERMINAL_CALLS = (0x5412, 0x541C, 0x541D, 0x5423)  #: TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)  #: Linux, 32 bits, another release's name, and the question
_X32 = 0x40000000  #: of the numbers of a second set of calls

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_SET, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  #: offsets in what the kernel shows of a call


def denied(machine: str) -> dict[str, int]:
    """The calls that are always denied, by name."""
    pairs = (each.split("=") for each in (_DENIED[machine] + _DENIED_EVERYWHERE).split())
    return {name: int(number) for name, number in pairs}


def build(machine: str) -> bytes:
    """The filter for a machine."""
    code = _Program()
    code.add(_LOAD, _ARCHITECTURE)
    code.add(_JUMP_EQUAL, _ARCHITECTURES[machine], otherwise="missing")
    code.add(_LOAD, _NUMBER)
    code.add(_JUMP_ABOVE, _X32, then="missing")
    for number in sorted(set(denied(machine).values())):
        code.add(_JUMP_EQUAL, number, then="denied")
    code.add(_JUMP_EQUAL, _CLONE3, then="missing")
    for name, number in _CHECKED[machine].items():
        code.add(_JUMP_EQUAL, number, then=name)
    code.add(_RETURN, _ALLOW)
    code.label("clone")
    code.add(_LOAD, _FIRST_ARGUMENT)
    code.add(_JUMP_SET, _NEW_NAMESPACES, then="denied", otherwise="allowed")
    code.label("ioctl")
    code.add(_LOAD, _FIRST_ARGUMENT + 8)
    for call in _TERMINAL_CALLS:
        code.add(_JUMP_EQUAL, call, then="denied")
    code.add(_RETURN, _ALLOW)
    code.label("personality")
    code.add(_LOAD, _FIRST_ARGUMENT)
    for value in _PERSONALITIES:
        code.add(_JUMP_EQUAL, value, then="allowed")
    code.add(_RETURN, _ERROR | errno.EPERM)
    code.label("socket")
    code.add(_LOAD, _FIRST_ARGUMENT)
    for family in (_UNIX, _INET, _INET6):
        code.add(_JUMP_EQUAL, family, then="allowed")
    code.add(_JUMP_EQUAL, _NETLINK, otherwise="family")
    code.add(_LOAD, _FIRST_ARGUMENT + 16)
    code.add(_JUMP_EQUAL, _NETLINK_ROUTE, then="allowed")
    code.label("family")
    code.add(_RETURN, _ERROR | errno.EAFNOSUPPORT)
    code.label("allowed")
    code.add(_RETURN, _ALLOW)
    code.label("missing")
    code.add(_RETURN, _ERROR | errno.ENOSYS)
    code.label("denied")
    code.add(_RETURN, _ERROR | errno.EPERM)
    return code.assemble()


class _Program:
    """Instructions, and labels to jump to. All jumps go forward."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, Optional[str], Optional[str]]] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, value: int, then: Optional[str] = None, otherwise: Optional[str] = None) -> None:
        """Add an instruction. Without a label, a jump goes to the next one."""
        self._lines.append((code, value, then, otherwise))

    def label(self, name: str) -> None:
        self._labels[name] = len(self._lines)

    def assemble(self) -> bytes:
        parts = []
        for index, (code, value, then, otherwise) in enumerate(self._lines):
            offsets = [self._labels[name] - index - 1 if name is not None else 0 for name in (then, otherwise)]
            parts.append(struct.pack("HBBI", code, offsets[0], offsets[1], value))
        return b"".join(parts)
