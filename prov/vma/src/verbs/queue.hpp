// SPDX-License-Identifier: BSD-2-Clause
// The completion queue of the verbs device: one queue of the device, whose entries go straight into the reader's
// buffer. Entries that nobody asked for yet, and errors, wait in ofi::Cq's list.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "core/fd.hpp"
#include "ofi/cntr.hpp"
#include "ofi/cq.hpp"
#include "rdma/fi_ext_vma.h"
#include "verbs/table.hpp"

namespace vma::verbs {

struct Endpoint;
struct StampedWc;

// Marks the number of a receive among the work requests of a queue pair.
inline constexpr std::uint64_t kReceiveBit = UINT64_C(1) << 63;

// Whether completions that wait to be read keep who asks from sleeping.
enum class Entries { count, pass };

struct Queue : ofi::Cq {
    explicit Queue(ofi::Domain &owner) noexcept : Cq(owner) {}
    ~Queue();
    // `with_times`: completions have the time at which the device made them. 0 or a negative fi_errno.
    int open(std::size_t size, bool with_times) noexcept;

    // All below: with `lock` held, if they don't say otherwise.

    // Room in the device's queue for all that an endpoint may have under way. 0 or a negative fi_errno.
    int reserve(std::size_t count) noexcept;
    void release(std::size_t count) noexcept { reserved -= count; }
    void add(Endpoint &endpoint, std::uint32_t qp_num) noexcept;
    void remove(std::uint32_t qp_num) noexcept;

    // `Wc` is what the device's entries are read as: ibv_wc, or StampedWc where the queue is `stamped`.
    template <fi_cq_format Format, typename Wc>
    static ssize_t read(fid_cq *fid, void *buffer, std::size_t count) noexcept;
    // Reads nothing: what the device has goes to the list.
    bool drain() noexcept;                     // whether there was anything
    bool drain_device() noexcept;              // likewise, without what comes by rings
    void mind_fast(std::size_t room) noexcept; // fast_receive.cpp
    void push(const ofi::Completion &completion) noexcept;
    // The same, and takes the lock; reports broken endpoints.
    void progress() noexcept;
    // Whether a sleeper would miss nothing. After `true` the wait descriptor becomes readable with the next completion.
    // Who waits for a counter passes by entries that wait to be read, but not by what has come just now.
    bool arm(Entries unread = Entries::count) noexcept;
    void disarm() noexcept;
    // Tells connection management about endpoints whose queue pairs broke. Takes the lock itself.
    void report_broken() noexcept;
    // An operation was refused that is due then, in ns of now_ns(). Takes no lock.
    void note_due(std::uint64_t when) noexcept;

    ofi::ProgressSource source() noexcept;
    int wait_fd() const noexcept { return channel->fd; }
    int moderate(const fi_vma_moderation *wanted) noexcept; // 0 or a negative fi_errno

    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_cq_ex *stamped = nullptr; // the same queue, if completions have times
    std::size_t reserved = 0;
    std::unordered_map<std::uint32_t, Endpoint *> by_qp;
    std::uint32_t last_qp = 0; // of the endpoint that was looked up last
    Endpoint *last_endpoint = nullptr;
    std::unordered_map<const void *, unsigned> shared; // contexts of receives that complete here, and their endpoints
    Endpoint *broken = nullptr;                        // linked through Endpoint::broken_next
    Endpoint *reporting = nullptr;                     // fi_close() of it waits
    core::UniqueFd signal;                             // eventfd of fi_cq_signal()
    std::atomic<std::uint64_t> due{UINT64_MAX};        // of what was refused, the first; UINT64_MAX: nothing was
    std::vector<Endpoint *> fast;                      // with a short-message ring
    unsigned turns = 0;                                // of the device and of rings
    bool armed = false;

private:
    int open_device(std::size_t size, bool with_times) noexcept;
    int ask(int count, ibv_wc *wc) noexcept { return ibv_poll_cq(cq, count, wc); }
    int ask(int count, StampedWc *wc) noexcept;
    template <typename Wc> bool drain_as() noexcept;
    template <fi_cq_format Format, typename Wc> std::size_t poll(std::byte *&out, std::size_t room) noexcept;
    template <fi_cq_format Format> std::size_t poll_fast(std::byte *&out, std::size_t room) noexcept;
    template <fi_cq_format Format, typename Wc> bool take_in(const Wc &wc, std::byte *&out, bool direct) noexcept;
    template <fi_cq_format Format, typename Wc>
    bool take_note(const Wc &wc, Endpoint &endpoint, std::byte *&out, bool direct) noexcept;
    template <fi_cq_format Format> bool give(const ofi::Completion &entry, std::byte *&out, bool direct) noexcept;
    Endpoint *find(std::uint32_t qp_num) noexcept;
};

inline Queue &queue_of(fid_cq *fid) noexcept
{
    return static_cast<Queue &>(ofi::cq_of(fid));
}

// The calls that read a queue (queue_read.cpp).
fi_ops_cq *cq_ops(const Queue &queue) noexcept;
int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept;

} // namespace vma::verbs
