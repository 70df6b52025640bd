// SPDX-License-Identifier: BSD-2-Clause
// The device-independent half of a completion queue: completions waiting to be read, their formats, error entries. How
// completions come about, how a reader waits and who else looks at the queue is the device's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "core/fifo.hpp"
#include "core/spinlock.hpp"
#include "ofi/address.hpp"
#include "ofi/address_format.hpp"
#include "ofi/peer/cq.hpp"

namespace vma::ofi {

struct Domain;

// Of an entry with FI_EADDRNOTAVAIL: where a datagram came from that no address vector knows.
struct RawSource {
    const void *owner;
    Address address;
};

struct Completion {
    void *context = nullptr;
    std::uint64_t flags = 0;
    std::uint64_t length = 0;
    void *buffer = nullptr;
    std::uint64_t data = 0;
    const void *owner = nullptr; // the endpoint, whose entries go when it is closed
    union {
        std::uint64_t excess = 0; // of an error, olen: bytes that did not fit
        std::uint64_t tag;        // of others, in FI_CQ_FORMAT_TAGGED
    };
    int error = 0; // a positive fi_errno makes it an error entry
    int provider_error = 0;
    fi_addr_t source = FI_ADDR_NOTAVAIL; // of a received datagram
};

// Entry number 0 of `out` in the queue's format; the entry's size.
template <fi_cq_format Format>
inline std::size_t write_entry(std::byte *out, void *context, std::uint64_t flags, std::uint64_t length, void *buffer,
                               std::uint64_t data, std::uint64_t tag = 0) noexcept
{
    if constexpr (Format == FI_CQ_FORMAT_CONTEXT) {
        *reinterpret_cast<fi_cq_entry *>(out) = {context};
        return sizeof(fi_cq_entry);
    } else if constexpr (Format == FI_CQ_FORMAT_MSG) {
        *reinterpret_cast<fi_cq_msg_entry *>(out) = {context, flags, length};
        return sizeof(fi_cq_msg_entry);
    } else if constexpr (Format == FI_CQ_FORMAT_DATA) {
        *reinterpret_cast<fi_cq_data_entry *>(out) = {context, flags, length, buffer, data};
        return sizeof(fi_cq_data_entry);
    } else {
        *reinterpret_cast<fi_cq_tagged_entry *>(out) = {context, flags, length, buffer, data, tag};
        return sizeof(fi_cq_tagged_entry);
    }
}

constexpr std::size_t entry_size(fi_cq_format format) noexcept
{
    switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
        return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
        return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_TAGGED:
        return sizeof(fi_cq_tagged_entry);
    default:
        return sizeof(fi_cq_data_entry);
    }
}

struct Cq {
    fid_cq fid{}; // first
    Domain &domain;
    int (*trywait)(Cq &) noexcept = nullptr; // 0: the program may sleep on the wait descriptor; -FI_EAGAIN: read first
    fi_cq_format format = FI_CQ_FORMAT_CONTEXT;
    fi_wait_obj wait_obj = FI_WAIT_NONE;
    fi_cq_wait_cond wait_cond = FI_CQ_COND_NONE;
    bool nobody_reads = false; // it is an endpoint's with counters alone: what is in it is dropped with each progress
    std::atomic<unsigned> idle_reads{0}; // that found nothing; written with the lock held
    OwnersQueue owners;                  // with FI_PEER: nothing is ever in `entries`

    core::SpinLock lock;            // protects what follows
    core::Fifo<Completion> entries; // its limit is the queue's size: what doesn't fit waits where it comes from

    std::uint64_t armings = 0; // FI_VMA_QUEUE_COUNTERS
    std::uint64_t wakes = 0;

    core::Fifo<RawSource> raw_sources; // of such entries, in their order
    WrittenAddress last_raw_source;    // of the one that was read last

    explicit Cq(Domain &owner) noexcept : domain(owner) {}

    // Moves entries to `out`, up to the first error entry. The number moved. `sources` may be nullptr.
    template <fi_cq_format Format> std::size_t take(std::byte *&out, std::size_t count, fi_addr_t *sources) noexcept
    {
        std::size_t taken = 0;
        while (taken < count && !entries.empty() && !entries.front().error) {
            const Completion &entry = entries.front();
            out +=
                write_entry<Format>(out, entry.context, entry.flags, entry.length, entry.buffer, entry.data, entry.tag);
            if (sources)
                sources[taken] = entry.source;
            entries.pop();
            ++taken;
        }
        return taken;
    }
    // A read has found nothing: the how manieth.
    unsigned note_idle() noexcept
    {
        const unsigned now = idle_reads.load(std::memory_order_relaxed) + 1;
        idle_reads.store(now, std::memory_order_release);
        return now;
    }
    bool error_first() noexcept { return !entries.empty() && entries.front().error != 0; }

    // Of what `owner` left, nothing is read any more.
    void forget(const void *owner) noexcept
    {
        entries.erase_if([owner](const Completion &entry) { return entry.owner == owner; });
        raw_sources.erase_if([owner](const RawSource &source) { return source.owner == owner; });
    }
};

inline Cq &cq_of(fid *fid) noexcept
{
    return *reinterpret_cast<Cq *>(fid);
}
inline Cq &cq_of(fid_cq *fid) noexcept
{
    return *reinterpret_cast<Cq *>(fid);
}

// Fills what the attributes decide; -FI_EINVAL or -FI_ENOSYS for what no device of ours offers.
int init_cq(Cq &cq, const fi_cq_attr *attr, void *context) noexcept;

// FI_VMA_QUEUE_COUNTERS. The lock is taken inside. 0 or -FI_EINVAL.
int tell_counters(Cq &cq, void *argument) noexcept;

// Operations that need nothing of the device. The lock is taken inside.
int cq_control(Cq &cq, int wait_fd, int command, void *argument) noexcept; // fi_control(3)
ssize_t cq_readerr(fid_cq *fid, fi_cq_err_entry *out, std::uint64_t flags) noexcept;
const char *cq_strerror(fid_cq *fid, int provider_error, const void *data, char *out, std::size_t length) noexcept;

} // namespace vma::ofi
