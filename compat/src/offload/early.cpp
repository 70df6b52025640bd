// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/offload/early.hpp"

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/bounds.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/offload/turn.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/peer.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/table/uring.hpp"

namespace vma::sock {

namespace {

// A connection that is not established yet has no peer but the one that connect() was told.
bool is_within_host(int fd, const sockaddr_in6 *peer, Addresses &ends)
{
    if (read_addresses(fd, ends))
        return on_this_host(ends);
    if (peer == nullptr || !read_address(fd, Side::kLocal, ends.local))
        return false;
    ends.peer = *peer;
    return on_this_host(ends);
}

// And what is found out, or opened, once for all connections. Of this one nothing is kept: who the peer is, is asked
// when it is about to be accelerated.
void open_all(const Addresses &ends)
{
    Peer peer;
    if (!engine_start())
        return;
    (void)room_for_stream(g_connections.room, engine_device().users);
    (void)ask_for_peer(ends, peer);
}

} // namespace

void open_early(const Stream &s, int fd, const sockaddr_in6 *peer)
{
    Addresses ends = {};
    const bool opens = config::params().opens_early && engine_is_unstarted() && !rings_forbid() && !sandboxed() &&
                       s.mode.load(std::memory_order_acquire) == Mode::kKernelOnly &&
                       !s.pinned.load(std::memory_order_relaxed);
    if (opens && is_within_host(fd, peer, ends))
        (void)open_in_turn([&] { open_all(ends); }, patience_asked_for());
}

} // namespace vma::sock
