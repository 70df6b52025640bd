// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/sockets/programs/bad_pointers/table.hpp"

#include <sys/syscall.h>

namespace fabtest {

namespace {

constexpr Row::Gives kFd = Row::Gives::kDescriptor;
constexpr Row::Gives kPointer = Row::Gives::kPointer;

// MSG_DONTWAIT is 64, AT_FDCWD -100, SOL_SOCKET 1.
const std::vector<Row> kRows = {
    // what moves bytes
    {"read", "fd o:bytes 8"},
    {"__read", "fd o:bytes 8"},
    {"__read_chk", "fd o:bytes 8 8"},
    {"readv", "fd i:iov 2"},
    {"preadv2", "fd i:iov 2 -1 0"},
    {"preadv64v2", "fd i:iov 2 -1 8"},
    {"recv", "fd o:bytes 8 64"},
    {"__recv_chk", "fd o:bytes 8 8 64"},
    {"recvfrom", "fd o:bytes 8 64 o:addr b:len"},
    {"__recvfrom_chk", "fd o:bytes 8 8 64 o:addr b:len"},
    {"recvmsg", "fd b:msg 64"},
    {"recvmmsg", "fd b:mmsg 1 64 b:timespec"},
    {"write", "fd i:bytes 8"},
    {"__write", "fd i:bytes 8"},
    {"writev", "fd i:iov 2"},
    {"pwritev2", "fd i:iov 2 -1 0"},
    {"pwritev64v2", "fd i:iov 2 -1 0"},
    {"send", "fd i:bytes 8 64"},
    {"__send", "fd i:bytes 8 64"},
    {"sendto", "fd i:bytes 8 64 i:addr 16"},
    {"sendmsg", "fd i:msg 64"},
    {"sendmmsg", "fd b:mmsg 1 64"},
    {"sendfile", "fd file b:offset 8"},
    {"sendfile64", "fd file b:offset 8"},
    {"splice", "pipe b:offset fd 0 4 2"},
    {"eventfd_read", "fd o:offset"},
    {"eventfd_write", "-"},
    {"aio_read", "p:aiocb"},
    {"aio_read64", "p:aiocb"},
    {"aio_write", "p:aiocb"},
    {"aio_write64", "p:aiocb"},
    {"lio_listio", "7 i:list 1 0"},
    {"lio_listio64", "7 i:list 1 0"},
    {"backtrace_symbols_fd", "p:frames 0 fd"},
    {"__backtrace_symbols_fd", "p:frames 0 fd"},
    {"dprintf", "fd i:path"},
    {"vdprintf", "fd i:path b:arguments"},
    {"__dprintf_chk", "fd 1 i:path"},
    {"__vdprintf_chk", "fd 1 i:path b:arguments"},

    // what waits
    {"poll", "b:pollfd 1 0"},
    {"poll", "b:pollfd 1 -1"},
    {"__poll", "b:pollfd 1 0"},
    {"__poll_chk", "b:pollfd 1 0 8"},
    {"ppoll", "b:pollfd 1 i:timespec i:mask"},
    {"ppoll", "b:pollfd 1 0 0"},
    {"__ppoll_chk", "b:pollfd 1 i:timespec i:mask 8"},
    {"select", "64 b:fdset b:fdset b:fdset b:timeval"},
    {"select", "64 w:fdset 0 0 0"},
    {"__select", "64 b:fdset b:fdset b:fdset b:timeval"},
    {"pselect", "64 b:fdset b:fdset b:fdset i:timespec i:mask"},
    {"pselect", "64 w:fdset 0 0 0 0"},
    {"epoll_create", "-"},
    {"epoll_create1", "-"},
    {"epoll_ctl", "set 1 fd i:event"},
    {"epoll_ctl", "set 2 fd i:event"},
    {"epoll_ctl", "set 3 fd i:event"},
    {"epoll_ctl", "set 9 fd i:event"},
    {"epoll_wait", "set o:event 4 0"},
    {"epoll_pwait", "set o:event 4 0 i:mask"},
    {"epoll_pwait2", "set o:event 4 i:timespec i:mask"},

    // what is asked and told of a descriptor
    {"accept", "fd o:addr b:len"},
    {"accept4", "fd o:addr b:len 0"},
    {"connect", "fd i:addr 16"},
    {"__connect", "fd i:addr 16"},
    {"listen", "-"},
    {"shutdown", "-"},
    {"sockatmark", "-"},
    {"bind", "fd i:addr 16"},
    {"getpeername", "fd o:addr b:len"},
    {"getsockname", "fd o:addr b:len"},
    {"getsockopt", "fd 1 4 o:int b:len"},
    {"getsockopt", "fd 1 47 o:offset b:len"},
    {"getsockopt", "fd 6 11 o:bytes b:len"},
    {"getsockopt", "-1 1 2800 o:bytes b:int"}, // the extra API's
    {"setsockopt", "fd 1 9 i:int 4"},
    {"setsockopt", "fd 1 20 i:timeval 16"},
    {"setsockopt", "fd 1 47 i:offset 8"},
    {"setsockopt", "fd 6 1 i:int 4"},
    {"fcntl", "fd 5 b:flock"},     // F_GETLK
    {"fcntl", "fd 16 o:offset"},   // F_GETOWN_EX
    {"fcntl64", "fd 15 i:offset"}, // F_SETOWN_EX
    {"__fcntl", "fd 1024 0"},
    {"ioctl", "fd 21531 o:int"},     // FIONREAD
    {"ioctl", "fd 21537 i:int"},     // FIONBIO
    {"ioctl", "fd 35077 o:int"},     // SIOCATMARK
    {"ioctl", "fd 21521 o:int"},     // SIOCOUTQ
    {"ioctl", "fd 35078 o:timeval"}, // SIOCGSTAMP
    {"setsourcefilter", "fd 1 i:addr 16 1 1 i:storage"},
    {"setipv4sourcefilter", "fd 0 1 1 1 i:int"},

    // what makes, duplicates and closes
    {"socket", "-"},
    {"socketpair", "1 1 0 o:pair"},
    {"pipe", "o:pair"},
    {"__pipe", "o:pair"},
    {"pipe2", "o:pair 0"},
    {"open", "i:path 0", kFd},
    {"__open", "i:path 0", kFd},
    {"open64", "i:path 0", kFd},
    {"__open64", "i:path 0", kFd},
    {"__open_2", "i:path 0", kFd},
    {"__open64_2", "i:path 0", kFd},
    {"openat", "-100 i:path 0", kFd},
    {"openat64", "-100 i:path 0", kFd},
    {"__openat_2", "-100 i:path 0", kFd},
    {"__openat64_2", "-100 i:path 0", kFd},
    {"creat", "i:path 0", kFd},
    {"creat64", "i:path 0", kFd},
    {"eventfd", "-"},
    {"timerfd_create", "-"},
    {"inotify_init", "-"},
    {"inotify_init1", "-"},
    {"fanotify_init", "-"},
    {"memfd_create", "i:path 0", kFd},
    {"shm_open", "i:missing 0 0", kFd},
    {"mq_open", "i:missing 0", kFd},
    {"mq_open", "i:missing 64 384 i:storage", kFd},
    {"__mq_open_2", "i:missing 0", kFd},
    {"pidfd_open", "-"},
    {"pidfd_getfd", "-"},
    {"fsopen", "i:missing 0", kFd},
    {"fsmount", "-"},
    {"fspick", "-100 i:missing 0", kFd},
    {"open_tree", "-100 i:path 0", kFd},
    {"open_by_handle_at", "-100 b:storage 0", kFd},
    {"mkstemp", "b:missing"},
    {"mkstemp64", "b:missing"},
    {"mkstemps", "b:missing 0"},
    {"mkstemps64", "b:missing 0"},
    {"mkostemp", "b:missing 0"},
    {"mkostemp64", "b:missing 0"},
    {"mkostemps", "b:missing 0 0"},
    {"mkostemps64", "b:missing 0 0"},
    {"posix_openpt", "-"},
    {"getpt", "-"},
    {"openpty", "o:int o:int 0 0 0"},
    {"login_tty", "-"},
    {"setenv", "-"},
    {"unsetenv", "-"},
    {"putenv", "-"},
    {"clearenv", "-"},
    {"rresvport", "p:port"},
    {"rresvport_af", "p:port 2"},
    {"fopen", "i:path i:mode", kPointer},
    {"fopen64", "i:path i:mode", kPointer},
    {"fdopen", "fd i:mode", kPointer},
    {"_IO_fdopen", "fd i:mode", kPointer},
    {"freopen", "i:path i:mode p:stream", kPointer},
    {"freopen64", "i:path i:mode p:stream", kPointer},
    {"tmpfile", "-"},
    {"tmpfile64", "-"},
    {"opendir", "i:missing", kPointer},
    {"signalfd", "-1 i:mask 0", kFd},
    {"dup", "-"},
    {"dup2", "-"},
    {"__dup2", "-"},
    {"dup3", "-"},
    {"close", "-"},
    {"__close", "-"},
    {"close_range", "-"},
    {"closefrom", "-"},
    {"fclose", "p:stream"},
    {"_IO_fclose", "p:stream"},

    // processes and programs
    {"_exit", "-"},
    {"_Exit", "-"},
    {"execve", "i:program i:argv i:argv"},
    {"execv", "i:program i:argv"},
    {"execvp", "i:program i:argv"},
    {"execvpe", "i:program i:argv i:argv"},
    {"execveat", "-100 i:program i:argv i:argv 0"},
    {"fexecve", "file i:argv i:argv"},
    {"execl", "i:program i:program 0"},
    {"execlp", "i:program i:program 0"},
    {"execle", "i:program i:program 0 i:argv"},
    {"posix_spawn", "o:int i:program 0 0 i:argv i:argv"},
    {"posix_spawn", "o:int i:program p:actions 0 i:argv i:argv"},
    {"posix_spawnp", "o:int i:program 0 p:attributes i:argv i:argv"},
    {"posix_spawn_file_actions_adddup2", "-"},
    {"unshare", "0"},
    {"prctl", "16 o:bytes 0 0 0"},
    {"system", "i:program"},
    {"popen", "i:program i:mode", kPointer},
    {"_IO_popen", "i:program i:mode", kPointer},
    {"wordexp", "i:program p:words 0"},
    {"fork", "-"},
    {"__fork", "-"},
    {"_Fork", "-"},
    {"vfork", "-"},
    {"__vfork", "-"},
    {"clone", "= 0 4096 17 0"},
    {"clone", "= 4096 0 17 0"},
    {"__clone", "= 0 0 17 0"},
    {"daemon", "-"},
    {"forkpty", "-"}, // what it writes it writes in both processes
    {"__register_atfork", "-"},

    // handlers: of functions, not of memory
    {"sigaction", "10 i:action o:action"},
    {"sigaction", "32 i:action o:action"},
    {"sigaction", "-1 i:action o:action"},
    {"__sigaction", "10 i:action o:action"},
    {"signal", "-"},
    {"bsd_signal", "-"},
    {"ssignal", "-"},
    {"sysv_signal", "-"},
    {"__sysv_signal", "-"},
    {"sigset", "-"},
    {"siginterrupt", "-"},

    // liburing's, which is not there, and our own
    {"io_uring_setup", "-"},
    {"io_uring_queue_init", "-"},
    {"io_uring_queue_init_params", "-"},
    {"io_uring_queue_init_mem", "-"},
    {"io_uring_queue_mmap", "-"},
    {"vma_exit", "-"},
};

#define RAW_GIVES(gives, name, arguments)                                                                              \
    Row                                                                                                                \
    {                                                                                                                  \
        "syscall(SYS_" #name ")", arguments, gives, SYS_##name                                                         \
    }
#define RAW(name, arguments) RAW_GIVES(Row::Gives::kValue, name, arguments)
const std::vector<Row> kRaw = {
    RAW(read, "fd o:bytes 8"),
    RAW(readv, "fd i:iov 2"),
    RAW(preadv2, "fd i:iov 2 -1 0 0"),
    RAW(recvfrom, "fd o:bytes 8 64 o:addr b:len"),
    RAW(recvmsg, "fd b:msg 64"),
    RAW(recvmmsg, "fd b:mmsg 1 64 b:timespec"),
    RAW(write, "fd i:bytes 8"),
    RAW(writev, "fd i:iov 2"),
    RAW(pwritev2, "fd i:iov 2 -1 0 0"),
    RAW(sendto, "fd i:bytes 8 64 i:addr 16"),
    RAW(sendmsg, "fd i:msg 64"),
    RAW(sendmmsg, "fd b:mmsg 1 64"),
    RAW(sendfile, "fd file b:offset 8"),
    RAW(splice, "pipe b:offset fd 0 4 2"),
    RAW(splice, "fd 0 into b:offset 4 2"),
    RAW(ppoll, "b:pollfd 1 b:timespec i:mask 8"),
    RAW(ppoll, "b:pollfd 1 b:timespec i:mask 7"),
    RAW(pselect6, "64 b:fdset b:fdset b:fdset b:timespec i:masked"),
    RAW(pselect6, "64 b:fdset 0 0 0 i:badly_masked"),
    RAW(epoll_ctl, "set 1 fd i:event"),
    RAW(epoll_ctl, "set 3 fd i:event"),
    RAW(epoll_pwait, "set o:event 4 0 i:mask 8"),
    RAW(epoll_pwait2, "set o:event 4 i:timespec i:mask 8"),
    RAW(accept4, "fd o:addr b:len 0"),
    RAW(connect, "fd i:addr 16"),
    RAW(getsockname, "fd o:addr b:len"),
    RAW(getsockopt, "fd 1 4 o:int b:len"),
    RAW(setsockopt, "fd 1 9 i:int 4"),
    RAW(fcntl, "fd 5 b:flock"),
    RAW(ioctl, "fd 21531 o:int"),
    RAW(execve, "i:program i:argv i:argv"),
    RAW(execveat, "-100 i:program i:argv i:argv 0"),
    RAW(clone3, "i:clone_args 64"),
    RAW(clone3, "i:clone_args 32"),
    RAW(rt_sigaction, "10 i:action o:action 8"),
    RAW_GIVES(kFd, io_uring_setup, "1 b:storage"),
    RAW(pipe2, "o:pair 0"),
    RAW(socketpair, "1 1 0 o:pair"),
#ifdef SYS_poll
    RAW(poll, "b:pollfd 1 0"),
    RAW(select, "64 b:fdset b:fdset b:fdset b:timeval"),
    RAW(epoll_wait, "set o:event 4 0"),
    RAW(accept, "fd o:addr b:len"),
    RAW(pipe, "o:pair"),
#endif
};

} // namespace

const std::vector<Row> &rows()
{
    static const std::vector<Row> all = [] {
        std::vector<Row> both = kRows;
        both.insert(both.end(), kRaw.begin(), kRaw.end());
        return both;
    }();
    return all;
}

} // namespace fabtest
