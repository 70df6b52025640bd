// SPDX-License-Identifier: BSD-2-Clause
// Connections of the simulated connection manager: the handshake, its refusals and time-outs, the end. A message that
// finds no way, or no answer, is repeated until Config::cm_timeout; a reject is sent once.
#include "contrib/lab/sim/cm.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

constexpr int kRepeats = 16;

void attempt(CmId &id);

// The other side, if a message gets there now.
CmId *hearing(const CmId &id)
{
    if (id.peer == nullptr || !reachable(*id.nic, *id.peer->nic))
        return nullptr;
    return id.peer;
}

void start(CmId &id, CmMessage::Kind kind)
{
    id.message.kind = kind;
    id.message.deadline = world().timers.now() + world().config.cm_timeout;
    attempt(id);
}

void enter_timewait(CmId &id)
{
    World &w = world();
    id.state = CmState::closed;
    w.timers.cancel(id.timer);
    id.timer = w.timers.at(w.timers.now() + w.config.timewait, [&id] {
        id.timer = {};
        tell(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    });
}

void disconnected(CmId &id, int status)
{
    if (!std::exchange(id.disconnect_told, true))
        tell(id, RDMA_CM_EVENT_DISCONNECTED, status);
}

void rejected(CmId &id, int reason, const ConnectionValues &values)
{
    forget_message(id);
    id.state = CmState::closed;
    tell(id, RDMA_CM_EVENT_REJECTED, reason, &values, kRejectData);
}

// One that waits for the other's answer hears that there will be none.
void send_reject(CmId &id, int reason, const ConnectionValues &values)
{
    CmId *peer = hearing(id);
    if (peer != nullptr && (peer->state == CmState::requesting || peer->state == CmState::requested ||
                            peer->state == CmState::replying || peer->state == CmState::responded))
        rejected(*peer, reason, values);
}

void established(CmId &passive)
{
    forget_message(passive);
    passive.state = CmState::connected;
    tell(passive, RDMA_CM_EVENT_ESTABLISHED);
}

CmId *listener_for(const Endpoint &destination)
{
    for (CmId *id : world().ids) {
        if (id->state == CmState::listening && id->source.port == destination.port &&
            (is_any(id->source) || same_ip(id->source.ip, destination.ip)))
            return id;
    }
    return nullptr;
}

void deliver_request(CmId &id)
{
    Device *device = device_of(id.destination.ip);
    if (id.peer != nullptr || device == nullptr || !reachable(*id.nic, *device))
        return; // a repetition, or lost
    CmId *listener = listener_for(id.destination);
    if (listener == nullptr)
        return rejected(id, kRejectNoListener, {});
    if (listener->backlog == 0)
        return rejected(id, kRejectConsumer, {});
    --listener->backlog;
    CmId *passive = make_id(listener->channel, listener->context, listener->ps);
    passive->passive = true;
    passive->visible = false;
    passive->listener = listener;
    passive->state = CmState::requested;
    passive->source = id.destination;
    passive->destination = id.source;
    passive->ack_timeout = id.ack_timeout;
    passive->other = id.own;
    passive->own.responder_resources = id.own.initiator_depth;
    passive->own.initiator_depth = id.own.responder_resources;
    passive->peer = &id;
    id.peer = passive;
    settle(*passive, device);
    CmEvent *event = tell(*passive, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &id.own, kRequestData);
    event->listen_id = listener;
    event->counted = listener;
}

void deliver_reply(CmId &id)
{
    CmId *active = hearing(id);
    if (active == nullptr)
        return;
    if (active->state == CmState::requesting) {
        forget_message(*active);
        active->other = id.own;
        active->state = CmState::responded;
        tell(*active, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &id.own, kReplyData);
    } else if (active->state == CmState::connected) {
        established(id); // its word was lost, and comes again
    }
}

void deliver_goodbye(CmId &id)
{
    CmId *peer = hearing(id);
    const bool gone = id.peer == nullptr;
    if (peer == nullptr && !gone)
        return;
    const bool knows = peer != nullptr && (peer->state == CmState::connected || peer->state == CmState::replying ||
                                           peer->state == CmState::leaving);
    if (knows) {
        forget_message(*peer);
        peer->state = CmState::left;
        disconnected(*peer, 0);
    } else if (gone || peer->state != CmState::left) {
        forget_message(id);
        disconnected(id, 0);
        enter_timewait(id);
    }
}

void give_up(CmId &id)
{
    const CmMessage::Kind kind = id.message.kind;
    forget_message(id);
    if (kind == CmMessage::goodbye) {
        disconnected(id, -ETIMEDOUT);
        enter_timewait(id);
    } else {
        id.state = CmState::closed;
        tell(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    }
}

void attempt(CmId &id)
{
    World &w = world();
    const Ns now = w.timers.now();
    if (now >= id.message.deadline)
        return give_up(id);
    const Ns again = std::min(now + w.config.cm_timeout / kRepeats, id.message.deadline);
    id.message.timer = w.timers.at(again, [&id] { attempt(id); });
    switch (id.message.kind) {
    case CmMessage::request:
        return deliver_request(id);
    case CmMessage::reply:
        return deliver_reply(id);
    case CmMessage::goodbye:
        return deliver_goodbye(id);
    case CmMessage::none:
        return;
    }
}

// What librdmacm and the kernel let through.
int check(const CmId &id, const rdma_conn_param *param, std::size_t data)
{
    if (param == nullptr) // needed, as the id has no QP of its own
        return EINVAL;
    const int most = id.nic->config.max_rd_atomic;
    const bool fits = (param->responder_resources == RDMA_MAX_RESP_RES || param->responder_resources <= most) &&
                      (param->initiator_depth == RDMA_MAX_INIT_DEPTH || param->initiator_depth <= most);
    return fits && param->private_data_len <= data ? 0 : EINVAL;
}

void take(CmId &id, const rdma_conn_param &param)
{
    const auto most = static_cast<std::uint8_t>(std::min(id.nic->config.max_rd_atomic, 254));
    const auto limited = [most](std::uint8_t asked, std::uint8_t all) { return asked == all ? most : asked; };
    id.own.responder_resources = limited(param.responder_resources, RDMA_MAX_RESP_RES);
    id.own.initiator_depth = limited(param.initiator_depth, RDMA_MAX_INIT_DEPTH);
    id.own.flow_control = param.flow_control;
    id.own.retry_count = std::min<std::uint8_t>(param.retry_count, 7);
    id.own.rnr_retry_count = std::min<std::uint8_t>(param.rnr_retry_count, 7);
    id.own.srq = param.srq;
    id.own.qp_num = param.qp_num & 0xffffff;
    id.own.data = {};
    if (param.private_data != nullptr)
        std::memcpy(id.own.data.data(), param.private_data, param.private_data_len);
}

} // namespace

void say_farewell(CmId &id)
{
    switch (id.state) {
    case CmState::requesting:
    case CmState::replying:
        return send_reject(id, kRejectTimeout, {});
    case CmState::requested:
    case CmState::responded:
        return send_reject(id, kRejectConsumer, {});
    case CmState::connected:
    case CmState::leaving:
        id.disconnect_told = true; // nobody is there to be told
        return deliver_goodbye(id);
    case CmState::left:
        if (CmId *peer = hearing(id); peer != nullptr && peer->state == CmState::leaving) {
            forget_message(*peer);
            disconnected(*peer, 0);
            enter_timewait(*peer);
        }
        return;
    default:
        return;
    }
}

namespace calls {

int connect(rdma_cm_id *handle, rdma_conn_param *param)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (id.state != CmState::route)
        return failed(EINVAL);
    if (const int error = check(id, param, kRequestData))
        return failed(error);
    take(id, *param);
    id.state = CmState::requesting;
    start(id, CmMessage::request);
    return 0;
}

int accept(rdma_cm_id *handle, rdma_conn_param *param)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (id.state != CmState::requested)
        return failed(EINVAL);
    if (const int error = check(id, param, kReplyData))
        return failed(error);
    take(id, *param);
    id.state = CmState::replying;
    start(id, CmMessage::reply);
    return 0;
}

int reject(rdma_cm_id *handle, const void *data, std::uint8_t size)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if ((id.state != CmState::requested && id.state != CmState::responded) || size > kRejectData)
        return failed(EINVAL);
    ConnectionValues values;
    if (size != 0)
        std::memcpy(values.data.data(), data, size);
    send_reject(id, kRejectConsumer, values);
    id.state = CmState::closed;
    return 0;
}

int establish(rdma_cm_id *handle)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (id.state != CmState::responded)
        return failed(EINVAL);
    id.state = CmState::connected;
    if (CmId *peer = hearing(id); peer != nullptr && peer->state == CmState::replying)
        established(*peer);
    return 0;
}

int disconnect(rdma_cm_id *handle)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (id.state == CmState::left) {
        say_farewell(id);
        enter_timewait(id);
        return 0;
    }
    const CmState state = id.state;
    if (state == CmState::idle || state == CmState::bound || state == CmState::resolving || state == CmState::address ||
        state == CmState::route)
        return failed(EINVAL);
    if (state != CmState::connected)
        return 0; // the kernel finds nothing to send, and is content
    id.state = CmState::leaving;
    start(id, CmMessage::goodbye);
    return 0;
}

} // namespace calls
} // namespace vma::sim
