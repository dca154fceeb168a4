"""A trainer that tries to get out: it reads, changes and signals what is not its own, and calls what is not for it.

Runs as a program of its own, with the standard library alone. Its argument is JSON with what it may look for
(`Targets`). It prints one line, `PROBE` and JSON: the name of each way, and whether it succeeded. A way that fails
raises `OSError`.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

try:  # as a program of its own, beside the other file
    from probe_more import MORE_MACHINE_WAYS, MORE_ROOT_WAYS, MORE_WAYS  # type: ignore[import-not-found]
except ImportError:
    from trainshed.testing.workloads.probe_more import MORE_MACHINE_WAYS, MORE_ROOT_WAYS, MORE_WAYS

SECRET = "f3Qz-secret-of-the-probe"
MARK = "VICTIM_OF_THE_PROBE"


class Targets(TypedDict):
    """What the probe looks for. The folders have a file `secret` with SECRET in it."""

    state: str  #: the state folder: state.db, token, and a program `tool`
    other_bucket: str
    own_bucket: str
    other_job: str
    attempt: str  #: the attempt's own folder
    site: str  #: the job's packages
    node: str  #: the shipped code
    home_file: str  #: a file in the server's HOME
    tmp_file: str
    shm_file: str
    victim: int  #: pid of a process with SECRET in its environment and at `victim_address` of its memory
    victim_address: int
    supervisor: int
    socket: str  #: a unix socket in the state folder
    abstract: str  #: the name of an abstract one
    tcp: int  #: ports of services on loopback
    udp: int
    shm_key: int  #: of a System V segment with SECRET in it
    own: str  #: an address of the machine that is not loopback, or empty
    tcp_all: int  #: ports of services on all addresses
    udp_all: int
    tcp_6: int  #: port of a service on loopback by IPv6
    semaphores: int  #: keys of System V
    messages: int
    queue: str  #: the name of a POSIX message queue


#: Ways that need root without a sandbox too.
_ROOT_WAYS = frozenset(
    (
        *(
            "write /usr",
            "change a kernel setting",
            "trigger sysrq",
            "write a cgroup",
            "read kernel messages",
            "read kcore",
        ),
        *("have capabilities", "open a file by its handle", "chroot", "make a device", "open a raw packet socket"),
        *(
            "raise a limit",
            "raise the priority",
            "use bpf",
            "use fanotify",
            "mount",
            "join a namespace",
            "set the clock",
        ),
        *(
            "fake terminal input",
            "set the host name",
            "read the disk",
            "write /",
            "become another user",
            "open a perf event",
        ),
        *("lower the oom score", "read /etc/shadow", "use quotactl"),
    )
)
#: Ways that a kernel may not have, or that root of a container may not go.
_MACHINE_WAYS = frozenset(
    (
        *("trigger sysrq", "read kcore", "read the disk", "open a socket of the kernel's crypto", "use io_uring"),
        *("fake terminal input", "open a perf event", "use userfaultfd", "write a cgroup", "use quotactl", "use bpf"),
        *("raise a limit", "lower the oom score"),
    )
)
ROOT_WAYS = _ROOT_WAYS | MORE_ROOT_WAYS
MACHINE_WAYS = _MACHINE_WAYS | MORE_MACHINE_WAYS

_libc = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"


def main() -> None:
    targets: Targets = json.loads(sys.argv[1])
    found = {name: _try(function, targets) for name, function in WAYS.items()}
    print("PROBE " + json.dumps(found), flush=True)


def source() -> dict[str, str]:
    """The files of the probe, by the names that they need."""
    folder = Path(__file__).parent
    return {name: (folder / name).read_text() for name in ("probe.py", "probe_more.py")}


def _try(function: Callable[[Targets], object], targets: Targets) -> bool:
    """Whether a way succeeds, in a process of its own, which it may ruin. False if it raises or returns False."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = int(function(targets) is False)
        except (OSError, ValueError, LookupError):
            status = 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def _syscall(x86: int, arm: int, *arguments: object) -> int:
    converted = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc.syscall(ctypes.c_long(x86 if _X86 else arm), *converted))
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def _reads(path: str) -> bool:
    with open(path, "rb") as file:
        return SECRET.encode() in file.read()


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def _handle(path: str) -> tuple[ctypes.Array[ctypes.c_char], int]:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    number = ctypes.c_int()
    _syscall(303, 264, -100, path.encode(), handle, ctypes.byref(number), 0)
    return handle, number.value


def _watch_a_hidden_folder(t: Targets) -> None:
    fd = _checked(_libc.inotify_init())
    _checked(_libc.inotify_add_watch(fd, os.fsencode(t["other_bucket"]), 0x100))


def _follow_a_symlink_in_a_bucket(t: Targets) -> object:
    link = t["own_bucket"] + "/symlink"
    os.symlink(t["other_bucket"] + "/secret", link)
    return _reads(link)


def _leave_a_file_in_the_machine_s_dev_shm(t: Targets) -> object:
    Path(t["shm_file"] + ".left").write_text("x")
    return os.path.exists(t["shm_file"])  # else it is another one


def _write_usr(_targets: Targets) -> None:
    path = "/usr/.probe-%d" % os.getpid()
    _open(path, os.O_CREAT | os.O_WRONLY)
    os.unlink(path)


def _write_(_targets: Targets) -> None:
    path = "/.probe-%d" % os.getpid()
    os.mkdir(path)
    os.rmdir(path)


def _read_the_disk(t: Targets) -> object:
    device = os.stat(t["attempt"] if os.path.exists(t["attempt"]) else "/usr").st_dev
    for name in os.listdir("/dev"):
        info = os.lstat("/dev/" + name)
        if stat.S_ISBLK(info.st_mode) and info.st_rdev == device:
            _open("/dev/" + name, os.O_RDONLY)
            return True
    return False


def _make_a_device(_targets: Targets) -> None:
    path = tempfile.mkdtemp() + "/zero"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    _open(path, os.O_RDONLY)


def _see_processes_of_others(_targets: Targets) -> object:
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return any(MARK.encode() in Path("/proc/%s/cmdline" % pid).read_bytes() for pid in pids)


def _read_another_process_s_memory(t: Targets) -> object:
    with open("/proc/%d/mem" % t["victim"], "rb", 0) as file:
        file.seek(t["victim_address"])
        return file.read(len(SECRET)) == SECRET.encode()


def _read_memory_with_process_vm_readv(t: Targets) -> object:
    buffer = ctypes.create_string_buffer(len(SECRET))
    local = struct.pack("PN", ctypes.addressof(buffer), len(SECRET))
    remote = struct.pack("PN", t["victim_address"], len(SECRET))
    _syscall(310, 270, t["victim"], local, 1, remote, 1, 0)
    return buffer.raw == SECRET.encode()


def _attach_to_shared_memory_of_others(t: Targets) -> object:
    number = _checked(_libc.shmget(t["shm_key"], 0, 0))
    _libc.shmat.restype = ctypes.c_void_p
    address = _libc.shmat(number, None, 0o10000)
    return ctypes.string_at(address, len(SECRET)) == SECRET.encode()


def _have_capabilities(_targets: Targets) -> object:
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("CapEff", "CapPrm", "CapBnd")))


def _raise_a_limit(_targets: Targets) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 1))


def _connect_to_a_unix_socket_of_the_server(t: Targets) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(t["socket"])


def _connect_to_an_abstract_socket(t: Targets) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + t["abstract"])


def _connect_to_loopback(t: Targets) -> object:
    with socket.create_connection(("127.0.0.1", t["tcp"]), 5) as connection:
        return connection.recv(100) == SECRET.encode()


def _send_a_datagram_to_loopback(t: Targets) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(5)
        connection.connect(("127.0.0.1", t["udp"]))
        connection.send(b"x")
        return connection.recv(100) == SECRET.encode()


def _make_a_user_namespace_with_clone(_targets: Targets) -> None:
    pid = _syscall(56, 220, 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _mount(_targets: Targets) -> None:
    _checked(_libc.unshare(0x00020000))
    _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(16384 | 1 << 18), None))
    _checked(_libc.mount(b"tmpfs", os.fsencode(tempfile.mkdtemp()), b"tmpfs", ctypes.c_ulong(0), None))


def _open_a_perf_event(_targets: Targets) -> None:
    attributes = struct.pack("IIQ", 1, 112, 0) + bytes(24) + struct.pack("Q", 0) + bytes(64)
    _syscall(298, 241, attributes, 0, -1, -1, 0)


def _get_the_handle_of_a_file(_targets: Targets) -> object:
    handle, number = _handle("/usr")
    return bool(handle) and number >= 0


def _open_a_file_by_its_handle(_targets: Targets) -> None:
    handle, _ = _handle("/usr")
    os.close(_syscall(304, 265, os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY))


def _fake_terminal_input(_targets: Targets) -> None:
    _, slave = os.openpty()
    fcntl.ioctl(slave, 0x5412, b"x")


def _change_the_line_discipline_of_a_terminal(_targets: Targets) -> None:
    _, slave = os.openpty()
    fcntl.ioctl(slave, 0x5423, struct.pack("i", 0))


def _write_a_cgroup(_targets: Targets) -> object:
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        if "cgroup.procs" in names:
            _open(folder + "/cgroup.procs", os.O_WRONLY)
            return True
    return False


def _read_kcore(_targets: Targets) -> object:
    with open("/proc/kcore", "rb") as file:
        return file.read(4) == b"\x7fELF"


def _set_the_host_name(_targets: Targets) -> None:
    name = socket.gethostname().encode()
    _checked(_libc.sethostname(name, len(name)))


#: Each way out, by its name. One that returns False, or raises, has failed.
WAYS: dict[str, Callable[[Targets], object]] = {
    "read the state folder": lambda t: _reads(t["state"] + "/secret"),
    "list the state folder": lambda t: "state.db" in os.listdir(t["state"]),
    "read the owner's token": lambda t: _reads(t["state"] + "/token"),
    "write the database": lambda t: _open(t["state"] + "/state.db", os.O_WRONLY),
    "stat a hidden file": lambda t: os.stat(t["state"] + "/token"),
    "chmod a hidden file": lambda t: os.chmod(t["state"] + "/token", 0o600),
    "set an attribute of a hidden file": lambda t: os.setxattr(t["state"] + "/token", "user.probe", b"1"),
    "set the times of a hidden file": lambda t: os.utime(t["state"] + "/token"),
    "truncate a hidden file": lambda t: os.truncate(t["state"] + "/truncated", 0),
    "enter a hidden folder": lambda t: os.chdir(t["other_bucket"]),
    "watch a hidden folder": _watch_a_hidden_folder,
    "run a hidden program": lambda t: os.spawnv(os.P_WAIT, t["state"] + "/tool", ["tool"]) == 0,
    "rename a hidden file": lambda t: os.rename(t["state"] + "/renamed", t["state"] + "/renamed"),
    "read another project's bucket": lambda t: _reads(t["other_bucket"] + "/secret"),
    "write another project's bucket": lambda t: _open(t["other_bucket"] + "/new", os.O_CREAT | os.O_WRONLY),
    "follow a symlink in a bucket": _follow_a_symlink_in_a_bucket,
    "hard link a hidden file into a bucket": lambda t: os.link(
        t["other_bucket"] + "/secret", t["own_bucket"] + "/hardlink"
    ),
    "read another job's folder": lambda t: _reads(t["other_job"] + "/secret"),
    "write the attempt's journal": lambda t: _open(t["attempt"] + "/journal.jsonl", os.O_WRONLY | os.O_APPEND),
    "write the attempt's log": lambda t: _open(t["attempt"] + "/log.jsonl", os.O_WRONLY | os.O_APPEND),
    "read the attempt's spec": lambda t: _open(t["attempt"] + "/spec.json", os.O_RDONLY),
    "send a command to the supervisor": lambda t: _open(t["attempt"] + "/control", os.O_WRONLY | os.O_NONBLOCK),
    "open the supervisor's lock": lambda t: _open(t["attempt"] + "/lock", os.O_RDWR),
    "write the packages": lambda t: _open(t["site"] + "/sitecustomize.txt", os.O_CREAT | os.O_WRONLY),
    "write the node code": lambda t: _open(t["node"] + "/probe.txt", os.O_CREAT | os.O_WRONLY),
    "read the server's HOME": lambda t: _reads(t["home_file"]),
    "read the machine's /tmp": lambda t: _reads(t["tmp_file"]),
    "read the machine's /dev/shm": lambda t: _reads(t["shm_file"]),
    "leave a file in the machine's /dev/shm": _leave_a_file_in_the_machine_s_dev_shm,
    "read /etc/shadow": lambda t: _open("/etc/shadow", os.O_RDONLY),
    "write /usr": _write_usr,
    "write /": _write_,
    "read the disk": _read_the_disk,
    "make a device": _make_a_device,
    "see processes of others": _see_processes_of_others,
    "read another process's environment": lambda t: _reads("/proc/%d/environ" % t["victim"]),
    "read another process's memory": _read_another_process_s_memory,
    "read memory with process_vm_readv": _read_memory_with_process_vm_readv,
    "look through another process's root": lambda t: _reads("/proc/%d/root%s/token" % (t["victim"], t["state"])),
    "open another process's files": lambda t: bool(os.listdir("/proc/%d/fd" % t["victim"])),
    "signal another process": lambda t: os.kill(t["victim"], 0),
    "signal the supervisor": lambda t: os.kill(t["supervisor"], 0),
    "trace another process": lambda t: _syscall(101, 117, 16902, t["victim"], 0, 0),
    "take a file from another process": lambda t: _syscall(438, 438, os.pidfd_open(t["victim"]), 0, 0),
    "be traced": lambda t: _syscall(101, 117, 0, 0, 0, 0),
    "attach to shared memory of others": _attach_to_shared_memory_of_others,
    "run a program with its owner's rights": lambda t: _libc.prctl(39, 0, 0, 0, 0) == 0,
    "have capabilities": _have_capabilities,
    "become another user": lambda t: os.setuid(65534),
    "raise a limit": _raise_a_limit,
    "raise the priority": lambda t: os.setpriority(os.PRIO_PROCESS, 0, -5),
    "lower the oom score": lambda t: Path("/proc/self/oom_score_adj").write_text("-900"),
    "connect to a unix socket of the server": _connect_to_a_unix_socket_of_the_server,
    "connect to an abstract socket": _connect_to_an_abstract_socket,
    "connect to loopback": _connect_to_loopback,
    "send a datagram to loopback": _send_a_datagram_to_loopback,
    "open a raw packet socket": lambda t: socket.socket(17, socket.SOCK_RAW, 0).close(),
    "open a socket of the kernel's crypto": lambda t: socket.socket(38, socket.SOCK_SEQPACKET, 0).close(),
    "open a netlink socket of another kind": lambda t: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2).close(),
    "make a user namespace": lambda t: _checked(_libc.unshare(268435456)),
    "make a user namespace with clone": _make_a_user_namespace_with_clone,
    "mount": _mount,
    "open a mount as a file": lambda t: os.close(_syscall(428, 428, -100, b"/", 0)),
    "join a namespace": lambda t: _checked(_libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0)),
    "chroot": lambda t: os.chroot("/"),
    "read a keyring": lambda t: _syscall(250, 219, 0, -4, 1),
    "add a key": lambda t: _syscall(248, 217, b"user", b"probe", b"x", 1, -1),
    "use io_uring": lambda t: _syscall(425, 425, 1, ctypes.create_string_buffer(120)),
    "use bpf": lambda t: _syscall(321, 280, 0, struct.pack("IIIIII", 2, 4, 4, 1, 0, 0), 24),
    "use userfaultfd": lambda t: _syscall(323, 282, 1),
    "open a perf event": _open_a_perf_event,
    "use fanotify": lambda t: _syscall(300, 262, 4, 0),
    "use quotactl": lambda t: _syscall(179, 60, 2147485440 | 256, None, 0, None),
    "get the handle of a file": _get_the_handle_of_a_file,
    "open a file by its handle": _open_a_file_by_its_handle,
    "turn off address randomization": lambda t: _checked(_libc.personality(ctypes.c_ulong(262144))),
    "fake terminal input": _fake_terminal_input,
    "change the line discipline of a terminal": _change_the_line_discipline_of_a_terminal,
    "change a kernel setting": lambda t: _open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "trigger sysrq": lambda t: _open("/proc/sysrq-trigger", os.O_WRONLY),
    "write a cgroup": _write_a_cgroup,
    "read kernel messages": lambda t: _checked(_libc.klogctl(3, ctypes.create_string_buffer(100), 100)),
    "read kcore": _read_kcore,
    "set the clock": lambda t: _syscall(159, 171, ctypes.create_string_buffer(struct.pack("Iq", 0, 0) + bytes(256))),
    "set the host name": _set_the_host_name,
    **MORE_WAYS,
}


def victim() -> None:
    """A process to attack: prints its pid and the address of the secret in its memory, and waits."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory.write(SECRET.encode())
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    print(os.getpid(), address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    victim() if sys.argv[1:] == [MARK] else main()
