// SPDX-License-Identifier: BSD-2-Clause
// asio: sockets as programs on Boost.Asio use them, by callbacks, coroutines, and calls that block. Asio waits by one
// edge-triggered epoll set, with an eventfd and a timerfd in it, for all threads of a context. No case needs another.
// Speaks TAP.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "fabtests/posix/programs/asio/coroutines.hpp"
#include "fabtests/posix/programs/asio/datagrams.hpp"
#include "fabtests/posix/programs/asio/descriptors.hpp"
#include "fabtests/posix/programs/asio/ends.hpp"
#include "fabtests/posix/programs/asio/processes.hpp"
#include "fabtests/posix/programs/asio/streams.hpp"

namespace {

struct Case {
    const char *name;
    void (*run)();
};

#ifdef BOOST_ASIO_HAS_CO_AWAIT
#define COROUTINE(function) cases::function
#else
#define COROUTINE(function) nullptr
#endif

constexpr Case kCases[] = {
    {"echo by callbacks, one thread", cases::one_thread},
    {"echo, several threads", cases::several_threads},
    {"a hundred connections at once", cases::hundred_at_once},
    {"a hundred connections that stay", cases::hundred_that_stay},
    {"IPv6", cases::ipv6},
    {"IPv4 to a socket of both families", cases::both_families},
    {"many buffers", cases::many_buffers},
    {"megabytes both ways", cases::megabytes},
    {"iostream", cases::lines_by_iostream},
    {"coroutines", COROUTINE(coroutines)},
    {"coroutines: reads with a time-out", COROUTINE(limited_read)},
    {"coroutines: no byte is lost to cancellation", COROUTINE(cancelled_beside_bytes)},
    {"coroutines: accept with a time-out", COROUTINE(limited_accept)},
    {"datagrams", cases::datagrams},
    {"datagrams over IPv6", cases::datagrams_ipv6},
    {"datagrams in parts", cases::parts_of_datagrams},
    {"datagrams: a receive is cancelled", cases::cancelled_receive},
    {"datagrams: refused", cases::refused_datagrams},
    {"local datagrams", cases::local_datagrams},
    {"local streams", cases::local_streams},
    {"a socket is given to another context", cases::moved_to_another_context},
    {"a socket is released while it is read", cases::released_while_reading},
    {"a descriptor is copied", cases::copied},
    {"waits", cases::waited_for},
    {"without blocking", cases::not_blocking},
    {"fork", cases::forked},
    {"a server in another process", cases::another_process},
    {"a context of each thread", cases::context_of_each_thread},
    {"signals", cases::signals},
    {"refused", cases::refused},
    {"reset", cases::reset},
    {"end of stream", cases::ended},
    {"end of stream while it is waited for", cases::ended_while_waiting},
    {"half closed", cases::half_closed},
    {"closed below a read", cases::closed_below},
    {"shut down below a read", cases::shut_down_below},
    {"written to who is gone", cases::written_to_who_is_gone},
    {"misused", cases::misused},
};

void say(std::size_t number, const Case &what)
{
    if (!what.run) {
        std::printf("ok %zu - %s # skip no coroutines in this Boost by this compiler\n", number, what.name);
        return;
    }
    try {
        what.run();
        std::printf("ok %zu - %s\n", number, what.name);
    } catch (const std::exception &failure) {
        std::printf("not ok %zu - %s\n# %s\n", number, what.name, failure.what());
    }
}

} // namespace

int main(int argc, char **argv)
{
    std::size_t number = 0;
    std::printf("1..%zu\n", std::size(kCases));
    for (const Case &what : kCases) {
        ++number;
        if (argc > 1 && std::strstr(what.name, argv[1]) == nullptr)
            continue;
        say(number, what);
        std::fflush(stdout);
    }
    return 0;
}
