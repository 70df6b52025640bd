#!/usr/bin/env python3
"""What libvma.so exports is what it must, and what it is made of calls none of it by name.

A call of read() inside the library would come back to the library's own read(): only the table of compat/src/libc/real.hpp
leads on. And a program that dlopen()s the library has little room for its thread-local variables. Run in a build folder,
as `make check` does.
"""

import pathlib
import re
import shutil
import subprocess
import sys

LIBRARY = pathlib.Path(".libs/libvma.so")
CORE = pathlib.Path("libvmacompat_core.a")
MAP = pathlib.Path(__file__).resolve().parents[2] / "libvma.map"

# What programs call that concerns stream sockets and the life of descriptors, with the other names that glibc has for it.
NEEDED = """
    socket socketpair pipe pipe2 __pipe accept accept4 bind connect __connect listen shutdown
    open open64 openat openat64 creat creat64 __open __open64
    close __close close_range closefrom dup dup2 dup3 __dup2 fcntl fcntl64 __fcntl ioctl
    fclose _IO_fclose freopen freopen64 fdopen _IO_fdopen dprintf vdprintf __dprintf_chk __vdprintf_chk
    getsockopt setsockopt getsockname getpeername sockatmark
    read __read readv preadv2 preadv64v2 recv recvfrom recvmsg recvmmsg __read_chk __recv_chk __recvfrom_chk
    write __write writev pwritev2 pwritev64v2 send __send sendto sendmsg sendmmsg sendfile sendfile64 splice
    select __select pselect poll __poll ppoll __poll_chk __ppoll_chk
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    aio_read aio_read64 aio_write aio_write64 lio_listio lio_listio64 backtrace_symbols_fd __backtrace_symbols_fd
    eventfd_read eventfd_write setsourcefilter setipv4sourcefilter login_tty forkpty
    setenv unsetenv putenv clearenv
    execve execv execvp execvpe execl execlp execle fexecve execveat
    posix_spawn posix_spawnp posix_spawn_file_actions_adddup2 system popen _IO_popen wordexp fork __fork vfork __vfork _Fork clone __clone unshare daemon prctl syscall __register_atfork
    sigaction __sigaction signal bsd_signal ssignal sysv_signal __sysv_signal sigset siginterrupt
    io_uring_setup io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem io_uring_queue_mmap
    io_uring_queue_exit io_uring_close_ring_fd io_uring_resize_rings io_uring_enter io_uring_enter2 io_uring_register
    io_uring_register_files io_uring_register_files_tags io_uring_register_files_update io_uring_register_files_update_tag
    io_uring_submit io_uring_submit_and_wait io_uring_submit_and_get_events io_uring_submit_and_wait_timeout
    io_uring_submit_and_wait_min_timeout io_uring_submit_and_wait_reg __io_uring_get_cqe
    _exit _Exit vma_exit
""".split()

# Exported too, as they make descriptors and so tell that a number is a new one.
MAKERS = """
    eventfd timerfd_create signalfd inotify_init inotify_init1 fanotify_init memfd_create shm_open mq_open __mq_open_2
    pidfd_open pidfd_getfd fsopen fsmount fspick open_tree open_by_handle_at posix_openpt getpt openpty
    mkstemp mkstemp64 mkstemps mkstemps64 mkostemp mkostemp64 mkostemps mkostemps64 __open_2 __open64_2 __openat_2 __openat64_2
    rresvport rresvport_af fopen fopen64 tmpfile tmpfile64 opendir
""".split()

# Names that the library may call though it exports them: they make descriptors that are not tracked, or end up in
# the table anyway.
HARMLESS = set(MAKERS) | {"syscall", "unsetenv"}


MAX_TLS = 256  # bytes; glibc keeps 512 for libraries that are opened at run time


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def thread_local_bytes(library):
    for line in lines("readelf", "-lW", str(library)):
        if line.split()[:1] == ["TLS"]:
            return int(line.split()[5], 16)
    return 0


def exported(library):
    rows = (line.split() for line in lines("nm", "-D", "--defined-only", str(library)))
    return {row[-1].split("@")[0] for row in rows if len(row) >= 3}


def undefined(archive):
    return {line.split()[-1].split("@")[0] for line in lines("nm", "--undefined-only", str(archive)) if " U " in line}


def complain(what, names):
    if names:
        print(f"{what}: {' '.join(sorted(names))}")
    return bool(names)


def main():
    if shutil.which("nm") is None:
        print("nm is not installed")
        return 77
    if not LIBRARY.exists() or not CORE.exists():
        print(f"{LIBRARY} is not built here")
        return 77
    there = exported(LIBRARY)
    listed = set(re.findall(r"^\s*(\w+);", MAP.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = complain("needed, and not exported", set(NEEDED) - there)
    wrong |= complain("exported, and not known to this test", there - set(NEEDED) - set(MAKERS))
    wrong |= complain("in libvma.map, and not defined", listed - there)
    wrong |= complain("called by name inside the library", (undefined(CORE) & there) - HARMLESS)
    if thread_local_bytes(LIBRARY) > MAX_TLS:
        print(f"{thread_local_bytes(LIBRARY)} bytes of thread-local variables, at most {MAX_TLS} are wise")
        wrong = True
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
