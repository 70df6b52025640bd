// SPDX-License-Identifier: BSD-2-Clause
// The receiving half of an endpoint: it consumes the slots that the peer published in our segment and carries out what
// they say. Every word of a slot is copied and checked first; a lie ends the connection.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>

#include "local/cm/link_segments.hpp"
#include "local/layout.hpp"
#include "local/msg/slots.hpp"
#include "local/rxqueue.hpp"
#include "ofi/cq.hpp"

namespace vma::ofi {
struct Cntr;
}

namespace vma::local {

class Endpoint;
struct Queue;

enum class Consumed {
    done,
    later, // not now: no receive is posted, the queue is full, or there is more of a long copy to do
    lie,   // the peer broke the rules
};

// Everything is protected by queue->lock.
struct Receiver {
    SlotReader slots;
    std::byte *region = nullptr;
    std::uint64_t region_length = 0;
    std::uint64_t region_used = 0; // by writes that were more than a slot's payload
    void *context = nullptr;       // op_context of writes to the region
    ofi::Cntr *remote_write_counter = nullptr;
    std::atomic<bool> open{false}; // slots may be consumed: the peer is attached and has kept the rules
    bool ended = false;            // the peer will publish nothing more
    bool flushed = false;
    bool ack_due = false; // a consumed slot wants its writer to be woken
    bool guest = false;   // it is another user's: only what stays in the segment
    bool slack = false;   // there is time to see whether the writer waits for slots

    Queue *queue = nullptr;
    RxQueue *receives = nullptr;
    ofi::Cntr *receive_counter = nullptr;
    ofi::Cntr *remote_read_counter = nullptr;
    Endpoint *endpoint = nullptr;
    std::byte *bounce = nullptr;
    OwnSegment segment;
    bool keeps_segment = false; // FI_OPT_VMA_KEEP_REGION

    // A message that takes more than one step.
    struct Current {
        bool active = false;
        std::uint64_t total = 0; // bytes of the message
        std::uint64_t done = 0;  // bytes of it that were looked at
        RxEntry entry{};
    } current;

    // 0 or a negative fi_errno.
    int create(std::uint64_t region_bytes, std::shared_ptr<LinkSegments> kept) noexcept;

    // A write to the region; the bytes are in place when it returns true. False: it lies.
    bool apply_region(const SlotHeader &header, std::uint64_t &length) noexcept
    {
        if (header.op == SlotOp::region_inline) {
            length = header.length;
            if (length > kSlotPayload || header.addr > region_length || length > region_length - header.addr)
                return false;
            copy_small(region + header.addr, slots.payload(), length);
            return true;
        }
        Direct direct;
        std::memcpy(&direct, slots.payload(), sizeof direct);
        length = direct.length;
        if (header.addr > region_length || length > region_length - header.addr)
            return false;
        region_used = std::max(region_used, header.addr + length);
        return true;
    }

    // Carries out the slot in front, and leaves completions in the queue. `later` leaves the slot where it is.
    Consumed consume(const SlotHeader &header) noexcept;

    // Errors for all that is posted here and will not come any more.
    void flush(int error) noexcept;

private:
    using Handler = Consumed (Receiver::*)(const SlotHeader &) noexcept;
    static const Handler kHandlers[];

    Consumed on_lie(const SlotHeader &header) noexcept;
    Consumed on_send_inline(const SlotHeader &header) noexcept;
    Consumed on_send_bounce(const SlotHeader &header) noexcept;
    Consumed on_send_segment(const SlotHeader &header) noexcept;
    Consumed on_send_pull(const SlotHeader &header) noexcept;
    Consumed on_region(const SlotHeader &header) noexcept;
    Consumed on_write_inline(const SlotHeader &header) noexcept;
    Consumed on_write_bounce(const SlotHeader &header) noexcept;
    Consumed on_write_note(const SlotHeader &header) noexcept;
    Consumed on_read_bounce(const SlotHeader &header) noexcept;
    Consumed on_read_note(const SlotHeader &header) noexcept;
    Consumed on_key_query(const SlotHeader &header) noexcept;

    template <typename Payload> Payload payload() const noexcept
    {
        Payload copy;
        std::memcpy(&copy, slots.payload(), sizeof copy);
        return copy;
    }
    Consumed deliver(const SlotHeader &header, const std::byte *from, std::uint64_t length) noexcept;
    void count_read(std::uint64_t key) noexcept;
    Consumed registered_written(const SlotHeader &header, std::uint64_t key, int error, std::uint64_t length) noexcept;
    Consumed remote_written(const SlotHeader &header, int error, std::uint64_t length, void *op_context) noexcept;
    bool start(std::uint64_t total) noexcept;
    void finish(const SlotHeader &header, int error, int provider_error) noexcept;
    void answer(const SlotHeader &header, int error) noexcept;
    bool queue_full() const noexcept;
};

} // namespace vma::local
