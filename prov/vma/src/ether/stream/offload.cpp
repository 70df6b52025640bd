// SPDX-License-Identifier: BSD-2-Clause
// Streams whose connections the kernel opens and closes: FI_OPT_VMA_LIFT and FI_OPT_VMA_LAND (doc/wire-sockets.md).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ether/stream/endpoint.hpp"
#include "ofi/give_option.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

int Stream::change_carrier(unsigned option, const void *value, std::size_t length) noexcept
{
    int fd = -1;
    if (value == nullptr || length != sizeof fd)
        return -FI_EINVAL;
    std::memcpy(&fd, value, sizeof fd);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(port_context.lock());
    return option == FI_OPT_VMA_LIFT ? offload(fd) : land(fd);
}

// ---- up -------------------------------------------------------------------------------------------------------------

// The flow first: what comes from then on waits in the NIC's queue until we are back, while the kernel still has the
// socket.
int Stream::offload(int fd) noexcept
{
    if (phase != Phase::kIdle || !enabled_ || reserved_)
        return -FI_EOPBADSTATE;
    std::unique_ptr<KernelConnection> kernel(new (std::nothrow) KernelConnection);
    if (kernel == nullptr)
        return -FI_ENOMEM;
    const std::size_t most = port_context.tcp().most_adopted(); // the window keeps a quarter of it
    if (const int error = kernel->look(fd, {.queued = most, .unread = most - most / 4}))
        return error;
    const inet::Flow &wanted = kernel->handover.flow;
    Route route;
    int error = port_context.net_if().find_route(wanted.remote.address, wanted.local.address, route);
    if (error == 0)
        error = port_context.steer(wanted, inet::Protocol::kTcp, vlans_);
    if (error != 0)
        return error;
    error = kernel->take_out();
    if (error == 0) {
        error = adopt(now_ns(), *kernel);
        if (error != 0)
            kernel->undo();
    }
    if (error != 0) {
        KernelReturn back(wanted);
        leave(wanted, back);
        return error;
    }
    flow = wanted;
    phase = Phase::kConnected;
    kernel->queued.clear();
    kernel->unread.clear();
    kernel_ = std::move(kernel);
    port_context.watch_route(*this);
    port_context.guard(connection_);
    port_context.turn();
    return 0;
}

int Stream::adopt(inet::Nanos now, KernelConnection &kernel) noexcept
{
    inet::Tcp &tcp = port_context.tcp();
    const inet::NextHopIndex next_hop =
        port_context.net_if().stack().use_next_hop(now, kernel.handover.flow.remote.address);
    if (next_hop == inet::kNoNextHop)
        return -FI_ENOMEM;
    int error = tcp.adopt(now, kernel.handover, kernel.queued.all(), kernel.unread.all(), next_hop, settings_,
                          reinterpret_cast<std::uint64_t>(this), connection_);
    if (error != 0) {
        tcp.next_hops().release(next_hop);
        return error;
    }
    error = kernel.empty();
    if (error == 0)
        tcp.adopt_sent(now, connection_, kernel.handover.nxt);
    else
        tcp.forget(now, connection_);
    if (error != 0 && error != -EAGAIN)
        VMA_WARN(ep_ctrl, "a connection can't be taken from the kernel's socket: %s", std::strerror(-error));
    return error;
}

// ---- back ----------------------------------------------------------------------------------------------------------

// The kernel's socket has the flow, and gets what has come meanwhile. What comes to the NIC all the same is left
// unanswered.
void Stream::leave(const inet::Flow &old, KernelReturn &back) noexcept
{
    port_context.unsteer(old, inet::Protocol::kTcp, vlans_);
    port_context.net_if().sort(now_ns(), back);
    port_context.tcp().ignore(now_ns(), old);
}

// What the NIC's queue still has is taken first. What comes until the kernel's socket has the connection goes to that
// queue, too, and then to the kernel.
int Stream::land(int fd) noexcept
{
    constexpr int kTurns = 4;
    if (phase != Phase::kConnected || kernel_ == nullptr)
        return -FI_EOPBADSTATE;
    KernelConnection &kernel = *kernel_;
    kernel.use(fd);
    phase = Phase::kLanded; // nothing more is told
    port_context.unwatch_route(*this);
    for (int i = 0; i < kTurns; ++i)
        port_context.turn();
    const inet::Nanos now = now_ns();
    Ending ending = Ending::kNone;
    int error = take_up(now, kernel, ending);
    const bool ended = error != 0;
    if (!ended)
        error = kernel.put_back();
    KernelReturn back(flow);
    if (error == 0)
        error = kernel.resume(ending, back);
    if (error == 0)
        leave(flow, back);
    else
        port_context.unsteer(flow, inet::Protocol::kTcp, vlans_);
    if (error == 0)
        error = kernel.finish();
    if (error != 0)
        kernel.give_up();
    if (error != 0 && !ended) {
        VMA_WARN(ep_ctrl, "a connection can't be put back into the kernel's socket: %s: it is reset",
                 std::strerror(-error));
        reset_peer(now, kernel);
    }
    port_context.unguard(flow);
    return error;
}

// Out of the stack. 0, or what ended the connection, unless that was the peer.
int Stream::take_up(inet::Nanos now, KernelConnection &kernel, Ending &ending) noexcept
{
    inet::Tcp &tcp = port_context.tcp();
    int error = tcp.describe(now, connection_, kernel.handover);
    if (error == 0) {
        error = kernel.queued.resize(tcp.queued(connection_)) ? 0 : -FI_ENOMEM;
        tcp.copy_queued(connection_, 0, kernel.queued.all());
        ending = kernel.handover.peer_finished ? Ending::kFin : Ending::kNone;
    } else if (const int ended = error_told_ != 0 ? error_told_ : tcp.take_error(connection_);
               ended == ECONNRESET || ended == EPIPE) {
        error = 0;
        ending = Ending::kRst;
        kernel.queued.clear();
    } else {
        error = ended != 0 ? -ended : error;
    }
    if (!kernel.unread.resize(tcp.readable(connection_)))
        error = -FI_ENOMEM;
    tcp.copy_unread(connection_, 0, kernel.unread.all());
    tcp.forget(now, connection_);
    return error;
}

void Stream::reset_peer(inet::Nanos now, const KernelConnection &kernel) noexcept
{
    inet::Tcp &tcp = port_context.tcp();
    const inet::NextHopIndex next_hop = port_context.net_if().stack().use_next_hop(now, flow.remote.address);
    if (next_hop == inet::kNoNextHop)
        return;
    inet::TcpHandover handover = kernel.handover;
    handover.nxt = handover.una + static_cast<inet::Seq>(kernel.queued.size());
    handover.peer_finished = false;
    if (tcp.adopt(now, handover, kernel.queued.all(), {}, next_hop, settings_, 0, connection_) != 0) {
        tcp.next_hops().release(next_hop);
        return;
    }
    tcp.abort(now, connection_);
    port_context.net_if().send(now);
}

// ---- how it is doing ------------------------------------------------------------------------------------------------

int Stream::give_state(void *value, std::size_t *length) noexcept
{
    const inet::Connection *const c = port_context.tcp().find(connection_);
    if (c == nullptr)
        return -FI_ENOTCONN;
    const auto us = [](inet::Nanos time) { return static_cast<std::uint32_t>(time / inet::kMicrosecond); };
    fi_vma_tcp_state state{};
    state.bytes_sent = c->bytes_sent;
    state.bytes_received = c->bytes_received;
    state.segments_sent = c->segments_sent;
    state.segments_received = c->segments_received;
    state.readable = static_cast<std::uint32_t>(c->receive.in.size());
    state.unacknowledged = static_cast<std::uint32_t>(c->out.size());
    state.unsent = c->unsent();
    state.retransmissions = c->retransmissions;
    state.rtt = us(c->rtt.smoothed());
    state.rtt_variation = us(c->rtt.variation());
    state.rto = us(c->rtt.rto());
    state.segment = c->mss;
    state.congestion_window = c->congestion.window();
    state.threshold = c->congestion.threshold();
    state.peer_window = c->window;
    state.receive_window = c->receive.advertised - c->receive.next;
    state.urgent = c->urgent;
    return ofi::give_option(state, value, length);
}

} // namespace vma::ether
