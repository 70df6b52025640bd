// SPDX-License-Identifier: BSD-2-Clause
// Event channels of the simulated connection manager, and ids from their making to their end.
#include "contrib/lab/sim/cm.hpp"

#include <algorithm>

namespace vma::sim {

CmId *make_id(rdma_event_channel *channel, void *context, rdma_port_space space)
{
    World &w = world();
    auto *made = new CmId;
    static_cast<rdma_cm_id &>(*made) = {};
    made->channel = channel;
    made->context = context;
    made->ps = space;
    made->qp_type = IBV_QPT_RC;
    made->psn = (w.next_key * 2654435761U) & 0xffffff; // different for all, the same in each run
    ++w.next_key;
    w.ids.push_back(made);
    return made;
}

CmEvent *tell(CmId &id, rdma_cm_event_type type, int status, const ConnectionValues *values, std::size_t size)
{
    auto *event = new CmEvent;
    static_cast<rdma_cm_event &>(*event) = {};
    event->id = &id;
    event->event = type;
    event->status = status;
    event->counted = &id;
    if (values != nullptr) {
        rdma_conn_param &param = event->param.conn;
        event->data = values->data;
        param.private_data = event->data.data();
        param.private_data_len = static_cast<std::uint8_t>(size);
        param.responder_resources = values->initiator_depth; // seen from the other side
        param.initiator_depth = values->responder_resources;
        param.flow_control = values->flow_control;
        param.retry_count = values->retry_count;
        param.rnr_retry_count = values->rnr_retry_count;
        param.srq = values->srq;
        param.qp_num = values->qp_num;
    }
    of(id.channel)->events.push(event);
    return event;
}

void forget_message(CmId &id)
{
    world().timers.cancel(id.message.timer);
    id.message = {};
}

void discard(CmId &id)
{
    World &w = world();
    forget_message(id);
    w.timers.cancel(id.timer);
    of(id.channel)->events.remove([&id](CmEvent *event) {
        if (event->counted != &id && event->id != &id)
            return false;
        delete event;
        return true;
    });
    if (id.peer != nullptr)
        id.peer->peer = nullptr;
    std::erase(w.ids, &id);
    delete &id;
}

void cm_device_removed(Device &device)
{
    for (CmId *id : world().ids) {
        if (id->nic != &device || id->state == CmState::removed)
            continue;
        forget_message(*id);
        world().timers.cancel(id->timer);
        id->state = CmState::removed;
        tell(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
    }
}

void cm_peers_replaced(const Device &device)
{
    for (CmId *id : world().ids) {
        if (id->nic == &device && id->state == CmState::connected)
            tell(*id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
    }
}

void cm_reset()
{
    World &w = world();
    while (!w.ids.empty())
        discard(*w.ids.back());
    for (CmChannel *channel : w.cm_channels)
        delete channel;
    w.cm_channels.clear();
}

namespace {

// Requests that nobody has read yet go with their listener.
void drop_unread_requests(CmId &listener)
{
    auto &ids = world().ids;
    for (;;) {
        const auto unread = std::find_if(ids.begin(), ids.end(),
                                         [&](const CmId *id) { return id->listener == &listener && !id->visible; });
        if (unread == ids.end())
            return;
        say_farewell(**unread);
        discard(**unread);
    }
}

} // namespace

namespace calls {

rdma_event_channel *create_event_channel()
{
    const std::lock_guard guard(world().mutex);
    auto *made = new CmChannel;
    made->fd = made->events.fd();
    world().cm_channels.insert(made);
    return made;
}

void destroy_event_channel(rdma_event_channel *channel)
{
    const std::lock_guard guard(world().mutex);
    CmChannel *gone = of(channel);
    gone->events.remove([](CmEvent *event) {
        delete event;
        return true;
    });
    world().cm_channels.erase(gone);
    delete gone;
}

int create_id(rdma_event_channel *channel, rdma_cm_id **id, void *context, rdma_port_space space)
{
    const std::lock_guard guard(world().mutex);
    // Not simulated: ids that wait in each call (no channel), and datagrams by way of the CM.
    if (channel == nullptr || space != RDMA_PS_TCP)
        return failed(EINVAL);
    *id = make_id(channel, context, space);
    return 0;
}

int destroy_id(rdma_cm_id *handle)
{
    std::unique_lock lock(world().mutex);
    CmId *id = of(handle);
    drop_unread_requests(*id);
    say_farewell(*id);
    id->state = CmState::closed;
    wait_acknowledged(lock, "rdma_destroy_id", [id] { return id->acknowledged == id->reported; });
    discard(*id);
    return 0;
}

int migrate_id(rdma_cm_id *handle, rdma_event_channel *channel)
{
    std::unique_lock lock(world().mutex);
    CmId *id = of(handle);
    if (channel == nullptr)
        return failed(EINVAL);
    wait_acknowledged(lock, "rdma_migrate_id", [id] { return id->acknowledged == id->reported; });
    std::vector<CmEvent *> moved;
    of(id->channel)->events.remove([&](CmEvent *event) {
        if (event->counted != id)
            return false;
        moved.push_back(event);
        return true;
    });
    id->channel = channel;
    for (CmEvent *event : moved)
        of(channel)->events.push(event);
    return 0;
}

int get_cm_event(rdma_event_channel *channel, rdma_cm_event **event)
{
    const bool taken = of(channel)->events.take(world().mutex, [event](CmEvent *next) {
        ++world().cm_unacked;
        ++next->counted->reported;
        if (next->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            CmId &fresh = *of(next->id);
            fresh.visible = true;
            fresh.listener = nullptr;
            ++next->counted->backlog;
        }
        *event = next;
    });
    return taken ? 0 : -1;
}

int ack_cm_event(rdma_cm_event *event)
{
    const std::lock_guard guard(world().mutex);
    if (event == nullptr)
        return failed(EINVAL);
    auto *done = static_cast<CmEvent *>(event);
    ++done->counted->acknowledged;
    --world().cm_unacked;
    world().acknowledged.notify_all();
    delete done;
    return 0;
}

} // namespace calls
} // namespace vma::sim
