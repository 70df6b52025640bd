// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_VMA_STREAM: a TCP connection of our own as a libfabric endpoint. Bytes go between the program's buffers and the
// stack's in the calls themselves; entries of the completion queue tell when a call has something to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <sys/uio.h>

#include "ether/fabric.hpp"
#include "ether/queue.hpp"
#include "ether/stream/repair.hpp"
#include "ofi/eq.hpp"

namespace vma::ether {

struct Stream {
    enum class Phase : std::uint8_t { kIdle, kRequested, kConnecting, kConnected, kLanded };

    fid_ep fid{}; // first
    ofi::Domain &domain;
    PortContext &port_context;
    std::uint64_t tx_flags = 0; // of calls without flags
    std::uint64_t rx_flags = 0;
    ofi::AddressFormat format; // of addresses, as the program writes them

    explicit Stream(ofi::Domain &owner) noexcept : domain(owner), port_context(port_context_of(owner)) {}

    // Each takes the port context's lock. Results as fi_ext_vma.h says.
    ssize_t send(std::span<const iovec> parts, bool more) noexcept;
    ssize_t receive(std::span<const iovec> parts, bool peek) noexcept;
    int lend(void *value, std::size_t *length) noexcept; // FI_OPT_VMA_LEND
    int bind(struct fid *what, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int connect(const void *address) noexcept;
    int accept() noexcept;
    int shutdown() noexcept;
    int set_name(const ofi::Address &wanted) noexcept;
    int get_option(int name, void *value, std::size_t *length) noexcept;
    int set_option(int name, const void *value, std::size_t length) noexcept;
    void close() noexcept;
    // offload.cpp: connections that the kernel has opened.
    int offload(int fd) noexcept;
    int land(int fd) noexcept;

    // With the port context's lock held.
    void on_event(std::uint32_t what) noexcept;
    void end() noexcept; // FI_SHUTDOWN, once
    int take_request(fid_t handle) noexcept;

    inet::Flow flow; // of the connection; before it the addresses as far as they are known
    Phase phase = Phase::kIdle;

private:
    int take_local(const Route &route) noexcept;
    int open_connection(const Route &route) noexcept;
    void end_connecting(std::uint32_t what) noexcept;
    void note_read(std::int64_t result) noexcept;
    void tell_readable() noexcept;
    void tell_writable() noexcept;
    int change_carrier(unsigned option, const void *value, std::size_t length) noexcept;
    int adopt(inet::Nanos now, KernelConnection &kernel) noexcept;
    void leave(const inet::Flow &old, KernelReturn &back) noexcept;
    int give_state(void *value, std::size_t *length) noexcept;
    int take_up(inet::Nanos now, KernelConnection &kernel, Ending &ending) noexcept;
    void reset_peer(inet::Nanos now, const KernelConnection &kernel) noexcept;
    void push(Queue *queue, std::uint64_t flags, std::size_t length) const noexcept;

    // Protected by the port context's lock.
    ofi::Eq *eq_ = nullptr;
    Queue *tx_queue_ = nullptr;
    Queue *rx_queue_ = nullptr;
    inet::ConnectionId connection_;
    inet::TcpSettings settings_;
    bool enabled_ = false;
    bool reserved_ = false;  // the local port, and no connection has it yet
    bool read_told_ = false; // an entry says so, and no call has found nothing since
    bool write_told_ = true;
    int error_told_ = 0;                       // errno that ended the connection, by the call that told it
    bool end_told_ = false;                    // FI_SHUTDOWN
    std::unique_ptr<KernelConnection> kernel_; // of a connection that was offloaded
    Vlans vlans_;                              // that it is steered by
};

int open_stream(ofi::Domain &domain, const fi_info &info, fid_ep **ep, void *context) noexcept;

// calls.cpp: fi_ops_ep, fi_ops_cm and fi_ops_msg.
void set_stream_calls(fid_ep &fid) noexcept;

} // namespace vma::ether
