# SPDX-License-Identifier: Apache-2.0
"""A process that reads what it needs, writes into one folder, and has no network: Landlock for files, TCP ports and signals,
seccomp for sockets and for ways around both. Both hold for the rest of the process and for all that it starts.

The numbers are those of the kernel's own interface: include/uapi/linux/landlock.h, seccomp.h, filter.h and audit.h, and the
tables of system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

from ._core import EnvironmentError

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: All rights to files that a version of the interface knows, by the version.
_ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVS, _SET_FILTER, _ALL_THREADS = 38, 1, 1

#: Of each machine: seccomp's own number, its name in audit.h, and the calls that are refused: sockets; io_uring, which opens
#: sockets by itself; what reads or changes other processes; what makes namespaces, mounts, keys and programs of the kernel;
#: handles of files, the clock and the machine itself.
_MACHINES: dict[str, tuple[int, int, list[int]]] = {
    "x86_64": (317, 0xC000003E, [41, 425, 426, 427, 101, 310, 311, 438, 272, 308, 165, 166, 155, 161, 248, 249, 250, 298, 321,
                                 175, 313, 323, 304, 169, 164, 227]),
    "aarch64": (277, 0xC00000B7, [198, 425, 426, 427, 117, 270, 271, 438, 97, 268, 40, 39, 41, 51, 217, 218, 219, 241, 280,
                                  105, 273, 282, 265, 142, 170, 112]),
}
_READABLE = ("/usr", "/lib", "/lib64", "/bin", "/opt", "/etc/ld.so.cache", "/etc/passwd", "/etc/nsswitch.conf",
             "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/self/maps",
             "/proc/self/status", "/proc/self/cgroup", "/proc/sys/vm/overcommit_memory", "/sys/devices/system",
             "/dev/urandom", "/dev/zero", "/dev/full")
_KEPT = ("PATH", "CXX", "LANG", "LC_ALL",
         "PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TRITON_INTERPRET", "AMPCHECK_JOBS")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(libc: ctypes.CDLL, what: str, number: int, *arguments: object) -> int:
    got = int(libc.syscall(ctypes.c_long(number), *arguments))
    if got < 0:
        raise EnvironmentError(f"[sandbox] {what}: {os.strerror(ctypes.get_errno())}")
    return got


def version() -> int:
    """Of Landlock's interface. Raises EnvironmentError with what is missing."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise EnvironmentError(f"[sandbox] got {sys.platform} on {platform.machine()}, want Linux on {' or '.join(_MACHINES)}")
    got = int(_libc().syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if got < 1:
        why = errno.errorcode.get(ctypes.get_errno(), "?")
        raise EnvironmentError(f"[sandbox] got a kernel without Landlock ({why}), want Linux 5.13 or later with 'landlock' in "
                               "/sys/kernel/security/lsm")
    return got


def environment(scratch: str) -> dict[str, str]:
    """Variables of the process: none that may hold a secret, and all caches in its own folder."""
    own = {key: os.environ[key] for key in _KEPT if key in os.environ}
    return own | {"HOME": scratch, "TMPDIR": scratch, "TORCHINDUCTOR_CACHE_DIR": scratch, "TRITON_CACHE_DIR": scratch,
                  "XDG_CACHE_HOME": scratch, "PYTHONDONTWRITEBYTECODE": "1"}


def readable(files: Sequence[str]) -> list[str]:
    """What may be read: the system's programs, Python with its packages, and these files."""
    own = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.realpath(__file__))]
    packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    given = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return [*_READABLE, sys.prefix, sys.base_prefix, *own, *packages, *given, *files]


def _rule(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        attribute = struct.pack("=Qi", rights, handle)
        _call(libc, f"a rule for '{path}'", _ADD, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.c_char_p(attribute),
              ctypes.c_uint32(0))
    finally:
        os.close(handle)


def _landlock(libc: ctypes.CDLL, reads: Sequence[str], scratch: str) -> None:
    got = version()
    every = _ALL_RIGHTS[min(got, 5)]
    attribute = struct.pack("=QQQ", every, 3 if got >= 4 else 0, 3 if got >= 6 else 0)
    size = 24 if got >= 6 else 16 if got >= 4 else 8
    ruleset = _call(libc, "a set of rules", _CREATE, ctypes.c_char_p(attribute), ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path in reads:
        _rule(libc, ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    _rule(libc, ruleset, "/dev/null", (_READ_FILE | _WRITE_FILE | _TRUNCATE) & every)
    _rule(libc, ruleset, scratch, every)
    _call(libc, "the restriction", _RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _filter(machine: tuple[int, int, list[int]]) -> bytes:
    """A program for seccomp: another machine's calls and those of the list fail with EACCES."""
    _, architecture, denied = machine
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    refuse = 5 + len(denied)  # the last line; jumps count from the line behind them
    lines = [(load, 0, 0, 4), (equal, 0, refuse - 2, architecture), (load, 0, 0, 0),
             (at_least, refuse - 4, 0, 0x40000000)]  # the calls of x32
    lines += [(equal, refuse - len(lines) - at - 1, 0, number) for at, number in enumerate(denied)]
    lines += [(end, 0, 0, 0x7FFF0000), (end, 0, 0, 0x00050000 | errno.EACCES)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _seccomp(libc: ctypes.CDLL) -> None:
    machine = _MACHINES[platform.machine()]
    code = _filter(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    _call(libc, "the filter of system calls", machine[0], ctypes.c_uint(_SET_FILTER), ctypes.c_uint(_ALL_THREADS),
          ctypes.c_char_p(program))


def enter(reads: Sequence[str], scratch: str) -> None:
    """From now on this process reads `reads`, writes below `scratch`, and opens no socket. For a process of one thread:
    Landlock holds for the calling one and those that it starts."""
    libc = _libc()
    version()
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise EnvironmentError(f"[sandbox] no_new_privs: {os.strerror(ctypes.get_errno())}")
    _landlock(libc, reads, scratch)
    _seccomp(libc)
