// SPDX-License-Identifier: BSD-2-Clause
// The life of a stream, and its bytes. The tables of calls are in calls.cpp.
#include "ether/stream/endpoint.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ether/address.hpp"
#include "ether/pep.hpp"
#include "ether/stream/tcp_option.hpp"
#include "ofi/bind.hpp"
#include "ofi/give_option.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {

// ---- bytes: hot path -----------------------------------------------------------------------------------------------

ssize_t Stream::send(std::span<const iovec> parts, bool more) noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kConnected) [[unlikely]]
        return -FI_ENOTCONN;
    const inet::Nanos now = now_ns();
    std::int64_t sent = 0;
    std::int64_t n = 0;
    for (const iovec &part : parts) {
        n = port_context.tcp().send(now, connection_, {static_cast<const std::uint8_t *>(part.iov_base), part.iov_len});
        if (n < 0)
            break;
        sent += n;
        if (static_cast<std::size_t>(n) != part.iov_len) {
            n = -EAGAIN;
            break;
        }
    }
    if (n == -EAGAIN)
        write_told_ = false;
    else if (n < 0) [[unlikely]]
        error_told_ = static_cast<int>(-n);
    if (!more)
        port_context.net_if().send(now);
    return sent != 0 || n == 0 ? sent : n;
}

// After a call that reads: whoever has looked hears of the next bytes.
void Stream::note_read(std::int64_t result) noexcept
{
    if (result == -EAGAIN || result > 0)
        read_told_ = false;
    else if (result < 0) [[unlikely]]
        error_told_ = static_cast<int>(-result);
}

ssize_t Stream::receive(std::span<const iovec> parts, bool peek) noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kConnected) [[unlikely]]
        return -FI_ENOTCONN;
    const inet::Nanos now = now_ns();
    std::int64_t received = 0;
    std::int64_t n = 0;
    for (const iovec &part : parts) {
        if (part.iov_len == 0)
            continue;
        n = port_context.tcp().receive(now, connection_, {static_cast<std::uint8_t *>(part.iov_base), part.iov_len},
                                       peek);
        if (n <= 0)
            break;
        received += n;
        if (static_cast<std::size_t>(n) != part.iov_len || peek)
            break;
    }
    note_read(n);
    if (port_context.net_if().stack().wants_output()) // the window is open again
        port_context.net_if().send(now);
    return received != 0 ? received : n;
}

int Stream::lend(void *value, std::size_t *length) noexcept
{
    fi_vma_loan loan;
    if (value == nullptr || length == nullptr || *length != sizeof loan)
        return -FI_EINVAL;
    std::memcpy(&loan, value, sizeof loan);
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kConnected) [[unlikely]]
        return -FI_ENOTCONN;
    BlockLender *const lender = port_context.net_if().stream_lender();
    if (lender == nullptr)
        return -FI_ENOBUFS;
    const inet::Nanos now = now_ns();
    std::span<const std::uint8_t> piece;
    const std::int64_t n = port_context.tcp().lend(now, connection_, loan.length, piece);
    if (n == -ENOBUFS) // fi_recv() tells the rest
        return -FI_ENOBUFS;
    note_read(n);
    if (n < 0)
        return static_cast<int>(n);
    if (n != 0)
        lender->note_loan();
    loan = {n != 0 ? lender : nullptr, piece.data(), piece.size(), port_context.tcp().readable(connection_)};
    std::memcpy(value, &loan, sizeof loan);
    if (port_context.net_if().stack().wants_output())
        port_context.net_if().send(now);
    return 0;
}

// ---- readiness ------------------------------------------------------------------------------------------------------

void Stream::push(Queue *queue, std::uint64_t flags, std::size_t length) const noexcept
{
    if (queue == nullptr)
        return;
    ofi::Completion entry;
    entry.context = fid.fid.context;
    entry.flags = FI_MSG | flags;
    entry.length = length;
    entry.owner = this;
    queue->push(entry);
}

void Stream::tell_readable() noexcept
{
    if (!std::exchange(read_told_, true))
        push(rx_queue_, FI_RECV, port_context.tcp().readable(connection_));
}

void Stream::tell_writable() noexcept
{
    if (!std::exchange(write_told_, true))
        push(tx_queue_, FI_SEND, port_context.tcp().room(connection_));
}

void Stream::on_event(std::uint32_t what) noexcept
{
    constexpr std::uint32_t kOver = inet::kPeerFinished | inet::kFailed | inet::kGone | inet::kUrgent;
    if (phase == Phase::kConnecting)
        return end_connecting(what);
    if (phase != Phase::kConnected)
        return; // accept() looks what is there
    if ((what & (inet::kReadable | kOver)) != 0)
        tell_readable();
    if ((what & (inet::kWritable | inet::kFailed)) != 0)
        tell_writable();
    if ((what & kOver) != 0)
        end();
}

void Stream::end() noexcept
{
    if (!std::exchange(end_told_, true))
        eq_->post_shutdown(&fid.fid, nullptr);
}

void Stream::end_connecting(std::uint32_t what) noexcept
{
    if ((what & inet::kConnected) != 0) {
        phase = Phase::kConnected;
        port_context.guard(connection_);
        eq_->post_cm(FI_CONNECTED, &fid.fid, nullptr, nullptr, 0);
        if ((what & ~inet::kConnected) != 0)
            on_event(what & ~inet::kConnected);
    } else if ((what & inet::kFailed) != 0) {
        const int error = port_context.tcp().take_error(connection_);
        eq_->post_error(&fid.fid, error, error, nullptr, 0);
    }
}

// ---- the connection -------------------------------------------------------------------------------------------------

int Stream::bind(struct fid *what, std::uint64_t flags) noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (what->fclass == FI_CLASS_EQ) {
        ofi::Eq &bound = *reinterpret_cast<ofi::Eq *>(what);
        if (eq_ != nullptr || &bound.fabric != &domain.fabric)
            return -FI_EINVAL;
        bound.refs.fetch_add(1, std::memory_order_relaxed);
        eq_ = &bound;
        return 0;
    }
    if (what->fclass != FI_CLASS_CQ)
        return -FI_EINVAL;
    Queue &queue = static_cast<Queue &>(ofi::cq_of(what));
    bool selective = false; // readiness is told in any case
    const int error = ofi::bind_queue(domain, queue, flags, {tx_queue_, selective}, {rx_queue_, selective});
    if (error == 0)
        queue.users.fetch_add(halves_of(flags), std::memory_order_relaxed);
    return error;
}

int Stream::enable() noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (eq_ == nullptr)
        return -FI_ENOEQ;
    if (rx_queue_ == nullptr || tx_queue_ == nullptr)
        return -FI_ENOCQ;
    enabled_ = true;
    return 0;
}

// A connection keeps what a passive endpoint has reserved for it.
int Stream::take_request(fid_t handle) noexcept
{
    const std::unique_ptr<Request> request = ether_fabric_of(domain.fabric).take_request(port_context, handle);
    if (!request) {
        VMA_WARN(ep_ctrl, "the handle of an endpoint's info is no connection request that waits");
        return -FI_EINVAL;
    }
    connection_ = request->connection;
    flow = request->flow;
    if (const inet::Connection *const c = port_context.tcp().find(connection_))
        settings_ = c->settings;
    port_context.tcp().set_user(connection_, reinterpret_cast<std::uint64_t>(this));
    phase = Phase::kRequested;
    if (request->pep != nullptr)
        request->pep->taken();
    return 0;
}

int Stream::accept() noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kRequested)
        return -FI_EOPBADSTATE;
    if (const int error = eq_->post_cm(FI_CONNECTED, &fid.fid, nullptr, nullptr, 0))
        return error;
    phase = Phase::kConnected;
    const inet::Connection *const c = port_context.tcp().find(connection_);
    if (c == nullptr || c->state == inet::TcpState::kClosed || c->receive.fin_received)
        on_event(inet::kPeerFinished);
    else if (port_context.tcp().readable(connection_) != 0)
        tell_readable();
    return 0;
}

int Stream::take_local(const Route &route) noexcept
{
    if (reserved_)
        return 0;
    inet::Endpoint local = flow.local;
    if (local.address.is_any())
        local.address = route.source;
    if (local.address.is_v4() != flow.remote.address.is_v4())
        return -FI_EINVAL;
    if (const int error = port_context.reserve(inet::Protocol::kTcp, local))
        return error;
    flow.local = local;
    reserved_ = true;
    return 0;
}

int Stream::open_connection(const Route &route) noexcept
{
    if (const int error = take_local(route))
        return error;
    const inet::Nanos now = now_ns();
    const inet::NextHopIndex next_hop = port_context.net_if().stack().use_next_hop(now, flow.remote.address);
    if (next_hop == inet::kNoNextHop)
        return -FI_ENOMEM;
    const int error =
        port_context.tcp().connect(now, flow, next_hop, settings_, reinterpret_cast<std::uint64_t>(this), connection_);
    if (error != 0) {
        port_context.tcp().next_hops().release(next_hop);
        return error;
    }
    reserved_ = false; // the connection's now
    phase = Phase::kConnecting;
    port_context.turn();
    return 0;
}

int Stream::connect(const void *address) noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kIdle)
        return phase == Phase::kConnected ? -FI_EISCONN : -FI_EOPBADSTATE;
    if (address != nullptr) {
        ofi::Address peer;
        if (!format.read_whole(address, peer))
            return -FI_EINVAL;
        flow.remote = to_endpoint(peer);
    }
    if (flow.remote.port == 0)
        return -FI_EINVAL;
    Route route;
    if (const int error = port_context.net_if().find_route(flow.remote.address, flow.local.address, route))
        return error;
    return open_connection(route);
}

int Stream::shutdown() noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kConnected)
        return -FI_ENOTCONN;
    const inet::Nanos now = now_ns();
    const int error = port_context.tcp().shutdown(now, connection_);
    port_context.net_if().send(now);
    return error;
}

void Stream::close() noexcept
{
    const core::SpinGuard guard(port_context.lock());
    const inet::Nanos now = now_ns();
    if (phase != Phase::kIdle && phase != Phase::kLanded) {
        port_context.tcp().set_user(connection_, 0);
        port_context.tcp().close(now, connection_);
        port_context.net_if().send(now);
        port_context.unwatch_route(*this);
        port_context.outlive(flow, kernel_ != nullptr, vlans_);
    } else if (reserved_) {
        port_context.release(inet::Protocol::kTcp, flow.local);
    }
    for (Queue *queue : {tx_queue_, rx_queue_}) {
        if (queue != nullptr)
            queue->leave(this);
    }
    if (eq_ != nullptr) {
        eq_->remove_events(&fid.fid);
        eq_->refs.fetch_sub(1, std::memory_order_release);
    }
}

// ---- names and options ----------------------------------------------------------------------------------------------

int Stream::set_name(const ofi::Address &wanted) noexcept
{
    const core::SpinGuard guard(port_context.lock());
    if (phase != Phase::kIdle)
        return -FI_EOPBADSTATE;
    inet::Endpoint local = to_endpoint(wanted);
    if (const int error = port_context.reserve(inet::Protocol::kTcp, local))
        return error;
    if (std::exchange(reserved_, true))
        port_context.release(inet::Protocol::kTcp, flow.local);
    flow.local = local;
    return 0;
}

int Stream::get_option(int name, void *value, std::size_t *length) noexcept
{
    if (name == FI_OPT_CM_DATA_SIZE)
        return ofi::give_option<std::size_t>(0, value, length);
    const auto option = static_cast<unsigned>(name);
    if (option == FI_OPT_VMA_LEND)
        return lend(value, length);
    if (option != FI_OPT_VMA_TCP && option != FI_OPT_VMA_TCP_STATE)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(port_context.lock());
    return option == FI_OPT_VMA_TCP ? give_tcp_option(settings_, value, length) : give_state(value, length);
}

int Stream::set_option(int name, const void *value, std::size_t length) noexcept
{
    const auto option = static_cast<unsigned>(name);
    if (option == FI_OPT_VMA_LIFT || option == FI_OPT_VMA_LAND)
        return change_carrier(option, value, length);
    if (option != FI_OPT_VMA_TCP)
        return -FI_ENOPROTOOPT;
    const core::SpinGuard guard(port_context.lock());
    if (const int error = read_tcp_option(value, length, settings_))
        return error;
    if (phase == Phase::kIdle || phase == Phase::kLanded)
        return 0;
    const inet::Nanos now = now_ns();
    const int error = port_context.tcp().settle(now, connection_, settings_);
    port_context.net_if().send(now);
    return error;
}

int open_stream(ofi::Domain &domain, const fi_info &info, fid_ep **ep, void *context) noexcept
{
    std::unique_ptr<Stream> stream(new (std::nothrow) Stream(domain));
    if (!stream)
        return -FI_ENOMEM;
    stream->format = ofi::AddressFormat(&info);
    ofi::Address local;
    ofi::Address peer;
    if ((info.src_addr != nullptr && !stream->format.read(info.src_addr, info.src_addrlen, local)) ||
        (info.dest_addr != nullptr && !stream->format.read(info.dest_addr, info.dest_addrlen, peer)))
        return -FI_EINVAL;
    if (!local.empty())
        stream->flow.local = to_endpoint(local);
    if (!peer.empty())
        stream->flow.remote = to_endpoint(peer);
    stream->tx_flags = info.tx_attr != nullptr ? info.tx_attr->op_flags : 0;
    stream->rx_flags = info.rx_attr != nullptr ? info.rx_attr->op_flags : 0;
    if (info.handle != nullptr) {
        const core::SpinGuard guard(stream->port_context.lock());
        if (info.handle->fclass != FI_CLASS_CONNREQ)
            return -FI_EINVAL;
        if (const int error = stream->take_request(info.handle))
            return error;
    }
    stream->fid.fid = {FI_CLASS_EP, context, nullptr};
    set_stream_calls(stream->fid);
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *ep = &stream.release()->fid;
    return 0;
}

} // namespace vma::ether
