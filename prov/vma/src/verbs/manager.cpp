// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/manager.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "verbs/clock.hpp"
#include "verbs/domain.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/list.hpp"
#include "verbs/nic.hpp"
#include "verbs/pep.hpp"
#include "verbs/queue.hpp"
#include "verbs/srx.hpp"

namespace vma::ofi {

constinit const Device kVerbsDevice = {verbs::kFabricName, verbs::list_infos, verbs::Manager::open,
                                       verbs::open_drivers};

} // namespace vma::ofi

namespace vma::verbs {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr int kEventsAtOnce = 256; // sources, before a reader gets what they brought

} // namespace

int last_error() noexcept
{
    return errno != 0 ? -errno : -FI_EOTHER;
}

std::unique_ptr<ofi::DeviceFabric> Manager::open(ofi::Fabric &fabric, int *error) noexcept
{
    *error = -FI_ENODEV;
    if (!may_have_devices() || table() == nullptr) {
        VMA_WARN(fabric, "this host has no RDMA device");
        return nullptr;
    }
    std::unique_ptr<Manager> manager(new (std::nothrow) Manager(fabric));
    *error = manager ? manager->open_channel() : -FI_ENOMEM;
    if (*error != 0)
        return nullptr;
    return manager;
}

int Manager::open_channel() noexcept
{
    epoll_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    channel_ = table()->create_event_channel();
    channel_source_ = {this, [](void *object) noexcept { static_cast<Manager *>(object)->read_channel(); }};
    if (epoll_ && channel_ != nullptr && core::set_nonblocking(channel_->fd) && watch(channel_source_, channel_->fd))
        return 0;
    const int error = last_error();
    VMA_WARN(fabric, "cannot open a fabric of RDMA devices: %s", std::strerror(-error));
    return error;
}

Manager::~Manager()
{
    for (Request *request : requests_)
        delete request;
    if (channel_ != nullptr)
        table()->destroy_event_channel(channel_);
}

// One source at a time, since each may end any other.
void Manager::progress(bool wait) noexcept
{
    std::unique_lock guard(mutex_, std::defer_lock);
    if (wait)
        guard.lock();
    else if (!guard.try_lock())
        return;
    if (timer_set_ != UINT64_MAX && now_ns() >= timer_set_)
        ring_alarms();
    for (int i = 0; i < kEventsAtOnce; ++i) {
        epoll_event event{};
        if (core::kernel::epoll_wait(epoll_.get(), &event, 1, 0) != 1)
            return;
        const EventSource &source = *static_cast<EventSource *>(event.data.ptr);
        source.on_ready(source.object);
    }
}

void Manager::read_channel() noexcept
{
    rdma_cm_event *raw = nullptr;
    if (table()->get_cm_event(channel_, &raw) != 0)
        return;
    CmEvent event{};
    event.type = raw->event;
    event.status = raw->status;
    event.id = raw->id;
    event.responder_resources = raw->param.conn.responder_resources;
    event.initiator_depth = raw->param.conn.initiator_depth;
    if (raw->param.conn.private_data != nullptr) {
        event.length = std::min<std::size_t>(raw->param.conn.private_data_len, sizeof event.data);
        std::memcpy(event.data, raw->param.conn.private_data, event.length);
    }
    const rdma_cm_id *owner = raw->event == RDMA_CM_EVENT_CONNECT_REQUEST ? raw->listen_id : raw->id;
    VMA_DEBUG(ep_ctrl, "%s, status %d", table()->event_str(raw->event), raw->status);
    const CmHandler *handler = static_cast<const CmHandler *>(owner->context);
    table()->ack_cm_event(raw);
    if (handler != nullptr)
        handler->handle(handler->object, event);
}

int Manager::create_id(CmHandler &handler, IdPtr &id) noexcept
{
    rdma_cm_id *raw = nullptr;
    if (table()->create_id(channel_, &raw, &handler, RDMA_PS_TCP) != 0)
        return last_error();
    id.reset(raw);
    return 0;
}

bool Manager::watch(EventSource &source, int fd) noexcept
{
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = &source;
    return core::kernel::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &interest) == 0;
}

void Manager::unwatch(int fd) noexcept
{
    core::kernel::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

int Manager::open_timer() noexcept
{
    if (timer_)
        return 0;
    core::UniqueFd timer =
        core::make_fd([] { return core::kernel::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
    timer_source_ = {this, [](void *object) noexcept { static_cast<Manager *>(object)->ring_alarms(); }};
    if (!timer || !watch(timer_source_, timer.get()))
        return last_error();
    timer_ = std::move(timer);
    return 0;
}

void Manager::set_alarm(Alarm &alarm, std::uint64_t due) noexcept
{
    alarms_.add(alarm, due, now_ns());
    if (due < timer_set_)
        set_timer();
}

void Manager::clear_alarm(Alarm &alarm) noexcept
{
    alarms_.remove(alarm); // the descriptor wakes somebody for nothing, once
}

void Manager::ring_alarms() noexcept
{
    timer_set_ = 0; // for all of them once, when they are done
    alarms_.advance(now_ns(), [](Timer &timer) noexcept {
        const Alarm &alarm = static_cast<Alarm &>(timer);
        alarm.call(alarm.object);
    });
    set_timer();
}

// For the first alarm. A descriptor that was readable is so no longer (timerfd_settime(2)).
void Manager::set_timer() noexcept
{
    const std::uint64_t due = alarms_.next();
    itimerspec when{};
    if (due != UINT64_MAX) {
        const std::uint64_t now = now_ns();
        const std::uint64_t left = due > now ? due - now : 1; // 0 would switch it off
        when.it_value = {static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    }
    core::kernel::timerfd_settime(timer_.get(), 0, &when, nullptr);
    timer_set_ = due;
}

Request *Manager::add_request(CmEvent &event, const ConnectMessage &message, PassiveEndpoint &pep) noexcept
{
    auto *request = new (std::nothrow) Request;
    if (request == nullptr)
        return nullptr;
    request->handle.fclass = FI_CLASS_CONNREQ;
    request->id.reset(event.id);
    request->pep = &pep;
    request->event = event;
    request->message = message;
    // Whatever comes now, a rejection by time-out or a disconnection, says that the peer waits no longer.
    request->handler = {request, [](void *object, CmEvent &) noexcept { static_cast<Request *>(object)->over = true; }};
    event.id->context = &request->handler;
    requests_.insert(request);
    return request;
}

Request *Manager::pending(fid_t handle) noexcept
{
    Request &request = Request::from(handle);
    return requests_.contains(&request) ? &request : nullptr;
}

void Manager::drop_request(Request &request) noexcept
{
    requests_.erase(&request);
    delete &request;
}

void Manager::leave_requests(PassiveEndpoint &pep) noexcept
{
    for (Request *request : requests_) {
        if (request->pep == &pep)
            request->pep = nullptr;
    }
}

int Manager::domain(ofi::Domain &domain, const fi_info &info) noexcept
{
    return open_nic_domain(*this, domain, info);
}

int Manager::passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept
{
    return open_passive_endpoint(*this, info, pep, context);
}

int Manager::endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept
{
    return open_endpoint(domain, info, ep, context);
}

int Manager::shared_receive(ofi::Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept
{
    return open_srx(domain, attr, ep, context);
}

int Manager::completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    return open_cq(domain, attr, cq, context);
}

} // namespace vma::verbs
