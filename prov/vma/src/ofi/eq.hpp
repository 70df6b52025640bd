// SPDX-License-Identifier: BSD-2-Clause
// The event queue: control events of endpoints, domains and the program itself, in order. Reading it makes progress on
// the connections of its fabric.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "core/fd.hpp"
#include "core/mutex.hpp"
#include "ofi/fabric.hpp"
#include "ofi/info/info.hpp"

namespace vma::ofi {

struct Cq;

// What arrived before the end of a connection is read before the end is told of: ofi_rxm closes the endpoint at
// FI_SHUTDOWN, and with it would go what it has not read. No read of the queue that began before the event counts, so
// it takes two that found nothing; who reads no completions is told after kPatienceNs.
struct UnreadBefore {
    const std::atomic<unsigned> *idle_reads = nullptr; // of the endpoint's queue
    unsigned at_first = 0;
    std::uint64_t until = 0; // ns of core::monotonic_ns()

    bool holds() const noexcept;
};

struct EqEvent {
    std::uint32_t event = 0;
    bool is_error = false;
    fid_t fid = nullptr;               // whose event it is; remove_events() goes by it
    std::size_t length = 0;            // bytes of data[]
    std::unique_ptr<std::byte[]> data; // the entry with what follows it; of an error, its err_data
    fi_eq_err_entry error{};
    InfoPtr info; // of FI_CONNREQ, until the program has read it
    UnreadBefore unread;
};

struct Eq {
    fid_eq fid{}; // first
    Fabric &fabric;
    std::atomic<int> refs{0}; // what is bound to it
    fi_wait_obj wait_obj = FI_WAIT_NONE;
    bool writable = false;
    bool passive = false; // FI_VMA_PASSIVE: completion queues make the progress
    core::UniqueFd ready; // eventfd, readable while the queue holds something; none with FI_WAIT_NONE

    explicit Eq(Fabric &owner) : fabric(owner) {}

    void progress(bool wait) noexcept
    {
        if (passive)
            fabric.device->serve();
        else
            fabric.device->progress(wait);
    }

    // All may be called with endpoint, queue or CM locks held: they take the queue's lock only. 0 or -FI_ENOMEM.
    int post_event(std::uint32_t event, fid_t about, const void *entry, std::size_t length) noexcept;
    // Connection events: FI_CONNREQ (with its info), FI_CONNECTED.
    int post_cm(std::uint32_t event, fid_t about, InfoPtr info, const void *data, std::size_t length) noexcept;
    // FI_SHUTDOWN of an endpoint. `unread`: the queue in which it receives, whose entries come first; nullptr where the
    // program itself has ended the connection.
    int post_shutdown(fid_t about, const Cq *unread) noexcept;
    int post_error(fid_t about, int error, int prov_errno, const void *err_data, std::size_t length) noexcept;
    // A closing object's events are never read. The infos of FI_CONNREQ events among them.
    std::vector<InfoPtr> remove_events(fid_t about) noexcept;
    // The wait object is readable, and fi_trywait() refuses, until a read has found nothing: a peer asks for a look.
    void nudge() noexcept;
    bool is_nudged() noexcept;
    bool has_news() noexcept;

    // For eq.cpp.
    int open_ready() noexcept;
    int give_wait_fd(int &fd) noexcept; // to the program. 0 or a negative errno
    // Readable when there may be progress to be made; -1: there never is.
    int device_fd() const noexcept { return passive ? fabric.device->service_fd() : fabric.device->wait_fd(); }
    void update_ready() noexcept; // under mutex

    core::Mutex mutex;
    std::deque<EqEvent> events;                 // protected by mutex
    std::unique_ptr<std::byte[]> last_err_data; // protected by mutex: what readerr gave out, until the next read
    bool ready_set = false;                     // protected by mutex
    bool nudged = false;                        // protected by mutex
    core::UniqueFd wait_set; // likewise. Epoll: `ready` and the device's own set, once the program has asked for it

private:
    int push(EqEvent &&event) noexcept;
    int push_cm(std::uint32_t event, fid_t about, InfoPtr info, const void *data, std::size_t length,
                const UnreadBefore &unread) noexcept;
};

inline Eq &eq_of(fid_eq *fid) noexcept
{
    return *reinterpret_cast<Eq *>(fid);
}

int open_eq(fid_fabric *fabric, fi_eq_attr *attr, fid_eq **eq, void *context);
// 0 when the program may sleep on the queue's descriptor, -FI_EAGAIN when there is something to read.
int eq_trywait(Eq &eq) noexcept;

} // namespace vma::ofi
