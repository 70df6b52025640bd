// SPDX-License-Identifier: BSD-2-Clause
// Sums of records that are open and of those that are closed.
#include "util/vma_stats/metrics/totals.hpp"

#include <netinet/in.h>

#include <algorithm>

#include "compat/src/stats/text.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

void add_open(ProtocolTotals &sum, const Slot &slot)
{
    const Counters &c = slot.now;
    accumulate(sum.counted, c);
    sum.counted.tx.paced_bytes += paced_bytes(slot, c) - c.tx.paced_bytes;
    sum.open[static_cast<std::size_t>(slot.facts.way)] += 1;
    sum.queued_packets += c.in.packets - std::min(c.in.packets, c.rx.packets);
    sum.queued_bytes += c.in.bytes - std::min(c.in.bytes, c.rx.bytes);
    sum.unacknowledged_bytes += c.tx.waiting;
    sum.lent_buffers += c.rx.zcopy;
}

template <std::size_t kCount> void add_muxes(MuxTotals &sum, const Mux (&records)[kCount], bool sets)
{
    for (const Mux &record : records) {
        if (sets && record.fd < 0)
            continue;
        accumulate(sum.counted, record.now);
        sum.polling = std::max(sum.polling, std::min(record.polling, 100U));
    }
}

} // namespace

Totals totals_of(const Snapshot &s)
{
    const Header &h = s.header;
    Totals all;
    accumulate(all.tcp.counted, h.closed.tcp);
    accumulate(all.udp.counted, h.closed.udp);
    all.tcp.closed = h.closed.tcp_sockets;
    all.udp.closed = h.closed.udp_sockets;
    for (const Slot &slot : s.slots)
        if (slot.facts.fd >= 0)
            add_open(slot.facts.protocol == IPPROTO_UDP ? all.udp : all.tcp, slot);
    add_muxes(all.select, h.select, false);
    add_muxes(all.poll, h.poll, false);
    all.epoll.counted = h.closed.epoll;
    add_muxes(all.epoll, h.epoll, true);
    return all;
}

} // namespace vma_stats
