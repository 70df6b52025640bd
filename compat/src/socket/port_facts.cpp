// SPDX-License-Identifier: BSD-2-Clause
// What ports count of their queues and frames, for vma_stats: the helper thread asks them now and then, so that nobody counts twice.
#include <stdio.h>

#include <rdma/fi_ext_vma.h>

#include "compat/src/socket/device.hpp"
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

stats::Queue queue_of(const Device &d, const fi_vma_port_counters &c)
{
    stats::Queue q = {};
    q.used = 1;
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
    snprintf(q.name, sizeof q.name, "%.31s", d.name);
    return q;
}

} // namespace

void tell_ports()
{
    stats::Queue queues[kMostDevices];
    std::uint32_t count = 0;
    each_remote_device([&](const Device &d) {
        if (fi_vma_port_counters counters = {}; read_port(d, counters))
            queues[count++] = queue_of(d, counters);
    });
    stats::set_queues(queues, count);
}

} // namespace vma::sock
