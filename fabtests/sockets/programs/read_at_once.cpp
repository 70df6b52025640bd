// SPDX-License-Identifier: BSD-2-Clause
// What was sent before a read that doesn't wait begins is there for it, and the room that the peer has made before a
// send that doesn't, whichever thread takes news out of the library's queue: another one does all the time, by reading
// from an idle connection.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>

#include "fabtests/sockets/programs/ends.hpp"

namespace {

constexpr int kTimes = 400'000;
constexpr int kFills = 50'000;

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

// Each time one end has sent all that there is room for, and the other one has read it.
int count_refused(const fabtest::Ends &ends)
{
    static char bytes[1 << 20];
    int refused = 0;
    for (int number = 0; number < kFills; ++number) {
        ssize_t sent = ::send(ends.a, bytes, sizeof bytes, MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            ++refused;
            sent = ::send(ends.a, bytes, 1, 0);
        }
        while (sent > 0) {
            const ssize_t n = ::recv(ends.b, bytes, sizeof bytes, 0);
            if (n <= 0)
                return -1;
            sent -= n;
        }
        if (sent != 0)
            return -1;
    }
    return refused;
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
    const int refused = count_refused(ends);
    ended = true;
    other.join();
    if (late == 0 && refused == 0)
        return 0;
    std::fprintf(stderr, "%d of %d reads did not get what had been sent, %d of %d sends no room that there was\n", late,
                 kTimes, refused, kFills);
    return 1;
}
