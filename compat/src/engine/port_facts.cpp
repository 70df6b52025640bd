// SPDX-License-Identifier: BSD-2-Clause
// What completion queues and ports count, for vma_stats: the helper thread asks them now and then, so that nobody
// counts twice.
#include <stdio.h>

#include <iterator>

#include <rdma/fi_domain.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/ring_table.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/stats/region.hpp"

namespace vma::sock {

namespace {

bool read_port(const Device &d, fi_vma_port_counters &counters)
{
    if (d.udp == nullptr ||
        d.udp->size <= offsetof(fi_ops_vma_udp, read_counters)) // VMA_PROVIDER may name an older one
        return false;
    return d.udp->read_counters(d.domain, &counters) == 0;
}

void add_port(stats::Queue &q, const fi_vma_port_counters &c)
{
    q.dropped = c.dropped;
    q.length = c.waiting;
    q.most_drained = c.most_at_once;
    q.pool = c.frames_free;
    q.frames = c.frames;
    q.lent = c.frames_lent;
    q.shortage = c.shortage;
    q.send_frames = c.send_frames;
    q.send_free = c.send_free;
    q.send_shortage = c.send_shortage;
    q.blocks = c.blocks;
    q.blocks_free = c.blocks_free;
    q.block_shortage = c.block_shortage;
}

// What the library's own polls have found.
struct Polls {
    std::uint64_t all;
    const std::uint64_t &hits;
    const std::uint64_t &most;
    PlaceSleeps sleeps = {}; // that the queue has not seen
};

stats::Queue queue_of(stats::RingKind kind, const char *name, fid_cq &cq, const Polls &polls)
{
    stats::Queue q = {};
    fi_vma_queue_counters counters = {};
    q.used = 1;
    q.polls = polls.all;
    q.poll_hits = stats::get(polls.hits);
    q.most_drained = stats::get(polls.most);
    snprintf(q.name, sizeof q.name, "%.31s", name);
    if (fi_control(&cq.fid, static_cast<int>(FI_VMA_QUEUE_COUNTERS), &counters) == 0) {
        q.length = counters.waiting;
        stats::tell_interrupts(kind, name, counters.asked + polls.sleeps.begun, counters.woken + polls.sleeps.woken);
    }
    return q;
}

stats::Queue queue_of(const Device &d)
{
    const auto kind = d.udp != nullptr ? stats::RingKind::kEthernet : stats::RingKind::kRdma;
    stats::Queue q = queue_of(kind, d.name, *d.cq, {engine_polls() - d.polls_before, d.hits, d.most});
    if (fi_vma_port_counters counters = {}; read_port(d, counters))
        add_port(q, counters);
    return q;
}

} // namespace

// Those of devices first: they come and go, and so the places of the others change, but each has its name.
void tell_queues()
{
    stats::Queue(&queues)[kMostDevices + kMostRings] = g_engine_tables.queues;
    static_assert(std::size(queues) <= stats::kMostRings);
    std::uint32_t count = 0;
    each_remote_device([&](const Device &d) { queues[count++] = queue_of(d); });
    if (const Device &d = engine_objects(); d.cq != nullptr)
        queues[count++] =
            queue_of(stats::RingKind::kLocal, "local", *d.cq, {engine_polls(), d.hits, d.most, sleeps_at_places()});
    for (RingMask left = g_engine.more_rings.open.load(std::memory_order_acquire); left != 0; left &= left - 1) {
        const auto place = static_cast<unsigned>(__builtin_ctzll(left));
        const Ring &r = g_engine.rings[place];
        queues[count++] = queue_of(stats::RingKind::kLocal, name_of_ring(place), *r.cq,
                                   {r.polls.load(std::memory_order_relaxed), r.hits, r.most});
    }
    stats::set_queues(queues, count);
}

} // namespace vma::sock
