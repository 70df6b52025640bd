// SPDX-License-Identifier: BSD-2-Clause
// Whether the routes in use still hold: asked by the helper thread, so that no send waits for a dozen system calls.
// What is not as it was is left to the next send, which looks it up anew.
#include <errno.h>
#include <poll.h>

#include <array>
#include <cstring>

#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/udp/shared.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::uint8_t kIdleTicks = 20; // a second without a datagram: it may become stale
constexpr int kTries = 200;             // a send has the lock for less

enum class Verdict {
    kHolds,
    kNobody, // the receiver was killed: its name is there, its socket is not
    kOther,
};

// A lock that a sender may have again and again. This thread does not sleep for it.
bool lock_soon(Mutex &lock)
{
    for (int i = 0; i < kTries; ++i) {
        if (lock.try_lock())
            return true;
        cpu_relax();
    }
    return false;
}

std::size_t note_routes(Socket &s, Look *out, std::size_t most)
{
    std::size_t count = 0;
    if (!lock_soon(s.tx_lock))
        return 0;
    state_of(s).routes.each([&](Route &route) {
        if (route.way != Way::kReceiver || route.idle >= kIdleTicks || count == most)
            return;
        Look &look = out[count++];
        look = {route.to,         route.receiver.who, route.receiver.data,
                route.generation, route.idle == 0,    route.header_length};
        std::memcpy(look.header, route.header, sizeof look.header);
        ++route.idle;
    });
    s.tx_lock.unlock();
    return count;
}

bool has_same_header(int fd, const Flow &flow, const Look &look)
{
    std::uint8_t header[kIpv6Header] = {};
    const std::size_t length = write_header(describe_flow(fd, flow), (look.data & kToIpv6) != 0, header);
    constexpr std::size_t kAfterLost = offsetof(HeaderStart, lost) + sizeof(HeaderStart::lost);
    return length == look.header_length && std::memcmp(header, look.header, offsetof(HeaderStart, lost)) == 0 &&
           std::memcmp(header + kAfterLost, look.header + kAfterLost, length - kAfterLost) == 0;
}

Verdict ask(Socket &s, const Look &look)
{
    const int fd = s.any_fd.load(std::memory_order_relaxed);
    Flow flow = {};
    Identity who;
    Target target = {};
    if (!flow_on_this_host(fd, look.to, flow))
        return Verdict::kOther;
    const Answer answer = find_receiver(fd, flow, who);
    if (answer == Answer::kFound && who == look.who && has_same_header(fd, flow, look) &&
        !look_for_error(s, fd)) // of an earlier datagram, by the kernel: the next send is to tell
        return Verdict::kHolds;
    const bool was_there = answer == Answer::kNobody && look.sent && look.to.is_connected() &&
                           find_name(look.who, target) && cookie_of(look.data) == target.cookie;
    return was_there ? Verdict::kNobody : Verdict::kOther;
}

// Unless it has become another route meanwhile. True: the sender is to hear that its receiver is gone.
bool note_verdict(Route &route, const Look &look, Verdict verdict, std::uint32_t tick)
{
    if (route.way != Way::kReceiver || route.receiver.who != look.who || route.receiver.data != look.data)
        return false;
    if (verdict == Verdict::kNobody) {
        route.way = Way::kUnknown;
        return true;
    }
    if (verdict == Verdict::kHolds && !route.after_kernel && route.generation == look.generation)
        route.tick = tick;
    if (verdict == Verdict::kOther)
        route.tick = tick - 1 - std::uint32_t{kReceiverTicks}; // the present one is over for it
    return false;
}

void look_at(Socket &s, const Look &look, std::uint32_t tick)
{
    const Verdict verdict = ask(s, look);
    if (!lock_soon(s.tx_lock))
        return;
    Route *const route = state_of(s).routes.peek(look.to);
    const bool gone = route != nullptr && note_verdict(*route, look, verdict, tick);
    s.tx_lock.unlock();
    if (!gone)
        return;
    // What it had not read would have been lost by the kernel too, but a sender hears of it.
    s.pending_error.store(ECONNREFUSED, std::memory_order_relaxed);
    notify(s, POLLIN | POLLERR);
}

} // namespace

void look_at_routes(std::uint32_t tick)
{
    std::array<Look, 64> &looks = g_shared.looks;
    std::size_t left = looks.size();
    for (Socket *s = g_offload.listed; s != nullptr && left != 0; s = state_of(*s).next_listed) {
        if (!state_of(*s).used_memory.load(std::memory_order_relaxed))
            continue;
        const std::size_t count = note_routes(*s, looks.data(), left);
        for (std::size_t i = 0; i < count; ++i)
            look_at(*s, looks[i], tick);
        left -= count;
    }
}

} // namespace vma::sock::udp
