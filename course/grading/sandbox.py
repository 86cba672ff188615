"""What a student's answer may not do: refused by the system to the process that calls this.

Nothing here needs rights, a user namespace or a program of its own: limits (``resource``) anywhere,
Landlock for files and seccomp for the rest on Linux, which containers allow as well. Where one of
the two is not to be had, `enclose` says what stays open.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

_GIGABYTES = 4  # of memory, beyond what the lesson holds
_FILE_BYTES = 64 << 20
_OPEN_FILES = 64

_ANY = 1 << 30  # no system call has this number
# What is refused, by its numbers on x86-64 and on aarch64.
_CALLS = {
    "socket": (41, 198), "io_uring_setup": (425, 425),  # no network, nor the sockets of programs
    "fork": (57, _ANY), "vfork": (58, _ANY), "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "setsid": (112, 157), "setpgid": (109, 154),  # it ends with the group of its lesson
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    # Landlock leaves these open.
    "chmod": (90, _ANY), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, _ANY), "fchown": (93, 55), "lchown": (94, _ANY), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "removexattr": (197, 14), "utime": (132, _ANY),
    "lremovexattr": (198, 15), "utimes": (235, _ANY), "futimesat": (261, _ANY),
    "utimensat": (280, 88), "truncate": (76, 45),
    "shmget": (29, 194), "msgget": (68, 186), "mq_open": (240, 180), "semget": (64, 190),
    "memfd_create": (319, 279), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _PRLIMIT = (56, 220), 435, (302, 261)
_CLONE_THREAD = 0x10000
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_READ_FILE, _LIST = 0b101, 0b1000  # open and execute; see the names
_WRITE_FILE = 0b10


def enclose(
    home: Path, readable: Iterable[Path], listable: Iterable[Path], seconds: float
) -> list[str]:
    """Refuse this process, for good, all but to compute, read there and write to ``home``.

    Of what is only ``listable`` it sees the names. It has ``seconds`` of a processor, some
    gigabytes of memory beyond what it has now, files of 64 MiB, 64 of them open, and threads, but
    no other process. What the system cannot refuse is given back, in words.
    """
    os.environ |= dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), str(home))
    os.chdir(home)
    limit(seconds)
    if sys.platform != "linux":
        return ["the network", "reading and writing your files", "starting and ending processes"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # end when the process that started this one ends
    libc.prctl(38, 1, 0, 0, 0)  # no new rights, which the two below ask for
    libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))  # root is nobody special
    missing = []
    if not _only_these_files(libc, home, readable, listable):
        missing += ["reading and writing your files"]
    if not _only_these_calls(libc):
        missing += ["the network", "starting and ending processes"]
    return missing


def limit(seconds: float) -> None:
    """Limit the time, memory and files of this process."""
    limits = {
        resource.RLIMIT_CPU: int(seconds) + 1, resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_AS: psutil.Process().memory_info().vms + (_GIGABYTES << 30),
        resource.RLIMIT_NOFILE: _OPEN_FILES, resource.RLIMIT_CORE: 0,
    }  # fmt: skip
    for name, value in limits.items():
        with suppress(ValueError, OSError):  # macOS has no limit of memory
            resource.setrlimit(name, (value, value))


def _only_these_files(
    libc: ctypes.CDLL, home: Path, readable: Iterable[Path], listable: Iterable[Path]
) -> bool:
    """Whether Landlock (Linux 5.13) refuses all other files."""
    version = libc.syscall(444, None, 0, 1)
    if version < 1:
        return False
    every = (1 << (13, 14, 15, 15, 16)[min(version, 5) - 1]) - 1
    rules = libc.syscall(444, struct.pack("Q", every), 8, 0)
    allowed = [(path, _READ_FILE | _LIST * path.is_dir()) for path in readable]
    allowed += [(path, _LIST) for path in listable]
    for path, access in [*allowed, (home, every), (Path(os.devnull), _READ_FILE | _WRITE_FILE)]:
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_PATH)
            libc.syscall(445, rules, 1, struct.pack("=Qi", access, opened), 0)
            os.close(opened)
    enforced = libc.syscall(446, rules, 0) == 0
    os.close(rules)
    return enforced


def _only_these_calls(libc: ctypes.CDLL) -> bool:
    """Whether seccomp refuses the calls of ``_CALLS``; a thread is no process, and may begin."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    column, architecture = _ARCHITECTURES[platform.machine()]
    permission = _REFUSE | errno.EPERM
    steps = [  # each an operation, how many steps to leave out if it holds or not, a number
        (_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, _ANY), (_RETURN, 0, 0, permission),
    ]  # fmt: skip
    for numbers in _CALLS.values():
        steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, permission)]
    # The C library tries clone where clone3 is not there; its flags can be seen, those cannot.
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    for number, test in ((_CLONE, (_BITS, _CLONE_THREAD)), (_PRLIMIT, (_EQUAL, 0))):
        steps += [
            (_EQUAL, 0, 4, number[column]), (_LOAD, 0, 0, 16), (test[0], 0, 1, test[1]),
            (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, permission),
        ]  # fmt: skip
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    return libc.prctl(22, 2, program, 0, 0) == 0
