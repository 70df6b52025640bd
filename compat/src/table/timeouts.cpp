// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/table/timeouts.hpp"

#include <string.h>

#include <cstdint>

#include "compat/src/base/option_numbers.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

namespace {

constexpr std::int64_t kForEver = -1;
constexpr std::int64_t kMostSeconds = 1LL << 32; // 136 years: what is longer, the clock can't say

struct OldTime { // the kernel's, whatever the C library's timeval is
    long seconds;
    long microseconds;
};
struct NewTime {
    std::int64_t seconds;
    std::int64_t microseconds;
};

std::int64_t to_us(std::int64_t seconds, std::int64_t microseconds)
{
    return (seconds == 0 && microseconds == 0) || seconds >= kMostSeconds ? kForEver
                                                                          : seconds * 1'000'000 + microseconds;
}

// What is negative has been ever over.
void set_timeout(Socket &s, bool receives, std::int64_t seconds, std::int64_t microseconds)
{
    const bool at_once = seconds < 0;
    (receives ? s.receive_timeout_us : s.send_timeout_us)
        .store(at_once ? 0 : to_us(seconds, microseconds), std::memory_order_relaxed);
    note_no_wait(s, receives ? kReceiveAtOnce : kSendAtOnce, at_once);
}

template <typename Time> void note(Socket &s, bool receives, const void *value, socklen_t len)
{
    Time time = {};
    if (len < sizeof time)
        return;
    memcpy(&time, value, sizeof time);
    set_timeout(s, receives, time.seconds, time.microseconds);
}

} // namespace

void note_timeout(Socket &s, int level, int name, const void *value, socklen_t len)
{
    if (level != SOL_SOCKET)
        return;
    switch (name) {
    case option::kReceiveTimeoutOld:
    case option::kSendTimeoutOld:
        return note<OldTime>(s, name == option::kReceiveTimeoutOld, value, len);
    case option::kReceiveTimeoutNew:
    case option::kSendTimeoutNew:
        return note<NewTime>(s, name == option::kReceiveTimeoutNew, value, len);
    default:
        return;
    }
}

void inherit_timeouts(Socket &s, const Socket &listener)
{
    s.receive_timeout_us = listener.receive_timeout_us.load(std::memory_order_relaxed);
    s.send_timeout_us = listener.send_timeout_us.load(std::memory_order_relaxed);
    s.no_wait |= static_cast<std::uint8_t>(listener.no_wait & (kReceiveAtOnce | kSendAtOnce));
}

namespace {

bool read_time(int fd, int name, OldTime &time)
{
    socklen_t size = sizeof time;
    return libc::real.getsockopt(fd, SOL_SOCKET, name, &time, &size) == 0 && size == sizeof time;
}

// Another thread may set one meanwhile, and note that: what is noted last has to be what holds. One that is over at
// once reads as none: what is known of it stays.
void read_timeout(Socket &s, int fd, int name)
{
    constexpr int kTries = 16;
    const bool receives = name == option::kReceiveTimeoutOld;
    OldTime time = {};
    OldTime noted = {};
    bool known = read_time(fd, name, time);
    for (int i = 0; i < kTries && known; ++i) {
        const bool none = time.seconds == 0 && time.microseconds == 0;
        if (!none || (s.no_wait & (receives ? kReceiveAtOnce : kSendAtOnce)) == 0)
            set_timeout(s, receives, time.seconds, time.microseconds);
        noted = time;
        known = read_time(fd, name, time);
        if (time.seconds == noted.seconds && time.microseconds == noted.microseconds)
            return;
    }
}

} // namespace

void read_timeouts(Socket &s, int fd)
{
    for (const int name : {option::kReceiveTimeoutOld, option::kSendTimeoutOld})
        read_timeout(s, fd, name);
}

void read_inq(Socket &s, int fd)
{
    note_extra(s, kTellsInq, libc::read_option(fd, IPPROTO_TCP, option::kTcpInq, 0) != 0);
}

} // namespace vma::sock
