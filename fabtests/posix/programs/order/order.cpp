// SPDX-License-Identifier: BSD-2-Clause
// order PLUGIN | order --apart LIBRARY: the program. Its own close() and accept() are those of its libraries too, and
// call the next ones. --apart: a second copy of the library with the stages is opened in a namespace of its own, in
// which no library is preloaded.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/posix/programs/order/stage.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

constinit unsigned g_closes = 0;

// The first handlers: a parent goes on when its child has ended.
int g_child_lives[2];

void prepare_first()
{
    order_stage("first handlers: prepare");
    fabtest::must(::pipe2(g_child_lives, O_CLOEXEC), "pipe2");
}

void parent_first()
{
    char byte = 0;
    ::close(g_child_lives[1]);
    fabtest::must(static_cast<int>(::read(g_child_lives[0], &byte, 1)), "read");
    ::close(g_child_lives[0]);
    order_stage("first handlers: parent");
}

void child_first()
{
    ::close(g_child_lives[0]);
    order_in_child();
    order_stage("first handlers: child");
}

void before_all(int, char **, char **)
{
    order_stage("before all constructors");
    ::pthread_atfork(prepare_first, parent_first, child_first);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeAll)(int, char **, char **) = before_all;

[[gnu::constructor(101)]] void first()
{
    order_stage("first constructor");
}

struct Static {
    Static() { order_stage("constructor of a static object"); }
    ~Static() { order_stage("destructor of a static object"); }
};
const Static g_static;

[[gnu::destructor]] void last()
{
    order_stage("destructor");
}

void fork_once(const char *name)
{
    const pid_t child = fabtest::must(::fork(), "fork");
    if (child == 0) {
        order_stage(name);
        ::_exit(0);
    }
    int status = -1;
    fabtest::must(::waitpid(child, &status, 0), "waitpid");
    std::fprintf(stdout, "%s: status %d\n", name, status);
    std::fflush(stdout);
}

void use_plugin(const char *path, bool apart)
{
    void *const library = apart ? ::dlmopen(LM_ID_NEWLM, path, RTLD_NOW) : ::dlopen(path, RTLD_NOW);
    if (library == nullptr)
        fabtest::die("dlopen: %s", ::dlerror());
    if (apart)
        reinterpret_cast<void (*)(const char *)>(::dlsym(library, "order_stage"))("a plugin apart");
    else
        reinterpret_cast<void (*)()>(::dlsym(library, "plugin_runs"))();
    fork_once("child with a plugin");
    std::fprintf(stdout, "dlclose: %d\n", ::dlclose(library));
    std::fflush(stdout);
}

} // namespace

extern "C" [[gnu::visibility("default")]] int close(int fd)
{
    ++g_closes;
    static const auto next = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "close"));
    return next(fd);
}

extern "C" [[gnu::visibility("default")]] int accept(int fd, sockaddr *address, socklen_t *length)
{
    using Accept = int (*)(int, sockaddr *, socklen_t *);
    static const auto next = reinterpret_cast<Accept>(::dlsym(RTLD_NEXT, "accept"));
    return next(fd, address, length);
}

int main(int argc, char **argv)
{
    const bool apart = argc == 3 && std::strcmp(argv[1], "--apart") == 0;
    if (argc != 2 && !apart)
        fabtest::die("order PLUGIN | order --apart LIBRARY");
    ORDER_FORK_HANDLERS("handlers of main");
    fork_once("child before all");
    const fabtest::Ends ends = fabtest::accelerated();
    ORDER_FORK_HANDLERS("late handlers");
    fork_once("child");
    fabtest::talk(ends, 100);
    use_plugin(argv[argc - 1], apart);
    fork_once("child without a plugin");
    std::atexit([] { order_stage("atexit"); });
    order_stage("main");
    if (g_closes < 10)
        std::puts("the program's close() was passed over");
    return 0;
}
