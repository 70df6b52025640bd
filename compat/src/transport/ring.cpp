// SPDX-License-Identifier: BSD-2-Clause
// The transport of a stream whose peer is on this host: a ring in memory that both processes have.
#include "compat/src/transport/ring.hpp"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

namespace vma::sock {

namespace {

// Where the next bytes would go.
void warm(Socket &s, std::size_t len)
{
    const fi_vma_warm wanted = {FI_ADDR_UNSPEC, s.tx.position & (s.tx.ring - 1), len};
    fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &wanted, sizeof wanted);
}

} // namespace

constinit const Transport kSharedRing = {
    .name = "shared ring",
    .way = stats::Way::kLocal,
    .spans = true,
    .ordered = true,
    .ends_with_process = false,
    .lingers = false,
    .wakes_sleepers = true,
    .shrinks = true,
    .needs_ticks = false,
    .send_small = ring_send_small,
    .send = ring_send,
    .send_nothing = [](Socket &) { return false; },
    .warm = warm,
    .receive_small = ring_receive_small,
    .receive = ring_receive,
    .lend = ring_lend,
    .has_input = ring_has_input,
    .has_room = ring_has_room,
    .confirm_input = [](Socket &) { return true; },
    .room_mark = ring_room_mark,
    .count = [](Socket &, QueuedBytes &) { return false; },
    .publish = [](Socket &) {},
    .set_option = [](Socket &, int, int, int, const void *, socklen_t, int &) { return false; },
    .option_was_set = [](Socket &, int, int, int, const void *) {},
    .correct_option = [](Socket &, int, int, void *, socklen_t) {},
    .handle_entry = ring_handle_entry,
    .prepare = [](Socket &, fi_info &) {},
    .prepared = [](Socket &, fid_ep &) { return 0; },
    .went_down = ring_went_down,
    .may_close = [](const Socket &) { return true; },
    .leave = [](Socket &) {},
    .post_tag = post_tag,
    .end_not_told = [](Socket &) {}, // nobody is left to hear it
    .ended_for_good = [](Socket &) {},
    .endpoint_failed = heed_last_return,
    .handle_tag = [](Socket &, Tag) { return false; },
    .start_came = [](Socket &) {},
    .peer_is_gone = shared_ring_peer_is_gone,
    .may_bring_more = [](Socket &) { return false; },
    .start_leaving = shared_ring_start_leaving,
    .give_up_waiting = shared_ring_give_up_waiting,
    .tick = [](Socket &) {},
};

} // namespace vma::sock
