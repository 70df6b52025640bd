// SPDX-License-Identifier: BSD-2-Clause
// loading LIBRARY [datagrams]: opens it in a thread. Its constructor, in which no other thread can open a library, has
// a connection to main(), or two sockets for datagrams, and makes and closes others. main()'s end is the one that
// connects, and so the first in the process that wants the provider.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "fabtests/sockets/programs/datagrams/address.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

constexpr unsigned kLines = 300;
constexpr unsigned kConnections = 10;

fabtest::Ends g_ends;

fabtest::Ends connected_for_datagrams()
{
    const fabtest::Address any_port = fabtest::make_address("127.0.0.1", 0);
    const fabtest::Ends ends = {.a = fabtest::bound_socket(any_port), .b = fabtest::bound_socket(any_port)};
    fabtest::must(fabtest::connect_to(ends.a, fabtest::local_address(ends.b)), "connect");
    fabtest::must(fabtest::connect_to(ends.b, fabtest::local_address(ends.a)), "connect");
    return ends;
}

void fork_once()
{
    const pid_t child = fabtest::must(::fork(), "fork");
    if (child == 0)
        ::_exit(0);
    int status = -1;
    fabtest::must(::waitpid(child, &status, 0), "waitpid");
    std::printf("a child of the constructor: status %d\n", status);
}

void answer()
{
    unsigned number = 0;
    for (unsigned i = 0; i < kLines * 2; ++i) {
        fabtest::receive_all(g_ends.a, &number, sizeof number);
        fabtest::send_all(g_ends.a, &number, sizeof number);
    }
}

void ask()
{
    for (unsigned i = 0; i < kLines; ++i) {
        unsigned number = i;
        fabtest::send_all(g_ends.b, &number, sizeof number);
        fabtest::receive_all(g_ends.b, &number, sizeof number);
        if (number != i)
            fabtest::die("%u came instead of %u", number, i);
    }
}

} // namespace

extern "C" [[gnu::visibility("default")]] void talk_in_constructor()
{
    ask();
    for (unsigned i = 0; i < kConnections; ++i) {
        const fabtest::Ends ends = fabtest::connected();
        fabtest::talk(ends, 100);
        ::close(ends.a);
        ::close(ends.b);
    }
    fork_once();
    ask();
    std::puts("the constructor is done");
}

int main(int argc, char **argv)
{
    const bool by_datagrams = argc == 3 && std::strcmp(argv[2], "datagrams") == 0;
    if (argc != 2 && !by_datagrams)
        fabtest::die("loading LIBRARY [datagrams]");
    g_ends = by_datagrams ? connected_for_datagrams() : fabtest::connected();
    std::thread opens([argv] {
        if (::dlopen(argv[1], RTLD_NOW) == nullptr)
            fabtest::die("dlopen: %s", ::dlerror());
    });
    answer();
    opens.join();
    fabtest::accelerated(); // the other one was in use when the process was copied, and stays on the kernel
    std::puts("main() is done");
    return 0;
}
