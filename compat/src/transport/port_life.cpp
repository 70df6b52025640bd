// SPDX-License-Identifier: BSD-2-Clause
// The life of a stream on a port: how it leaves the kernel, and comes back.
#include "compat/src/transport/port_life.hpp"
#include "compat/src/transport/exception.hpp"
#include "compat/src/transport/port.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/probes.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/port_options.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMostDoublings = 3; // of the calls until the next attempt

bool in_call(const Stream &s)
{
    return s.blocked_receivers.load(std::memory_order_seq_cst) != 0 ||
           s.blocked_polls.load(std::memory_order_seq_cst) != 0 ||
           s.blocked_senders.load(std::memory_order_seq_cst) != 0;
}

} // namespace

bool find_port(Stream &s)
{
    fi_info *info = nullptr;
    if (find_device(*provider(), Want::kPortStreams, &s.addresses, info) != 0) {
        stay_on_kernel(s, "no Ethernet port that can be used leads to the peer");
        return false;
    }
    if (!is_named_port(info->domain_attr->name)) {
        stay_on_kernel(s, "the port that leads to the peer is not in VMA_ETHERNET");
        engine_objects().process->freeinfo(info);
        return false;
    }
    Device *const d = remote_device(*info);
    if (d == nullptr || d->stream_info != nullptr)
        engine_objects().process->freeinfo(info);
    else
        d->stream_info = info;
    if (d == nullptr)
        refuse_offload(s, "its port can't be used");
    s.port = d;
    return d != nullptr;
}

namespace {

int open_stream(Stream &s, Device &d, fid_ep *&ep)
{
    int result = fi_endpoint(d.domain, d.stream_info, &ep, &s);
    if (result != 0)
        return result;
    result = fi_ep_bind(ep, &d.eq->fid, 0);
    if (result == 0)
        result = fi_ep_bind(ep, &d.cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (result == 0)
        result = fi_enable(ep);
    if (result != 0)
        fi_close(&ep->fid);
    return result;
}

// tx, rx and poll lock held. From here on calls on the socket go to the endpoint, and wait for these locks.
void become_port(Stream &s, Device &d, fid_ep *ep)
{
    put_endpoint(s, ep);
    s.device = &d;
    ++d.users;
    s.transport.store(&kPort, std::memory_order_relaxed);
    s.transport_over = false;
    s.quickack = false;
    s.told_retransmissions = 0;
    s.port_ready.reset();
    s.tx.path = Path::kEndpoint;
    s.rx.path = Path::kEndpoint;
    s.mode.store(Mode::kOffloaded, std::memory_order_seq_cst);
}

void leave_transport(Stream &s)
{
    s.transport.store(s.remote ? &kRemoteRing : &kSharedRing, std::memory_order_relaxed);
    s.transport_over = false;
}

// The way back from that; with `ep` closed the caller is done.
void become_kernel_only(Stream &s, fid_ep *ep)
{
    put_endpoint(s, nullptr);
    --s.device->users;
    leave_transport(s);
    s.tx.path = Path::kKernel;
    s.rx.path = Path::kKernel;
    s.mode.store(mode_without_endpoint(s), std::memory_order_release);
    fi_close(&ep->fid);
}

// 0, or why the kernel keeps it.
int offload_locked(Stream &s, int fd, Device &d, fid_ep *ep)
{
    const LockGuard tx(s.tx_lock);
    const LockGuard rx(s.rx_lock);
    become_port(s, d, ep);
    int result = in_call(s) ? -EAGAIN : 0;
    const bool watched = result == 0;
    if (watched && !kMultiplexers.became_offloaded(s))
        result = s.mux.shared.load(std::memory_order_relaxed) ? -EAGAIN : -EMFILE;
    if (result == 0)
        result = begin_port_options(s, fd);
    if (result == 0) {
        engine_exclude_polling(true); // what is told of it from here on is for this endpoint
        result = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LIFT), &fd, sizeof fd);
        engine_exclude_polling(false);
        if (result != 0)
            end_port_options(s, fd);
    }
    if (result == 0)
        return 0;
    become_kernel_only(s, ep);
    if (watched)
        kMultiplexers.became_kernel_only(s);
    return result;
}

} // namespace

void offload_to_port(Stream &s, int fd)
{
    Device &d = *s.port;
    fid_ep *ep = nullptr;
    if (in_call(s))
        return;
    if (s.send_shut.load(std::memory_order_seq_cst) || s.receive_shut.load(std::memory_order_seq_cst)) {
        stay_on_kernel(s, "it is shut down");
        return;
    }
    if (d.failed || d.stream_info == nullptr) {
        refuse_offload(s, "its port can't be used");
        return;
    }
    int result = open_stream(s, d, ep);
    if (result == 0)
        result = offload_locked(s, fd, d, ep);
    char name[kNameMax];
    if (result == -EAGAIN) { // somebody is in a call, or too much is queued
        try_later(s, kMostDoublings);
        return;
    }
    if (result != 0) {
        VMA_LOG(kDebug, "%s: port %s does not take it: %s", connection_name(s, name), d.name, strerror(-result));
        stay_on_kernel(s, "its port does not take it");
        return;
    }
    add_live(g_offload.live, s);
    g_due.add(s.index);
    engine_update_active();
    s.told = true;
    tell_migration(s);
    VMA_LOG(kDetails, "%s: accelerated: port %s, after %u sends and receives", connection_name(s, name), d.name,
            s.operations.load(std::memory_order_relaxed));
    kick_sleepers();
}

// The connection is the kernel's again, as the peer left it.
void leave_port(Stream &s)
{
    const int fd = live_fd(s, s.any_fd.load(std::memory_order_relaxed));
    const int result = fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_LAND), &fd, sizeof fd);
    end_port_options(s, fd);
    leave_transport(s);
    if (result == 0)
        return;
    char name[kNameMax];
    VMA_LOG(kDebug, "%s: the connection has ended: %s", connection_name(s, name), strerror(-result));
    s.aborted.store(true, std::memory_order_release);
    s.pending_error.store(-result, std::memory_order_relaxed);
}

void port_went_down(Stream &s, const char *)
{
    char name[kNameMax];
    const bool urgent = is_port_urgent(s);
    if (urgent) {
        s.kernel_reason = "urgent data";
        s.pinned.store(true, std::memory_order_release);
    }
    const char *const why = urgent ? "urgent data" : "the peer has finished, or is not reached by the port any more";
    probe::fallback(s.any_fd.load(std::memory_order_relaxed), why, true);
    VMA_LOG(kDetails, "%s: back to the kernel: %s", connection_name(s, name), why);
    discard_endpoint(s);
}

} // namespace vma::sock
