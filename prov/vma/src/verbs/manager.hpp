// SPDX-License-Identifier: BSD-2-Clause
// The verbs device's part of a fabric: the event channel of librdmacm and who hears of its events. It has no thread.
// Whoever reads an event queue (or, rarely, a completion queue) makes it progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>

#include "core/fd.hpp"
#include "core/mutex.hpp"
#include "ofi/fabric.hpp"
#include "verbs/retries.hpp"
#include "verbs/table.hpp"
#include "verbs/wire.hpp"
#include "vma/wheel.hpp"

namespace vma::verbs {

// A copy of an event, so that it can be acknowledged before anything is done: rdma_destroy_id() waits for that.
struct CmEvent {
    rdma_cm_event_type type;
    int status;
    rdma_cm_id *id;
    std::uint8_t responder_resources;
    std::uint8_t initiator_depth;
    std::size_t length;
    std::uint8_t data[256];
};

// What the context of an rdma_cm_id points to. Called with the manager's mutex held.
struct CmHandler {
    void *object = nullptr;
    void (*handle)(void *object, CmEvent &event) noexcept = nullptr;
};

// Something with a descriptor in the manager's epoll set. Called with the manager's mutex held; may end itself.
struct EventSource {
    void *object = nullptr;
    void (*on_ready)(void *object) noexcept = nullptr;
};

// Something to be done at a time. Called with the manager's mutex held, once; may set itself again.
struct Alarm : Timer {
    void *object = nullptr;
    void (*call)(void *object) noexcept = nullptr;
};

struct IdDeleter {
    void operator()(rdma_cm_id *id) const noexcept { table()->destroy_id(id); }
};
using IdPtr = std::unique_ptr<rdma_cm_id, IdDeleter>;

struct PassiveEndpoint;

// A connection request that no endpoint has taken yet: the handle in the info of FI_CONNREQ.
struct Request {
    fid handle{}; // first
    CmHandler handler;
    IdPtr id;
    PassiveEndpoint *pep = nullptr; // nullptr once that is closed
    bool over = false;              // the peer has given up
    CmEvent event{};
    ConnectMessage message; // of the peer

    static Request &from(fid_t handle) noexcept { return *reinterpret_cast<Request *>(handle); }
};

class Manager final : public ofi::DeviceFabric
{
public:
    explicit Manager(ofi::Fabric &fabric) noexcept : fabric_(fabric) {}
    ~Manager() override;
    static std::unique_ptr<ofi::DeviceFabric> open(ofi::Fabric &fabric, int *error) noexcept;

    void progress(bool wait) noexcept override;
    int wait_fd() const noexcept override { return epoll_.get(); }
    int domain(ofi::Domain &domain, const fi_info &info) noexcept override;
    int passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept override;
    int endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept override;
    int shared_receive(ofi::Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept override;
    int completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept override;

    ofi::Fabric &fabric() const noexcept { return fabric_; }
    core::Mutex &mutex() noexcept { return mutex_; }
    const Retries &retries() const noexcept { return retries_; }

    // All below with the mutex held.

    // A new id whose events go to `handler`. 0 or a negative fi_errno.
    int create_id(CmHandler &handler, IdPtr &id) noexcept;
    bool watch(EventSource &source, int fd) noexcept;
    void unwatch(int fd) noexcept;

    // What wakes sleepers for alarms; made for the first one. 0 or a negative fi_errno.
    int open_timer() noexcept;
    // `due` in ns of now_ns(). After open_timer(). One that is set is moved.
    void set_alarm(Alarm &alarm, std::uint64_t due) noexcept;
    void clear_alarm(Alarm &alarm) noexcept;

    // A request becomes the manager's until it is taken or dropped.
    Request *add_request(CmEvent &event, const ConnectMessage &message, PassiveEndpoint &pep) noexcept;
    Request *pending(fid_t handle) noexcept; // nullptr unless it is one
    void drop_request(Request &request) noexcept;
    // A closing passive endpoint: requests that the program has seen live on without it.
    void leave_requests(PassiveEndpoint &pep) noexcept;

private:
    int open_channel() noexcept;
    void read_channel() noexcept;
    void ring_alarms() noexcept;
    void set_timer() noexcept;

    ofi::Fabric &fabric_;
    const Retries retries_ = read_retries();
    core::Mutex mutex_;
    core::UniqueFd epoll_;
    rdma_event_channel *channel_ = nullptr;
    EventSource channel_source_;
    Wheel alarms_;
    core::UniqueFd timer_; // timerfd
    EventSource timer_source_;
    std::uint64_t timer_set_ = UINT64_MAX; // when it fires; UINT64_MAX: never
    std::unordered_set<Request *> requests_;
};

inline Manager &manager_of(ofi::Fabric &fabric) noexcept
{
    return static_cast<Manager &>(*fabric.device);
}

// The fi_errno of a librdmacm call that returned -1 just now, negative.
int last_error() noexcept;

} // namespace vma::verbs
