// SPDX-License-Identifier: BSD-2-Clause
// SocketXtreme (VMA_SOCKETXTREME=1). Datagrams go from the engine's queue to the program's completions
// (completions.cpp), with no lock but the engine's. All else takes a lock of its own (xtreme_look.cpp), and is looked
// for where something is known to be, and from time to time.
#include <errno.h>
#include <sched.h>

#include <algorithm>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/completions.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/xtreme_look.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::extra {

constinit Xtreme g_xtreme;

namespace {

constexpr std::uint32_t kRounds = 8;         // of looks in a poll that finds nothing: less time for what is around them
constexpr std::uint32_t kLooksPerTurn = 256; // until the set is asked, while there is something without it
constexpr std::uint32_t kPoliteAfter = 64;   // such polls: then others may run, they may be whom it waits for

std::uint32_t load(const std::atomic<std::uint32_t> &count)
{
    return count.load(std::memory_order_relaxed);
}

void store(std::atomic<std::uint32_t> &count, std::uint32_t value)
{
    count.store(value, std::memory_order_relaxed);
}

int not_on(const char *call)
{
    return unsupported(Once::kNoSocketXtreme, call, "VMA_SOCKETXTREME=1 was not set when the program started");
}

bool is_on()
{
    return config::params().socketxtreme;
}

// While nothing is known of sockets that have something, each poll asks the set.
bool is_sets_turn(int set)
{
    return mux::has_news(set) || load(g_xtreme.looks) >= kLooksPerTurn ||
           (load(g_xtreme.idle) >= kIdleMost && hot_sockets() == 0);
}

// The sockets that had something lately, and the set if it is its turn.
void look_elsewhere(Output &out, DatagramSink &sink, int set)
{
    const bool asks = is_sets_turn(set);
    if (!asks && hot_sockets() == 0) [[likely]]
        return;
    if (asks)
        store(g_xtreme.looks, 0);
    look_around(out, sink, set, asks);
}

// Neither datagrams nor others can keep the other kind from being seen: every second poll begins with them.
void look(Output &out, DatagramSink &sink, int set)
{
    const vma_completion_t *const first = out.at;
    const bool others_first = load(g_xtreme.polls) % 2 != 0;
    if (others_first)
        look_elsewhere(out, sink, set);
    if (out.is_full())
        return;
    if (hot_sockets() == 0) [[likely]] {
        sock::engine_poll_sink(sink, kRounds);
        if (!others_first && out.at == first)
            look_elsewhere(out, sink, set);
        return;
    }
    bool looked = others_first;
    for (std::uint32_t round = 0; round < kRounds && (round == 0 || out.at == first); ++round) {
        const unsigned events = sock::engine_poll_sink(sink, 1);
        if (!out.is_full() && (events != 0 || !looked))
            look_elsewhere(out, sink, set);
        looked = true;
    }
}

} // namespace

int socketxtreme_poll(int set, vma_completion_t *completions, unsigned count, int)
{
    if (!is_on())
        return not_on("socketxtreme_poll");
    if (!is_ring(set))
        return fail(EBADFD);
    if (completions == nullptr || count == 0)
        return fail(EINVAL);
    Output out = {completions, completions + count};
    DatagramSink sink(out);
    look(out, sink, set);
    sock::engine_leave();
    const bool found = out.at != completions;
    const std::uint32_t idle = found ? 0 : std::min(load(g_xtreme.idle) + 1, kIdleMost);
    const std::uint32_t looks = load(g_xtreme.looks) + (found ? 1 : kRounds);
    store(g_xtreme.idle, idle);
    store(g_xtreme.looks, looks);
    store(g_xtreme.polls, load(g_xtreme.polls) + 1);
    if (looks == kRounds &&
        idle >= kPoliteAfter) // after a look at the set: where processors are few it is the peer's turn
        ::sched_yield();
    return static_cast<int>(out.at - completions);
}

int socketxtreme_free_packets(vma_packet_desc_t *packets, int count)
{
    if (!is_on())
        return not_on("socketxtreme_free_vma_packets");
    if (packets == nullptr || count < 0)
        return fail(EINVAL);
    for (int i = 0; i < count; ++i) {
        vma_buff_t *next = nullptr;
        for (vma_buff_t *buffer = packets[i].buff_lst; buffer != nullptr; buffer = next) {
            Packet *const packet = find_packet(buffer);
            if (packet == nullptr)
                return fail(EINVAL);
            next = buffer->next;
            drop(*packet);
        }
        packets[i].buff_lst = nullptr;
        packets[i].num_bufs = 0;
    }
    return 0;
}

int socketxtreme_ref(vma_buff_t *buffer)
{
    if (!is_on())
        return not_on("socketxtreme_ref_vma_buff");
    Packet *const packet = find_packet(buffer);
    const int refs = packet != nullptr ? add(*packet) : -1;
    return refs >= 0 ? refs : fail(EINVAL);
}

int socketxtreme_free(vma_buff_t *buffer)
{
    if (!is_on())
        return not_on("socketxtreme_free_vma_buff");
    Packet *const packet = find_packet(buffer);
    const int refs = packet != nullptr ? drop(*packet) : -1;
    return refs >= 0 ? refs : fail(EINVAL);
}

} // namespace vma::extra
