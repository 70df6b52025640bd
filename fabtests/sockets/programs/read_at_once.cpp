// SPDX-License-Identifier: BSD-2-Clause
// What was sent before a read that doesn't wait begins is there for it, whichever thread takes news out of the library's queue:
// another one does all the time, by reading from an idle connection.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "fabtests/sockets/programs/ends.hpp"

namespace {

constexpr int kTimes = 400'000;

int count_late(const fabtest::Ends &ends)
{
    int late = 0;
    for (int number = 0; number < kTimes; ++number) {
        char byte = 'a';
        if (::send(ends.a, &byte, 1, 0) != 1)
            return -1;
        ssize_t n = ::recv(ends.b, &byte, 1, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            ++late;
            n = ::recv(ends.b, &byte, 1, 0);
        }
        if (n != 1)
            return -1;
    }
    return late;
}

} // namespace

int main()
{
    const fabtest::Ends ends = fabtest::accelerated();
    const fabtest::Ends idle = fabtest::accelerated();
    std::atomic<bool> ended{false};
    std::thread other([&] {
        char byte = 0;
        while (!ended)
            (void)!::recv(idle.b, &byte, 1, MSG_DONTWAIT);
    });
    const int late = count_late(ends);
    ended = true;
    other.join();
    if (late == 0)
        return 0;
    std::fprintf(stderr, "%d of %d reads did not get what had been sent\n", late, kTimes);
    return 1;
}
