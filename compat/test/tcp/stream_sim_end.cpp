// SPDX-License-Identifier: BSD-2-Clause
// The end of a run, when all that was sent has to be there, and copies of the world.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compat/src/libc/kernel_acts.hpp"
#include "compat/test/tcp/stream_sim.hpp"

namespace vma::test::sim {

using sock::Stream;

namespace {

// All that comes by itself, until nothing does.
void settle_down()
{
    static constexpr Do kByItself[] = {Do::kConnected, Do::kDown,       Do::kArrive, Do::kDeliver,
                                       Do::kMove,      Do::kKernelNews, Do::kClose};
    constexpr unsigned kRounds = 200;
    unsigned quiet = 0;
    for (unsigned round = 0; round < kRounds && quiet < 3; ++round) {
        bool moved = false;
        for (std::uint8_t p = 0; p < 2; ++p)
            for (const Do what : kByItself)
                while (g_world.found == nullptr && can({what, p, 0})) {
                    act({what, p, 0});
                    moved = true;
                    if (what == Do::kClose || what == Do::kKernelNews)
                        break;
                }
        for (std::uint8_t p = 0; p < 2; ++p)
            if (can({Do::kTick, p, 0}))
                act({Do::kTick, p, 0});
        quiet = moved ? 0 : quiet + 1;
    }
    if (quiet < 3)
        report("it never comes to rest");
}

// Who sleeps still has nothing to read.
void check_reader(unsigned p)
{
    Program &own = program(p);
    if (!is_asleep(own.in))
        return;
    get_up(own.in);
    if (!own.ended && receive(p, 64, 0) != EAGAIN)
        report("who sleeps was not told that there is something to read");
}

// Nobody waits for room when all is read. (Before, the other way may have some, of which nobody needs to be told.)
void check_writer(unsigned p)
{
    Program &own = program(p);
    if (is_asleep(own.out) && !own.shut && !program(peer_of(p)).dead)
        report("who sleeps was not told that there is room");
}

void read_all(unsigned p)
{
    while (g_world.found == nullptr && !program(p).ended && receive(p, 5, 0) == 0) {
    }
}

void check_whole(unsigned p)
{
    const Program &reader = program(p);
    const Program &writer = program(peer_of(p));
    if (reader.dead || g_world.may_reset)
        return;
    if (reader.received != writer.accepted)
        report("bytes do not come");
    if ((writer.shut || writer.dead) && !reader.ended)
        report("the end does not come");
    const Stream &s = socket_of(p);
    if (s.tx.resend_from != sock::kNone || (s.tx.end_pending != sock::kNone && s.endpoint != nullptr))
        report("what was to be sent again is not out");
    if (reader.phase != Phase::kStays)
        report("who leaves does not come to an end");
}

// All is read: what comes next goes by the endpoint, where there is one.
void check_span(std::uint8_t p)
{
    const auto stays = [](unsigned q) {
        const Program &own = program(q);
        const Stream &s = socket_of(q);
        return !own.dead && own.phase == Phase::kStays && s.endpoint != nullptr && sock::offloaded(s) &&
               !s.endpoint_down;
    };
    if (g_world.found != nullptr || g_world.may_reset || g_world.others || !stays(0) || !stays(1) ||
        socket_of(p).tx.final || program(p).shut)
        return;
    get_up(program(p).out);
    for (int i = 0; i < 2; ++i) { // the first may give the peer back its slots, or its room
        act({Do::kSend, p, 1});
        settle_down();
        read_all(peer_of(p));
        settle_down();
    }
    if (g_world.found == nullptr && socket_of(p).tx.path != sock::Path::kEndpoint)
        report("a stream stays on the kernel");
}

// A second is over. A host whose program lives has answered by then, but where the kernel has no room for what is given
// back to a program that may know the kernel's bytes only.
void give_up(std::uint8_t p)
{
    if (g_world.between_hosts && !g_world.given_up && !g_world.may_reset && program(p).heir == sock::Heir::kLibrary &&
        socket_of(p).rx.leaving)
        report("who leaves is not answered");
    act({Do::kGiveUp, p, 0});
}

} // namespace

void conclude()
{
    constexpr unsigned kRounds = 60;
    std::uint32_t before = ~0U;
    for (unsigned round = 0; round < kRounds && g_world.found == nullptr; ++round) {
        settle_down();
        for (std::uint8_t p = 0; p < 2; ++p)
            if (!program(p).dead)
                check_reader(p);
        for (std::uint8_t p = 0; p < 2; ++p)
            if (!program(p).dead)
                read_all(p);
        for (std::uint8_t p = 0; p < 2; ++p)
            if (round > 2 && can({Do::kGiveUp, p, 0}))
                give_up(p);
        const std::uint32_t now = program(0).received + program(1).received;
        if (now == before && round > 4)
            break;
        before = now;
    }
    for (unsigned p = 0; p < 2; ++p) {
        check_whole(p);
        check_writer(p);
    }
    for (std::uint8_t p = 0; p < 2; ++p)
        check_span(p);
}

// ---- copies

void drop_heap()
{
    for (unsigned p = 0; p < 2; ++p) {
        sock::Receiver &rx = socket_of(p).rx;
        free(rx.leftovers);
        if (rx.base == rx.leftovers)
            rx.base = nullptr;
        rx.leftovers = nullptr;
    }
}

void save(World &to)
{
    for (unsigned p = 0; p < 2; ++p) {
        sock::Receiver &rx = socket_of(p).rx;
        rx.span_over = false; // the next call says so
        g_world.kept[p] = rx.leftovers != nullptr;
        if (g_world.kept[p])
            memcpy(g_world.leftovers[p], rx.leftovers, kRing);
        socket_of(p).tx.kernel_acts = 2; // as if nothing but that had happened
        std::atomic<std::int64_t> &ended = socket_of(p).rx.ended_at_ns;
        ended = ended != 0 ? 1 : 0; // since when is forgotten
    }
    g_world.now = 0;
    libc::g_kernel_acts.word = 2;
    memcpy(static_cast<void *>(&to), &g_world, sizeof to);
    to.offloads = to.spans = to.resets = to.told = 0; // what happens next does not depend on them
    for (std::byte *bytes : to.sockets) {
        auto &s = *reinterpret_cast<Stream *>(bytes);
        if (s.rx.leftovers != nullptr)
            s.rx.base = s.rx.leftovers = nullptr;
    }
}

void restore(const World &from)
{
    drop_heap();
    memcpy(static_cast<void *>(&g_world), &from, sizeof from);
    libc::g_kernel_acts.word = 2;
    for (unsigned p = 0; p < 2; ++p) {
        if (!g_world.kept[p])
            continue;
        sock::Receiver &rx = socket_of(p).rx;
        rx.leftovers = static_cast<std::uint8_t *>(malloc(kRing));
        rx.base = rx.leftovers;
        memcpy(rx.leftovers, g_world.leftovers[p], kRing);
    }
}

std::uint64_t hash_of(const World &saved)
{
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;
    static_assert(sizeof(World) % sizeof(std::uint64_t) == 0);
    std::uint64_t hash = 0;
    for (std::size_t at = 0; at < sizeof saved; at += sizeof hash) {
        std::uint64_t word = 0;
        memcpy(&word, reinterpret_cast<const std::byte *>(&saved) + at, sizeof word);
        hash = (hash ^ word) * kFactor;
        hash ^= hash >> 29;
    }
    return hash;
}

} // namespace vma::test::sim
