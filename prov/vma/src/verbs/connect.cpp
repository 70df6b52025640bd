// SPDX-License-Identifier: BSD-2-Clause
// Joining an endpoint with its peer: fi_connect, fi_accept, fi_shutdown, and what librdmacm says meanwhile. The queue
// pair is ours and not librdmacm's, so its states are changed here (rdma_connect(3), "rdma_establish").
#include <algorithm>
#include <cstring>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/ops.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/pep.hpp"

namespace vma::verbs {

using Phase = Endpoint::Phase;

namespace {

constexpr int kResolveMs = 2000;
constexpr std::uint8_t kMostReads = 16;

std::uint8_t least(int device, int other) noexcept
{
    return static_cast<std::uint8_t>(std::clamp(std::min(device, other), 0, 255));
}

// What librdmacm found out of the path, and of us what it can't know.
int modify_qp(Endpoint &endpoint, ibv_qp_state state)
{
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = state;
    if (table()->init_qp_attr(endpoint.id.get(), &attr, &mask) != 0)
        return last_error();
    attr.qp_state = state;
    // Of these librdmacm knows the other side's, or nothing: the user of this side is who set them.
    const Retries &retries = endpoint.manager.retries();
    attr.min_rnr_timer = retries.min_rnr_timer;
    attr.retry_cnt = retries.retry_count;
    attr.rnr_retry = retries.rnr_retry;
    if (retries.ack_timeout != kPathTimeout)
        attr.timeout = retries.ack_timeout;
    return -table()->modify_qp(endpoint.qp, &attr, mask);
}

// With what the peer said in `incoming`.
int make_ready(Endpoint &endpoint)
{
    int error = 0;
    if (endpoint.region)
        error = endpoint.region->join(nic_domain(endpoint.domain).pd(), endpoint.incoming.header);
    if (error == 0)
        error = modify_qp(endpoint, IBV_QPS_RTR);
    if (error == 0)
        error = modify_qp(endpoint, IBV_QPS_RTS);
    if (error == 0)
        endpoint.join_fast();
    return error;
}

rdma_conn_param parameters(Endpoint &endpoint)
{
    rdma_conn_param param{};
    param.private_data = &endpoint.outgoing;
    param.private_data_len = endpoint.outgoing.size();
    param.responder_resources = endpoint.responder_resources;
    param.initiator_depth = endpoint.initiator_depth;
    param.retry_count = endpoint.manager.retries().retry_count;
    param.rnr_retry_count = endpoint.manager.retries().rnr_retry;
    param.srq = endpoint.shared != nullptr;
    param.qp_num = endpoint.qp->qp_num;
    return param;
}

// Receives that nobody will fill come back to the program.
void flush_qp(Endpoint &endpoint)
{
    endpoint.open_for_sends.store(false, std::memory_order_relaxed);
    if (endpoint.qp == nullptr)
        return;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    table()->modify_qp(endpoint.qp, &attr, IBV_QP_STATE);
    if (endpoint.fast) // not earlier: what the device has accepted is in the ring now
        endpoint.fast->ended.store(true, std::memory_order_release);
}

void fail(Endpoint &endpoint, int error, int status, const void *data = nullptr, std::size_t length = 0)
{
    endpoint.phase = Phase::closed;
    flush_qp(endpoint);
    if (endpoint.eq != nullptr) // else nobody has accepted yet, and fi_accept will say it
        endpoint.eq->post_error(&endpoint.fid.fid, error, status, data, length);
}

// `unread`: the queue of receives that come before the end, which the peer has asked for.
void shut(Endpoint &endpoint, const Queue *unread)
{
    endpoint.phase = Phase::closed;
    if (endpoint.id)
        table()->disconnect(endpoint.id.get());
    flush_qp(endpoint);
    endpoint.eq->post_shutdown(&endpoint.fid.fid, unread);
}

void complete(Endpoint &endpoint, const void *data, std::size_t length)
{
    endpoint.phase = Phase::connected;
    endpoint.local = local_address(endpoint.id.get());
    endpoint.peer = peer_address(endpoint.id.get());
    {
        const core::SpinGuard guard(endpoint.tx_lock);
        endpoint.open_for_sends.store(true, std::memory_order_release);
        if (endpoint.limit.rate != 0)
            endpoint.apply_limit();
    }
    if (endpoint.watch)
        endpoint.start_watch();
    endpoint.eq->post_cm(FI_CONNECTED, &endpoint.fid.fid, nullptr, data, length);
}

// A negative errno as librdmacm gives it, or a reason of the specification.
int errno_of(const CmEvent &event, int otherwise)
{
    switch (event.status) {
    case -ETIMEDOUT:
        return FI_ETIMEDOUT;
    case -EHOSTUNREACH:
    case -ENETUNREACH:
        return FI_EHOSTUNREACH;
    case -ENODEV:
        return FI_ENODEV;
    default:
        return otherwise;
    }
}

void on_address(Endpoint &endpoint)
{
    const char *reached = table()->get_device_name(endpoint.id->verbs->device);
    const char *wanted = nic_domain(endpoint.domain).nic().name;
    if (std::strcmp(reached, wanted) != 0) {
        VMA_WARN(ep_ctrl, "%s is reached by RDMA device %s, and the endpoint is of %s",
                 ofi::AddressText(endpoint.peer).c_str(), reached, wanted);
        fail(endpoint, FI_EHOSTUNREACH, 0);
    } else if (table()->resolve_route(endpoint.id.get(), kResolveMs) != 0) {
        fail(endpoint, -last_error(), 0);
    }
}

void on_route(Endpoint &endpoint)
{
    rdma_conn_param param = parameters(endpoint);
    if (table()->connect(endpoint.id.get(), &param) != 0)
        fail(endpoint, -last_error(), 0);
}

void on_response(Endpoint &endpoint, const CmEvent &event)
{
    ConnectMessage message;
    if (!message.parse(event.data, event.length)) {
        VMA_WARN(ep_ctrl, "%s does not answer as this provider does: the connection is refused",
                 ofi::AddressText(endpoint.peer).c_str());
        table()->reject(endpoint.id.get(), nullptr, 0);
        return fail(endpoint, FI_ECONNREFUSED, 0);
    }
    endpoint.incoming = message;
    int error = make_ready(endpoint);
    if (error == 0 && table()->establish(endpoint.id.get()) != 0)
        error = last_error();
    if (error != 0) {
        table()->reject(endpoint.id.get(), nullptr, 0);
        return fail(endpoint, -error, 0);
    }
    complete(endpoint, message.data, message.header.length);
}

void on_reject(Endpoint &endpoint, const CmEvent &event)
{
    ConnectMessage message;
    if (message.parse(event.data, event.length))
        fail(endpoint, FI_ECONNREFUSED, event.status, message.data, message.header.length);
    else
        fail(endpoint, FI_ECONNREFUSED, event.status);
}

} // namespace

void Endpoint::on_event(CmEvent &event) noexcept
{
    if (phase == Phase::closed || phase == Phase::idle)
        return;
    switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        return on_address(*this);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return on_route(*this);
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        return on_response(*this, event);
    case RDMA_CM_EVENT_ESTABLISHED:
        if (phase == Phase::accepting)
            complete(*this, nullptr, 0);
        return;
    case RDMA_CM_EVENT_REJECTED:
        return on_reject(*this, event);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        if (phase == Phase::connected) // what Linux 6.0 and later say of a neighbour's new link address
            return on_broken("another interface has the peer's address now");
        return fail(*this, errno_of(event, FI_EHOSTUNREACH), event.status);
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return fail(*this, errno_of(event, FI_ECONNABORTED), event.status);
    case RDMA_CM_EVENT_DISCONNECTED:
        return phase == Phase::connected ? shut(*this, rx_queue) : fail(*this, FI_ECONNABORTED, event.status);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        VMA_WARN(ep_ctrl, "RDMA device %s is gone: the connection with %s is closed", nic_domain(domain).nic().name,
                 ofi::AddressText(peer).c_str());
        return phase == Phase::connected ? shut(*this, nullptr) : fail(*this, FI_ENODEV, event.status);
    default:
        return;
    }
}

void Endpoint::on_broken(const char *why) noexcept
{
    if (phase != Phase::connected)
        return;
    VMA_WARN(ep_ctrl, "the connection with %s is closed: %s", ofi::AddressText(peer).c_str(), why);
    shut(*this, nullptr);
}

void Endpoint::report_broken() noexcept
{
    const std::lock_guard guard(manager.mutex());
    on_broken(broken_why);
}

void Endpoint::close_connection() noexcept
{
    if (phase == Phase::connected)
        table()->disconnect(id.get());
    else if (phase == Phase::requested)
        table()->reject(id.get(), nullptr, 0);
    phase = Phase::closed;
    if (watch)
        manager.clear_alarm(watch->alarm);
    open_for_sends.store(false, std::memory_order_relaxed);
    id.reset();
    if (eq == nullptr)
        return;
    eq->remove_events(&fid.fid);
    eq->refs.fetch_sub(1, std::memory_order_release);
    eq = nullptr;
}

namespace {

// Made from a FI_CONNREQ event.
int take_request(Endpoint &endpoint, fid_t handle)
{
    Request *request = endpoint.manager.pending(handle);
    if (request == nullptr) {
        VMA_WARN(ep_ctrl, "the handle of an endpoint's info is no connection request that waits");
        return -FI_EINVAL;
    }
    if (request->over) {
        endpoint.manager.drop_request(*request);
        return -FI_ECONNABORTED;
    }
    endpoint.id = std::move(request->id);
    endpoint.id->context = &endpoint.handler;
    endpoint.local = local_address(endpoint.id.get());
    endpoint.peer = peer_address(endpoint.id.get());
    endpoint.responder_resources = least(endpoint.responder_resources, request->event.responder_resources);
    endpoint.initiator_depth = least(endpoint.initiator_depth, request->event.initiator_depth);
    endpoint.incoming = request->message;
    endpoint.phase = Phase::requested;
    endpoint.manager.drop_request(*request);
    return 0;
}

// Made from a passive endpoint: takes its address, and its port with it.
int take_passive(Endpoint &endpoint, fid_t handle)
{
    auto &pep = *reinterpret_cast<PassiveEndpoint *>(handle);
    if (&pep.manager != &endpoint.manager || pep.listening)
        return -FI_EINVAL;
    endpoint.local = pep.address;
    endpoint.id = std::move(pep.id);
    if (endpoint.id)
        endpoint.id->context = &endpoint.handler;
    return 0;
}

} // namespace

int Endpoint::open_connection(const fi_info &info) noexcept
{
    const ibv_device_attr &attr = nic_domain(domain).nic().attr;
    responder_resources = least(attr.max_qp_rd_atom, kMostReads);
    initiator_depth = least(attr.max_qp_init_rd_atom, kMostReads);
    if (info.handle != nullptr) {
        if (info.handle->fclass == FI_CLASS_CONNREQ)
            return take_request(*this, info.handle);
        if (info.handle->fclass != FI_CLASS_PEP)
            return -FI_EINVAL;
        if (const int error = take_passive(*this, info.handle))
            return error;
    }
    if (local.empty() && info.src_addr != nullptr && !format.read(info.src_addr, info.src_addrlen, local))
        return -FI_EINVAL;
    if (info.dest_addr != nullptr && !format.read(info.dest_addr, info.dest_addrlen, peer))
        return -FI_EINVAL;
    return 0;
}

namespace {

int check_call(const Endpoint &endpoint, const void *data, std::size_t length)
{
    if (endpoint.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    return length > kCmDataSize || (data == nullptr && length > 0) ? -FI_EINVAL : 0;
}

// fi_connect and fi_accept enable what the program has not.
int enable(Endpoint &endpoint)
{
    return endpoint.is_enabled ? 0 : endpoint.enable();
}

int start(Endpoint &endpoint)
{
    if (!endpoint.id) {
        if (const int error = endpoint.manager.create_id(endpoint.handler, endpoint.id))
            return error;
    }
    sockaddr *source = endpoint.local.empty() ? nullptr : &endpoint.local.sa;
    if (table()->resolve_addr(endpoint.id.get(), source, &endpoint.peer.sa, kResolveMs) != 0)
        return last_error();
    endpoint.phase = Phase::connecting;
    return 0;
}

int connect_ep(fid_ep *fid, const void *addr, const void *data, std::size_t length)
{
    Endpoint &endpoint = Endpoint::from(fid);
    if (const int error = check_call(endpoint, data, length))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    if (endpoint.phase != Phase::idle)
        return endpoint.phase == Phase::connected ? -FI_EISCONN : -FI_EOPBADSTATE;
    if (endpoint.eq == nullptr)
        return -FI_ENOEQ;
    ofi::Address peer = endpoint.peer;
    if (addr != nullptr && !endpoint.format.read_whole(addr, peer))
        return -FI_EINVAL;
    if (peer.empty() || peer.port() == 0)
        return -FI_EINVAL;
    endpoint.peer = peer;
    if (const int error = enable(endpoint))
        return error;
    endpoint.outgoing.set_data(data, length);
    return start(endpoint);
}

int accept_ep(fid_ep *fid, const void *data, std::size_t length)
{
    Endpoint &endpoint = Endpoint::from(fid);
    if (const int error = check_call(endpoint, data, length))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    if (endpoint.phase != Phase::requested)
        return -FI_EOPBADSTATE;
    if (endpoint.eq == nullptr)
        return -FI_ENOEQ;
    if (const int error = enable(endpoint))
        return error;
    endpoint.outgoing.set_data(data, length);
    if (const int error = make_ready(endpoint))
        return error;
    rdma_conn_param param = parameters(endpoint);
    if (table()->accept(endpoint.id.get(), &param) != 0)
        return last_error();
    endpoint.phase = Phase::accepting;
    return 0;
}

int shutdown_ep(fid_ep *fid, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(fid);
    if (flags != 0)
        return -FI_EINVAL;
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    if (endpoint.phase == Phase::closed)
        return 0;
    if (endpoint.phase != Phase::connected)
        return -FI_ENOTCONN;
    shut(endpoint, nullptr);
    return 0;
}

int setname_ep(fid_t fid, void *addr, std::size_t length)
{
    Endpoint &endpoint = Endpoint::from(fid);
    ofi::Address wanted;
    if (!endpoint.format.read(addr, length, wanted))
        return -FI_EINVAL;
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    if (endpoint.phase != Phase::idle)
        return -FI_EOPBADSTATE;
    IdPtr bound;
    if (const int error = endpoint.manager.create_id(endpoint.handler, bound))
        return error;
    if (table()->bind_addr(bound.get(), &wanted.sa) != 0)
        return last_error();
    endpoint.id = std::move(bound);
    endpoint.local = local_address(endpoint.id.get());
    return 0;
}

int getname_ep(fid_t fid, void *addr, std::size_t *length)
{
    Endpoint &endpoint = Endpoint::from(fid);
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    return endpoint.local.empty() ? -FI_EOPBADSTATE : endpoint.format.copy(endpoint.local, addr, length);
}

int getpeer_ep(fid_ep *fid, void *addr, std::size_t *length)
{
    Endpoint &endpoint = Endpoint::from(fid);
    if (const int error = check_call(endpoint, nullptr, 0))
        return error;
    const std::lock_guard guard(endpoint.manager.mutex());
    if (endpoint.phase != Phase::connected && endpoint.phase != Phase::closed)
        return -FI_ENOTCONN;
    return endpoint.format.copy(endpoint.peer, addr, length);
}

} // namespace

constinit fi_ops_cm endpoint_cm_ops = ofi::CmOps{.setname = setname_ep,
                                                 .getname = getname_ep,
                                                 .getpeer = getpeer_ep,
                                                 .connect = connect_ep,
                                                 .accept = accept_ep,
                                                 .shutdown = shutdown_ep};

} // namespace vma::verbs
