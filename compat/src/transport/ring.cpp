// SPDX-License-Identifier: BSD-2-Clause
// The transport of a stream whose peer is on this host: a ring in memory that both processes have.
#include "compat/src/transport/ring.hpp"

#include "compat/src/libc/sections.hpp"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

namespace vma::sock {

namespace {

// Where the next bytes would go.
void warm(Stream &s, std::size_t len)
{
    const fi_vma_warm wanted = {FI_ADDR_UNSPEC, s.tx.position & (s.tx.ring - 1), len};
    fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &wanted, sizeof wanted);
}

} // namespace

[[VMA_STARTUP_DATA]] constinit Transport storage::shared_ring = [] {
    Transport t = ring_entries();
    t.name = "shared ring";
    t.way = stats::Way::kLocal;
    t.ordered = true;
    t.ends_with_process = false;
    t.lingers = false;
    t.wakes_sleepers = true;
    t.shrinks = true;
    t.needs_ticks = false;
    t.warm = warm;
    t.publish = [](Stream &) {};
    t.prepare = [](Stream &, fi_info &) {};
    t.prepared = [](Stream &, fid_ep &) { return 0; };
    t.offloaded = [](Stream &) {};
    t.went_down = ring_went_down;
    t.may_close = [](const Stream &) { return true; };
    t.leave = [](Stream &) {};
    t.post_tag = post_tag;
    t.end_not_told = [](Stream &) {}; // nobody is left to hear it
    t.ended_for_good = [](Stream &) {};
    t.endpoint_failed = heed_last_return;
    t.handle_tag = [](Stream &, Tag) { return false; };
    t.start_came = [](Stream &) {};
    t.may_be_ready = [](const Stream &) { return true; };
    t.peer_is_gone = shared_ring_peer_is_gone;
    t.may_bring_more = [](Stream &) { return false; };
    t.start_leaving = shared_ring_start_leaving;
    t.give_up_waiting = shared_ring_give_up_waiting;
    t.tick = [](Stream &) {};
    return t;
}();

} // namespace vma::sock
