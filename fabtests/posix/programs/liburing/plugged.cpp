// SPDX-License-Identifier: BSD-2-Clause
// Programs that are not linked with liburing, and load a plug-in that is, for itself alone (RTLD_LOCAL).
//   plugged tail LIBRARY         one connection is written to by it; others are not
//   plugged filter LIBRARY       from then on the program may make the system call of io_uring_enter() alone
//   plugged constructor LIBRARY OTHER   OTHER's constructor waits for a thread that hands over
//   plugged sqpoll LIBRARY OTHER        likewise, where the library doesn't read the io_uring
//   plugged handle                      liburing's functions are asked for by dlsym() with its handle
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "fabtests/posix/programs/liburing/plugin.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

void *load(const char *path)
{
    void *const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        die("dlopen: %s", ::dlerror());
    return library;
}

Plugin plugin_of(const char *path)
{
    using Get = Plugin (*)();
    return reinterpret_cast<Get>(::dlsym(load(path), kPlugin))();
}

template <typename Function> Function find(void *library, const char *name, Function)
{
    return reinterpret_cast<Function>(::dlsym(library, name));
}

int (*g_init)(unsigned entries, io_uring *uring, unsigned flags) = nullptr;

Plugin by_handle()
{
    void *const library = load("liburing.so.2");
    Plugin plugin = {};
    g_init = find(library, "io_uring_queue_init", g_init);
    plugin.begin = [](io_uring *uring, unsigned flags) { return g_init(8, uring, flags); };
    plugin.submit = find(library, "io_uring_submit", plugin.submit);
    plugin.submit_and_wait = find(library, "io_uring_submit_and_wait", plugin.submit_and_wait);
    plugin.end = find(library, "io_uring_queue_exit", plugin.end);
    return plugin;
}

// Of one that is there. (Without any function of liburing's.)
int result(io_uring &uring)
{
    if (::io_uring_cq_ready(&uring) == 0)
        return -1;
    const int its = uring.cq.cqes[*uring.cq.khead & uring.cq.ring_mask].res;
    ::io_uring_cq_advance(&uring, 1);
    return its;
}

io_uring g_uring = {};

struct Use {
    Plugin plugin;
    Ends taken; // both were accelerated before the io_uring was set up
    Ends other;
    const char *library;
};

void tail(Use &use)
{
    send_all(use.taken.a, "first.", 6);
    ::io_uring_prep_send(::io_uring_get_sqe(&g_uring), use.taken.a, "second", 6, 0);
    std::printf("handed over: %d\n", use.plugin.submit_and_wait(&g_uring, 1));
    std::printf("result: %d\n", result(g_uring));
    char text[13] = {};
    receive_all(use.taken.b, text, 12);
    std::printf("received: %s\n", text);
}

void filter(Use &use)
{
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {static_cast<unsigned short>(std::size(code)), code};
    std::fflush(stdout);
    ::io_uring_prep_nop(::io_uring_get_sqe(&g_uring));
    must(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS");
    must(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), "PR_SET_SECCOMP");
    const bool right =
        use.plugin.submit(&g_uring) == 1 && use.plugin.submit_and_wait(&g_uring, 1) == 0 && result(g_uring) == 0;
    ::_exit(right ? 0 : 1);
}

void constructor(Use &use)
{
    char address[32];
    std::snprintf(address, sizeof address, "%p", static_cast<void *>(&g_uring));
    must(::setenv(kRing, address, 1), "setenv");
    ::io_uring_prep_nop(::io_uring_get_sqe(&g_uring));
    load(use.library);
    std::printf("nothing: %d\n", use.plugin.submit_and_wait(&g_uring, 1));
    std::printf("result: %d\n", result(g_uring));
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argv[1];
    Use use = {};
    use.plugin = what == "handle" ? by_handle() : plugin_of(argv[2]);
    use.library = argc > 3 ? argv[3] : nullptr;
    use.taken = accelerated();
    use.other = accelerated();
    if (const int error = use.plugin.begin(&g_uring, what == "sqpoll" ? IORING_SETUP_SQPOLL : 0))
        die("io_uring_queue_init: %d", error);
    const auto run = what == "tail" || what == "handle" ? tail : what == "filter" ? filter : constructor;
    run(use);
    talk(use.taken, 50);
    talk(use.other, 50);
    use.plugin.end(&g_uring);
}
