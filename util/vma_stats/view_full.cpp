// SPDX-License-Identifier: BSD-2-Clause
// View 3: all there is, a block a thing. Lines whose numbers are all 0 are left out.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "util/vma_stats/views.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;
using Number = unsigned long long;

constexpr const char *kRule = "======================================================\n";

void print_mux(const ShownMux &mux, const char *per)
{
    const MuxCounters &c = mux.counters;
    printf("%s\t%s\n", kRule, mux.name.c_str());
    printf("Polling CPU%s:%u%%\n", per, mux.polling);
    if (mux.thread != 0)
        printf("- Thread Id: %5u\n", mux.thread);
    if ((c.ready | c.os_ready) != 0)
        printf("Rx fds ready: %llu / %llu [os/offload]%s\n", static_cast<Number>(c.os_ready),
               static_cast<Number>(c.ready), per);
    if ((c.poll_hit | c.poll_miss) != 0)
        printf("Polls [miss/hit]%s: %llu / %llu (%.2f%%)\n", per, static_cast<Number>(c.poll_miss),
               static_cast<Number>(c.poll_hit), percent(c.poll_hit, c.poll_miss));
    if (c.timeouts != 0)
        printf("Timeouts%s: %llu\n", per, static_cast<Number>(c.timeouts));
    if (c.errors != 0)
        printf("Errors%s: %llu\n", per, static_cast<Number>(c.errors));
    fputs(kRule, stdout);
}

// A number and its old value, as deltas want both.
struct Difference {
    double seconds; // 0: totals
    const char *per;
    Number operator()(std::uint64_t now, std::uint64_t then) const
    {
        if (seconds == 0)
            return now;
        return static_cast<Number>(std::llround(static_cast<double>(now - std::min(now, then)) / seconds));
    }
};

void print_queues(const Header &now, const Header &then, const Difference &d)
{
    for (std::size_t i = 0; i < kMostRings; ++i) {
        const Queue &queue = now.queues[i];
        if (queue.used == 0)
            continue;
        printf("%s\tCQ=[%zu]\n", kRule, i);
        printf("%-20s %llu %-3s\n", "Packets dropped:", d(queue.dropped, then.queues[i].dropped), d.per);
        printf("%-20s %llu\n", "Packets queue len:", static_cast<Number>(queue.length));
        printf("%-20s %llu\n", "Drained max:", static_cast<Number>(queue.most_drained));
        printf("%-20s %llu\n", "Buffer pool size:", static_cast<Number>(queue.pool));
    }
}

const char *title_of(RingKind kind)
{
    switch (kind) {
    case RingKind::kDirect:
        return "RING_ETH_DIRECT";
    case RingKind::kTap:
        return "RING_TAP";
    case RingKind::kLocal:
        return "RING_LOCAL";
    case RingKind::kRdma:
        return "RING_RDMA";
    default:
        return "RING_ETH";
    }
}

void print_tap(const Ring &ring)
{
    printf("%-20s %u\n", "Rx Buffers:", ring.tap_buffers);
    if (ring.plugouts != 0)
        printf("%-20s %u\n", "VF Plugouts:", ring.plugouts);
    printf("%-20s %d\n", "Tap fd:", ring.tap_fd);
    printf("%-20s %s\n", "Tap Device:", ring.name);
}

void print_hardware(const Ring &ring, const Ring &then, const Difference &d)
{
    if ((ring.interrupts_asked | ring.interrupts) != 0)
        printf("%-20s %llu / %llu [requests/received] %-3s\n",
               "Interrupts:", d(ring.interrupts_asked, then.interrupts_asked), d(ring.interrupts, then.interrupts),
               d.per);
    if ((ring.moderation_frames | ring.moderation_usec) != 0)
        printf("%-20s %u / %u [frames/usec period] %-3s\n", "Moderation:", ring.moderation_frames, ring.moderation_usec,
               d.per);
    if (ring.device_memory != 0)
        printf("%-20s %u\n", "Dev Mem Alloc:", ring.device_memory);
    if ((ring.memory_packets | ring.memory_bytes | ring.memory_oob) != 0)
        printf("%-20s %llu / %llu / %llu [kilobytes/packets/oob] %-3s\n",
               "Dev Mem Stats:", d(ring.memory_bytes, then.memory_bytes) / 1024,
               d(ring.memory_packets, then.memory_packets), d(ring.memory_oob, then.memory_oob), d.per);
}

void print_ring(std::size_t place, const Ring &ring, const Ring &then, const Difference &d)
{
    printf("%s\t%s=[%zu]\n", kRule, title_of(ring.kind), place);
    if (ring.master != 0)
        printf("%-20s 0x%llx\n", "Master:", static_cast<Number>(ring.master));
    if (ring.kind != RingKind::kTap && ring.name[0] != '\0')
        printf("%-20s %s\n", "Device:", ring.name);
    if ((ring.tx_bytes | ring.tx_packets) != 0)
        printf("%-20s %llu / %llu [kilobytes/packets] %-3s\n", "Tx Offload:", d(ring.tx_bytes, then.tx_bytes) / 1024,
               d(ring.tx_packets, then.tx_packets), d.per);
    if ((ring.rx_bytes | ring.rx_packets) != 0)
        printf("%-20s %llu / %llu [kilobytes/packets] %-3s\n", "Rx Offload:", d(ring.rx_bytes, then.rx_bytes) / 1024,
               d(ring.rx_packets, then.rx_packets), d.per);
    if (ring.retransmits != 0)
        printf("%-20s %llu %-3s\n", "Retransmissions:", d(ring.retransmits, then.retransmits), d.per);
    if (ring.kind == RingKind::kTap)
        print_tap(ring);
    else
        print_hardware(ring, then, d);
}

void print_pools(const Header &now, const Header &then, const Difference &d)
{
    for (std::size_t i = 0; i < kMostPools; ++i) {
        const Pool &pool = now.pools[i];
        if (pool.is_rx == 0 && pool.is_tx == 0)
            continue;
        printf("%s\tBUFFER_POOL(%s)=[%zu]\n", kRule, pool.is_rx != 0 ? "RX" : "TX", i);
        printf("%-20s %llu\n", "Size:", static_cast<Number>(pool.size));
        printf("%-20s %llu\n", "No buffers error:", d(pool.no_buffers, then.pools[i].no_buffers));
    }
}

} // namespace

void print_full(const Shown &shown)
{
    const Header &now = shown.now->header;
    const Header &then = shown.before != nullptr ? shown.before->header : now;
    const double seconds = shown.before != nullptr ? shown.now->seconds - shown.before->seconds : 0;
    const Difference difference = {seconds, shown.before != nullptr ? "/s" : ""};
    if (::isatty(STDOUT_FILENO) == 1)
        fputs("\033[H\033[2J", stdout);
    for (const SocketView &view : sockets_of(shown)) {
        Text text;
        describe(view, text);
        printf("%s%s", kRule, text.c_str());
    }
    for (const ShownMux &mux : muxes_of(shown))
        print_mux(mux, difference.per);
    print_queues(now, then, difference);
    for (std::size_t i = 0; i < kMostRings; ++i)
        if (now.rings[i].kind != RingKind::kNone)
            print_ring(i, now.rings[i], then.rings[i], difference);
    print_pools(now, then, difference);
}

} // namespace vma_stats
