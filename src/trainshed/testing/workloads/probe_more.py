"""More ways of the probe: through the network, to other processes, to what they share, and to hidden files.

As `probe`, it has the standard library alone. A way that fails raises `OSError` or returns False.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"
_DIAGNOSIS = 4  #: of netlink: which sockets there are
_SECRET = b"f3Qz-secret-of-the-probe"  #: `probe.SECRET`

#: Ways that need root without a sandbox too.
MORE_ROOT_WAYS = frozenset(
    (
        *("make a network namespace", "change a network device", "open a raw IP socket", "listen on a low port"),
        *("open an XDP socket",),
    )
)
#: Ways that a machine may not have.
MORE_MACHINE_WAYS = frozenset(
    (
        *("connect to the machine's own address", "send a datagram to the machine's own address"),
        *(
            "ask the proxy for the machine's own address",
            "see the machine's network devices",
            "see the machine's routes",
        ),
        *("see the traffic of the machine", "open a socket of virtual machines", "open an XDP socket"),
        *("connect to loopback by IPv6", "ask the proxy for loopback by IPv6", "see an attribute of a hidden file"),
        "change a hidden file's owner",
    )
)


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def _open(path: str, flags: int) -> bool:
    os.close(os.open(path, flags))
    return True


def _hears(address: str, port: int, family: int = socket.AF_INET) -> bool:
    with socket.socket(family) as connection:
        connection.settimeout(5)
        connection.connect((address, port))
        return connection.recv(100) == _SECRET


def _is_answered(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(2)
        connection.sendto(b"x", (address, port))
        return connection.recv(100) == _SECRET


def _asks_proxy(address: str, port: int) -> bool:
    """Let the proxy of the environment connect."""
    host, _, number = os.environ["https_proxy"].rpartition("/")[2].partition(":")
    with socket.create_connection((host, int(number)), 10) as connection:
        connection.sendall(f"CONNECT {address}:{port} HTTP/1.1\r\n\r\n".encode())
        data = b""
        while chunk := connection.recv(1000):
            data += chunk
        return data.endswith(_SECRET)


def _own(t: Any) -> str:
    if not t["own"]:
        raise OSError(0, "this machine has no other address")
    return str(t["own"])


def _has_port(path: str, port: int) -> bool:
    return f":{port:04X} " in Path(path).read_text()


def _change_a_network_device(_targets: Any) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH22x", b"lo", 65))


def _listen_on_a_low_port(_targets: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 7))


def _get_a_robust_list(t: Any) -> None:
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    number = ctypes.c_long(274 if _X86 else 100)
    _checked(_libc.syscall(number, ctypes.c_long(t["victim"]), ctypes.byref(head), ctypes.byref(length)))


def _open_a_message_queue(t: Any) -> None:
    number = ctypes.c_long(240 if _X86 else 180)
    name = t["queue"].encode()
    os.close(_checked(_libc.syscall(number, name, ctypes.c_long(0), ctypes.c_long(0), None)))


def _listen_in_a_hidden_folder(t: Any) -> None:
    folder = os.open(t["other_bucket"], os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/listening")


def _rename_into_a_hidden_folder(t: Any) -> None:
    mine = t["own_bucket"] + "/moved"
    Path(mine).write_text("x")
    os.rename(mine, t["other_bucket"] + "/moved")


def _lock_a_hidden_file(t: Any) -> None:
    with open(t["state"] + "/token", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def _proc(t: Any, name: str) -> str:
    return f"/proc/{t['victim']}/{name}"


def _sockets(family: int, kind: int, protocol: int = 0) -> Callable[[Any], object]:
    return lambda t: socket.socket(family, kind, protocol).close()


MORE_WAYS: dict[str, Callable[[Any], object]] = {
    # through the network
    "connect to another address of loopback": lambda t: _hears("127.0.0.2", t["tcp_all"]),
    "connect to the machine's own address": lambda t: _hears(_own(t), t["tcp_all"]),
    "connect to the unspecified address": lambda t: _hears("0.0.0.0", t["tcp_all"]),
    "connect to loopback by IPv6": lambda t: _hears("::1", t["tcp_6"], socket.AF_INET6),
    "connect to loopback by a mapped address": lambda t: _hears("::ffff:127.0.0.1", t["tcp_all"], socket.AF_INET6),
    "connect to loopback by its name": lambda t: _hears("localhost", t["tcp_all"]),
    "send a datagram to another address of loopback": lambda t: _is_answered("127.0.0.2", t["udp_all"]),
    "send a datagram to the machine's own address": lambda t: _is_answered(_own(t), t["udp_all"]),
    "ask the proxy for loopback": lambda t: _asks_proxy("127.0.0.1", t["tcp_all"]),
    "ask the proxy for another address of loopback": lambda t: _asks_proxy("127.0.0.2", t["tcp_all"]),
    "ask the proxy for localhost": lambda t: _asks_proxy("localhost", t["tcp_all"]),
    "ask the proxy for the machine's own address": lambda t: _asks_proxy(_own(t), t["tcp_all"]),
    "ask the proxy for the unspecified address": lambda t: _asks_proxy("0.0.0.0", t["tcp_all"]),
    "ask the proxy for loopback by IPv6": lambda t: _asks_proxy("[::1]", t["tcp_6"]),
    "ask the proxy for loopback by a mapped address": lambda t: _asks_proxy("[::ffff:127.0.0.1]", t["tcp_all"]),
    "ask the proxy for loopback as one number": lambda t: _asks_proxy("2130706433", t["tcp_all"]),
    "ask the proxy for loopback in short": lambda t: _asks_proxy("127.1", t["tcp_all"]),
    "see the machine's connections": lambda t: _has_port("/proc/net/tcp", t["tcp_all"]),
    "see the machine's datagram sockets": lambda t: _has_port("/proc/net/udp", t["udp_all"]),
    "see the machine's unix sockets": lambda t: t["abstract"] in Path("/proc/net/unix").read_text(),
    "see the machine's network devices": lambda t: len(socket.if_nameindex()) > 1,
    "see the machine's routes": lambda t: len(Path("/proc/net/route").read_text().splitlines()) > 1,
    "see the traffic of the machine": lambda t: len(Path("/proc/net/dev").read_text().splitlines()) > 3,
    "list the machine's sockets by netlink": _sockets(socket.AF_NETLINK, socket.SOCK_RAW, _DIAGNOSIS),
    "make a network namespace": lambda t: _checked(_libc.unshare(0x40000000)),
    "change a network device": _change_a_network_device,
    "listen on a low port": _listen_on_a_low_port,
    "open a raw IP socket": _sockets(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "open a socket of virtual machines": _sockets(40, socket.SOCK_STREAM),
    "open an XDP socket": _sockets(44, socket.SOCK_RAW),
    # to other processes
    "open a descriptor of another process": lambda t: os.close(os.pidfd_open(t["victim"])),
    "signal another process by its descriptor": lambda t: signal.pidfd_send_signal(os.pidfd_open(t["victim"]), 0),
    "see another process's limits": lambda t: resource.prlimit(t["victim"], resource.RLIMIT_NOFILE),
    "change another process's limits": lambda t: resource.prlimit(t["victim"], resource.RLIMIT_CORE, (0, 0)),
    "move another process to other cores": lambda t: os.sched_setaffinity(
        t["victim"], os.sched_getaffinity(t["victim"])
    ),
    "change another process's priority": lambda t: os.setpriority(  # to the one that it has, which all may do
        os.PRIO_PROCESS, t["victim"], os.getpriority(os.PRIO_PROCESS, t["victim"])
    ),
    "change another process's scheduling": lambda t: os.sched_setscheduler(
        t["victim"], os.SCHED_OTHER, os.sched_param(0)
    ),
    "see another process's session": lambda t: os.getsid(t["victim"]),
    "see another process's arguments": lambda t: Path(_proc(t, "cmdline")).read_bytes() != b"",
    "see another process's working folder": lambda t: os.readlink(_proc(t, "cwd")),
    "see another process's program": lambda t: os.readlink(_proc(t, "exe")),
    "see another process's memory map": lambda t: Path(_proc(t, "maps")).read_text() != "",
    "see another process's reads and writes": lambda t: Path(_proc(t, "io")).read_text() != "",
    "see another process's network": lambda t: Path(_proc(t, "net/tcp")).read_text() != "",
    "see another process's namespaces": lambda t: os.readlink(_proc(t, "ns/net")),
    "list another process's root": lambda t: bool(os.listdir(_proc(t, "root"))),
    "change another process's oom score": lambda t: _open(_proc(t, "oom_score_adj"), os.O_WRONLY),
    "clear another process's references": lambda t: _open(_proc(t, "clear_refs"), os.O_WRONLY),
    "get another process's robust list": _get_a_robust_list,
    # to what processes share
    "use semaphores of others": lambda t: _checked(_libc.semget(t["semaphores"], 0, 0)),
    "use a message queue of others": lambda t: _checked(_libc.msgget(t["messages"], 0)),
    "open a POSIX message queue of others": _open_a_message_queue,
    # to hidden files
    "follow a hidden link": lambda t: os.readlink(t["state"] + "/link"),
    "ask for the space of a hidden folder": lambda t: os.statvfs(t["other_bucket"]),
    "ask whether a hidden file exists": lambda t: os.access(t["state"] + "/token", os.F_OK),
    "see an attribute of a hidden file": lambda t: os.getxattr(t["state"] + "/token", "user.seen"),
    "change a hidden file's owner": lambda t: os.chown(t["state"] + "/token", os.getuid(), os.getgid()),
    "open a hidden file as a path": lambda t: _open(t["state"] + "/token", os.O_PATH),
    "lock a hidden file": _lock_a_hidden_file,
    "remove a hidden file": lambda t: os.unlink(t["state"] + "/removed"),
    "make a folder in a hidden one": lambda t: os.mkdir(t["other_bucket"] + "/made"),
    "make a link in a hidden folder": lambda t: os.symlink("x", t["other_bucket"] + "/linked"),
    "make a pipe in a hidden folder": lambda t: os.mkfifo(t["other_bucket"] + "/pipe"),
    "listen in a hidden folder": _listen_in_a_hidden_folder,
    "move a file into a hidden folder": _rename_into_a_hidden_folder,
}
