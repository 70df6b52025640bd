# SPDX-License-Identifier: BSD-2-Clause
"""What a service manager's hardening switches make of a process, without the service manager: run as a program, it applies the one that is
named and becomes the command behind it.

    hardened.py KEEP SWITCH -- COMMAND ARGUMENTS...

The names are systemd's (systemd.exec(5)), and each does what systemd does for it. KEEP: the folder of the test's own files, which stays as it is.
HARDENED_PRELOAD in the environment is LD_PRELOAD of the command.
"""

import ctypes
import errno
import functools
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
ALL_NAMESPACES = 0x02000000 | 0x04000000 | CLONE_NEWIPC | CLONE_NEWUSER | 0x20000000 | 0x40000000 | CLONE_NEWNS
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_MDWE = 38, 24, 65
USERS = range(61184, 65520)  # those that systemd gives to a DynamicUser
NOT_HERE = 77  # exit status: the switch can't be had here
CHECKOUT = str(pathlib.Path(__file__).resolve().parents[3])  # what is to be run lies in there


class NotHere(Exception):
    pass


def _checked(result, what):
    if result < 0:
        error = ctypes.get_errno()
        raise NotHere(f"{what}: {os.strerror(error)}")
    return result


def unshare(flags):
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare()")


def mount(source, target, kind=None, flags=0, data=None):
    def text(value):
        return None if value is None else os.fsencode(value)

    _checked(_libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data)), f"mount {target}")


def own_mounts():
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


class Kept:
    """Those of the folders that lie in one that is about to be covered by a mount: they stay where they are."""

    def __init__(self, folders, covered):
        self._opened = {folder: os.open(folder, os.O_PATH) for folder in folders
                        if any(pathlib.PurePath(folder).is_relative_to(one) for one in covered)}

    def put_back(self):
        for folder, fd in self._opened.items():
            os.makedirs(folder, exist_ok=True)
            mount(f"/proc/self/fd/{fd}", folder, flags=MS_BIND | MS_REC)


def read_only(folder):
    mount(folder, folder, flags=MS_BIND | MS_REC)
    mount(folder, folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


# ---- filters of system calls, by libseccomp as systemd's are

ALLOW, KILL = 0x7FFF0000, 0x80000000
EQUAL, MASKED = 4, 7  # of scmp_compare


def refuse(error):
    return 0x00050000 | error


class _Argument(ctypes.Structure):
    _fields_ = [("place", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Filter:
    """Rules are added to it, and then it is set."""

    def __init__(self, otherwise):
        try:
            self.library = ctypes.CDLL("libseccomp.so.2")
        except OSError as error:
            raise NotHere(str(error)) from error
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(otherwise)))

    def rule(self, action, name, *arguments):
        number = self.library.seccomp_syscall_resolve_name(name.encode())
        if number == -1:
            return  # not a call of this machine's
        given = (_Argument * max(len(arguments), 1))(*[_Argument(*a) for a in arguments])
        self.library.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number, len(arguments), given)

    def load(self):
        result = self.library.seccomp_load(self.context)
        if result != 0:
            raise NotHere(f"seccomp: {os.strerror(-result)}")


@functools.lru_cache(maxsize=None)
def calls_of(group):
    """The names in a set of systemd's, those of sets in it too."""
    try:
        text = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotHere(f"systemd-analyze: {error}") from error
    names = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            names |= calls_of(word)
        elif re.fullmatch(r"\w+", word):
            names.add(word)
    return names


def only(*groups, but=(), otherwise=KILL):
    names = set().union(*(calls_of(group) for group in groups)) - set(but)
    made = Filter(otherwise)
    for name in sorted(names | {"execve"}):
        made.rule(ALLOW, name)
    made.load()


def families(*kept):
    made = Filter(ALLOW)
    for family in set(range(46)) - set(kept):
        made.rule(refuse(errno.EAFNOSUPPORT), "socket", (0, EQUAL, family, 0))
    made.load()


def refused(error, *rules):
    made = Filter(ALLOW)
    for name, *arguments in rules:
        made.rule(refuse(error), name, *arguments)
    made.load()


def write_execute():
    both, execute, shm_exec = 6, 4, 0o100000
    refused(errno.EPERM, ("mmap", (2, MASKED, both, both)), ("mprotect", (2, MASKED, execute, execute)),
            ("pkey_mprotect", (2, MASKED, execute, execute)), ("shmat", (2, MASKED, shm_exec, shm_exec)))


def namespaces():
    made = Filter(ALLOW)
    made.rule(refuse(errno.ENOSYS), "clone3")
    made.rule(refuse(errno.EPERM), "setns")
    for bit in range(32):
        if ALL_NAMESPACES >> bit & 1:
            for name in "clone", "unshare":
                made.rule(refuse(errno.EPERM), name, (0, MASKED, 1 << bit, 1 << bit))
    made.load()


def suid_sgid():
    rules = [(name, (place, MASKED, bit, bit)) for bit in (0o4000, 0o2000)
             for name, place in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdir", 1), ("mkdirat", 2), ("mknod", 1),
                                 ("open", 2), ("openat", 3), ("creat", 1))]
    refused(errno.EPERM, *rules)


# ---- mounts


def private_tmp(keep):
    own_mounts()
    kept = Kept((keep, CHECKOUT), ("/tmp",))
    mount("tmpfs", "/tmp", "tmpfs", data="mode=1777")
    kept.put_back()


def protect_system(keep):
    own_mounts()
    mount(keep, keep, flags=MS_BIND)
    kept = {"/dev", "/proc", "/sys"}
    for name in os.listdir("/"):
        folder = f"/{name}"
        if folder not in kept and os.path.isdir(folder) and not os.path.islink(folder):
            read_only(folder)


def protect_home(keep):
    own_mounts()
    homes = [folder for folder in ("/home", "/root", "/run/user") if os.path.isdir(folder)]
    kept = Kept((keep, CHECKOUT), homes)
    for folder in homes:
        mount("tmpfs", folder, "tmpfs", data="mode=755")
    kept.put_back()
    for folder in homes:
        mount(folder, folder, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def private_devices():
    own_mounts()
    mount("tmpfs", "/mnt", "tmpfs", data="mode=755")
    for name in "null", "zero", "full", "random", "urandom", "tty":
        open(f"/mnt/{name}", "wb").close()
        mount(f"/dev/{name}", f"/mnt/{name}", flags=MS_BIND)
    os.mkdir("/mnt/shm")
    mount("/dev/shm", "/mnt/shm", flags=MS_BIND)
    mount("/mnt", "/dev", flags=MS_BIND | MS_REC)
    refused(errno.EPERM, *[(name,) for name in calls_of("@raw-io")])


def over(folder, kind, data=None, flags=0):
    own_mounts()
    mount(kind, folder, kind, flags, data)


def read_only_shm():
    own_mounts()
    read_only("/dev/shm")


# ---- the rest


def no_capabilities():
    for number in range(64):
        _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)


def users():
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def user_of_world():
    """A number that no other world has now, as two namespaces have each a number of its own: RLIMIT_NPROC counts all that a user has in any."""
    return USERS[os.stat("/proc/self/ns/pid").st_ino % len(USERS)]


def user():
    number = user_of_world()
    try:
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    except OSError as error:
        raise NotHere(f"setgroups(), setresuid(): {error.strerror}") from error


def mdwe():
    _checked(_libc.prctl(PR_SET_MDWE, ctypes.c_ulong(1), 0, 0, 0), "PR_SET_MDWE")


def landlock(keep):
    """No file can be written or made but in KEEP; what may be read and run stays."""
    handled = ctypes.c_uint64(0b1_1111_1111_0010)  # LANDLOCK_ACCESS_FS_* of its first version: to write, remove and make
    ruleset = _checked(_libc.syscall(ctypes.c_long(444), ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint(0)), "Landlock")
    beneath = struct.pack("=Qi", handled.value, os.open(keep, os.O_PATH))
    _checked(_libc.syscall(ctypes.c_long(445), ctypes.c_int(ruleset), ctypes.c_int(1), beneath, ctypes.c_uint(0)), "Landlock")
    _checked(_libc.syscall(ctypes.c_long(446), ctypes.c_int(ruleset), ctypes.c_uint(0)), "Landlock")
    os.close(ruleset)


def limit(kind, value):
    resource.setrlimit(kind, (value, value))


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

SWITCHES = {
    "NoNewPrivileges": lambda keep: None,  # below, for all of them
    "SystemCallFilter=@system-service": lambda keep: only("@system-service"),
    "SystemCallFilter=@system-service,EPERM": lambda keep: only("@system-service", otherwise=refuse(errno.EPERM)),
    "SystemCallFilter=@system-service,~@ipc": lambda keep: only("@system-service", but=calls_of("@ipc")),
    "SystemCallFilter=@system-service,~@ipc,EPERM": lambda keep: only("@system-service", but=calls_of("@ipc"),
                                                                      otherwise=refuse(errno.EPERM)),
    "SystemCallFilter=@system-service,~clone": lambda keep: only("@system-service", but=("clone", "clone3"),
                                                                 otherwise=refuse(errno.EPERM)),
    "SystemCallArchitectures=native": lambda keep: refused(errno.EPERM, ("lookup_dcookie",)),
    "MemoryDenyWriteExecute": lambda keep: write_execute(),
    "MemoryDenyWriteExecute,prctl": lambda keep: mdwe(),
    "RestrictAddressFamilies=AF_INET,AF_INET6,AF_UNIX,AF_NETLINK": lambda keep: families(AF_INET, AF_INET6, AF_UNIX, AF_NETLINK),
    "RestrictAddressFamilies=AF_INET,AF_INET6,AF_UNIX": lambda keep: families(AF_INET, AF_INET6, AF_UNIX),
    "RestrictAddressFamilies=AF_INET,AF_INET6,AF_NETLINK": lambda keep: families(AF_INET, AF_INET6, AF_NETLINK),
    "RestrictAddressFamilies=AF_INET,AF_INET6": lambda keep: families(AF_INET, AF_INET6),
    "RestrictNamespaces": lambda keep: namespaces(),
    "LockPersonality": lambda keep: refused(errno.EPERM, ("personality",)),
    "RestrictRealtime": lambda keep: refused(errno.EPERM, *[("sched_setscheduler", (1, EQUAL, policy, 0)) for policy in (1, 2, 6)]),
    "RestrictSUIDSGID": lambda keep: suid_sgid(),
    "PrivateTmp": private_tmp,
    "PrivateIPC": lambda keep: unshare(CLONE_NEWIPC),
    "PrivateDevices": lambda keep: private_devices(),
    "PrivateUsers": lambda keep: users(),
    "ProtectSystem=strict": protect_system,
    "ProtectHome": protect_home,
    "ProtectProc=invisible": lambda keep: over("/proc", "proc", "hidepid=invisible"),
    "ProcSubset=pid": lambda keep: over("/proc", "proc", "subset=pid"),
    "InaccessiblePaths=/proc": lambda keep: over("/proc", "tmpfs", "mode=000", MS_RDONLY),
    "InaccessiblePaths=/dev/shm": lambda keep: over("/dev/shm", "tmpfs", "mode=000", MS_RDONLY),
    "ReadOnlyPaths=/dev/shm": lambda keep: read_only_shm(),
    "CapabilityBoundingSet=": lambda keep: no_capabilities(),
    "User": lambda keep: user(),
    "User,LimitNPROC=1": lambda keep: (limit(resource.RLIMIT_NPROC, 1), user()),
    "LimitAS=96M": lambda keep: limit(resource.RLIMIT_AS, 96 << 20),
    "LimitFSIZE=64K": lambda keep: limit(resource.RLIMIT_FSIZE, 64 << 10),
    "LimitMEMLOCK=0": lambda keep: limit(resource.RLIMIT_MEMLOCK, 0),
    "Landlock": landlock,
}
# Namespaces but for a user's own. Whom the kernel gives none has them in one of those, as a service of a user's manager has (PrivateUsers).
PLACES = {"PrivateTmp", "PrivateIPC", "PrivateDevices", "ProtectSystem=strict", "ProtectHome", "ProtectProc=invisible", "ProcSubset=pid",
          "InaccessiblePaths=/proc", "InaccessiblePaths=/dev/shm", "ReadOnlyPaths=/dev/shm"}


def main():
    keep, switch, _, *command = sys.argv[1:]
    try:
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if switch in PLACES and os.geteuid():
            users()
        SWITCHES[switch](keep)
    except NotHere as error:
        print(f"not here: {error}", file=sys.stderr)
        sys.exit(NOT_HERE)
    preload = os.environ.pop("HARDENED_PRELOAD", None)
    if preload:
        os.environ["LD_PRELOAD"] = preload
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
