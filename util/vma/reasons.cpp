// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/reasons.hpp"

namespace vma::command {

namespace {

struct Known {
    std::string_view part; // of the reason
    const char *advice;
};

constexpr char kNeedsKernel[] = "the program asked for what only the kernel does; it stays there";
constexpr char kShared[] = "let one process alone have the socket";

constexpr Known kKnown[] = {
    {"VMA_LIFT_AFTER is", "it is young: use it more, or start both programs with --latency or VMA_LIFT_AFTER=1"},
    {"it listens", "nothing is to be done: the connections that it accepts are accelerated"},
    {"no accelerated peer was found", "start the program at the other end by `vma run`, too"},
    {"vmad introduced nobody", "start the program at the other end by `vma run`, too"},
    {"did not come to the meeting", "start the other user's program by `vma run`, with VMA_OTHER_USERS not 0"},
    {"VMA_OTHER_USERS=0", "unset VMA_OTHER_USERS"},
    {"(vmad: not running)", "if the peer is on this host, start vmad (systemctl start vma); for other hosts name an "
                            "interface: --ethernet"},
    {"(vmad: not to be asked)", "unset VMA_BROKER and VMA_OTHER_USERS, and start vmad"},
    {"vmad's rules", "let a rule of /etc/vmad.conf have the two meet (vmad(8))"},
    {"the peer is on another host", "name the interface that leads there: --ethernet IF (root)"},
    {"a rule of libvma.conf says os", "change the rule: `vma check /etc/libvma.conf` tells which one it is"},
    {"no Ethernet port that can be used", "see that the route leads by an interface of --ethernet, and run it as root"},
    {"not in VMA_ETHERNET", "name that interface, too: --ethernet"},
    {"its port can't be used", "see the warning in the log: most often another process has the port"},
    {"its port does not take it", "see the line before it in the log (VMA_TRACELEVEL=debug)"},
    {"no RDMA device reaches", "see that an RDMA device has the connection's own address"},
    {"the provider is not available", "install libvma-fi.so beside libvma.so, or name it in VMA_PROVIDER"},
    {"directory of", "make /dev/shm writable, or let VMA_SHM_DIR name a folder of this user's alone"},
    {"no offer could be left", "see that /dev/shm is not full"},
    {"no endpoint could be opened", "raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)"},
    {"neither connected nor accepted by this process", "have the process that uses a socket make it"},
    {"too many connections are accelerated", "sysctl vm.max_map_count=262144, more memory, or a smaller "
                                             "VMA_STREAM_RING"},
    {"too many sockets are held", kShared},
    {"another process holds it", kShared},
    {"another program holds it", kShared},
    {"its descriptor is passed", kShared},
    {"fork", kShared},
    {"descriptor 0, 1 or 2", "let the program have its sockets as other descriptors"},
    {"io_uring", "start the program without io_uring (node, libuv: UV_USE_IO_URING=0)"},
    {"system call filter", "loosen the filter: SystemCallFilter=@system-service in a unit"},
    {"splice", kNeedsKernel},
    {"urgent data", kNeedsKernel},
    {"SO_", kNeedsKernel},
    {"TCP_", kNeedsKernel},
    {"receive time stamps", kNeedsKernel},
    {"signal-driven", kNeedsKernel},
    {"only the kernel", kNeedsKernel},
    {"shutdown()", kNeedsKernel},
    {"sourcefilter", kNeedsKernel},
    {"aio", kNeedsKernel},
    {"fdopen()", "the C library's own streams read past the library; it stays there"},
    {"dprintf()", "the C library's own streams write past the library; it stays there"},
    {"epoll set", "let the process that uses the set make it, after its forks"},
    {"was made by another user", "have the user who runs the program make the socket"},
    {"has taken the names", "nothing is to be done: it is tried again, and the next connection has other names"},
    {"other users have left too much", "start the program again; doc/trust.md says what such users do"},
    {"too many meetings", "nothing is to be done: it is tried again"},
    {"rdma-core was being loaded", "let the child of fork() execute a program"},
    {"of what another user", "exchange it as one user"},
    {"a peek that waits", kNeedsKernel},
    {"connect() to no address", kNeedsKernel},
    {"backtrace_symbols_fd", kNeedsKernel},
    {"the library does not know", "unset VMA_EXCEPTION_HANDLING; a line before it in the log names the call"},
    {"bytes were moved past", "let no program read or write the socket by system calls of its own"},
    {"exit", "the process ends"},
    {"shut down", "it ends"},
};

} // namespace

const char *what_to_do(std::string_view reason)
{
    for (const Known &one : kKnown)
        if (reason.find(one.part) != std::string_view::npos)
            return one.advice;
    return "";
}

} // namespace vma::command
