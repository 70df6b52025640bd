// SPDX-License-Identifier: BSD-2-Clause
// What is written to the capture's ring: one record a message, or several of a long one. By any thread, at the same
// time.
#include "compat/src/stats/capture.hpp"

#include <string.h>
#include <time.h>

#include <algorithm>

#include "compat/src/libc/fault.hpp"
#include "compat/src/stats/count.hpp"

namespace vma::stats {

constinit Capture g_capture;

namespace {

// The ring stays mapped as long as there is one of these.
class Use
{
public:
    explicit Use(CaptureRing &ring) : ring_(ring)
    {
        ring_.users.fetch_add(1, std::memory_order_seq_cst);
        header_ = ring_.header.load(std::memory_order_seq_cst);
    }
    ~Use() { ring_.users.fetch_sub(1, std::memory_order_release); }
    Use(const Use &) = delete;
    Use &operator=(const Use &) = delete;
    CaptureHeader *header() const { return header_; }

private:
    CaptureRing &ring_;
    CaptureHeader *header_;
};

// Whether the ring has room up to `end`. What the listener says it has taken stands on a line that it writes all the
// time, so it is read only where what it said before does not do.
bool has_room(CaptureRing &ring, const CaptureHeader &header, std::uint64_t end)
{
    if (end - ring.taken.load(std::memory_order_acquire) <= ring.size) [[likely]]
        return true;
    const std::uint64_t taken = __atomic_load_n(&header.taken, __ATOMIC_ACQUIRE);
    ring.taken.store(taken, std::memory_order_release);
    return end - taken <= ring.size;
}

// Nobody else writes to it until its size is written. nullptr: there is no room.
CaptureRecord *claim(CaptureRing &ring, CaptureHeader &header, std::uint32_t size)
{
    std::uint64_t at = ring.claimed.load(std::memory_order_relaxed);
    do {
        if (!has_room(ring, header, at + size)) {
            __atomic_fetch_add(&header.dropped, 1, __ATOMIC_RELAXED);
            return nullptr;
        }
    } while (!ring.claimed.compare_exchange_weak(at, at + size, std::memory_order_relaxed));
    auto *const bytes = reinterpret_cast<std::uint8_t *>(&header) + kCaptureStart;
    return reinterpret_cast<CaptureRecord *>(bytes + (at & (ring.size - 1)));
}

// Bytes that were copied: memory of the program's may be gone by now, but for the moment after the look.
std::uint32_t copy_parts(std::uint8_t *out, const iovec *parts, std::size_t skip, std::uint32_t wanted)
{
    std::uint32_t done = 0;
    for (; done < wanted; ++parts) {
        if (skip >= parts->iov_len) {
            skip -= parts->iov_len;
            continue;
        }
        const std::size_t piece = std::min<std::size_t>(parts->iov_len - skip, wanted - done);
        const auto *const from = static_cast<const std::uint8_t *>(parts->iov_base) + skip;
        if (!libc::can_read(from, piece))
            break;
        memcpy(out + done, from, piece);
        done += static_cast<std::uint32_t>(piece);
        skip = 0;
    }
    return done;
}

void write_ends(CaptureRecord &record, const Facts &f, const CaptureEnds *ends)
{
    if (ends == nullptr) {
        memcpy(record.local, f.local, sizeof record.local);
        memcpy(record.peer, f.peer, sizeof record.peer);
        record.local_port = get(f.local_port);
        record.peer_port = get(f.peer_port);
        return;
    }
    memcpy(record.local, &ends->local, sizeof record.local);
    memcpy(record.peer, &ends->peer, sizeof record.peer);
    record.local_port = ends->local_port;
    record.peer_port = ends->peer_port;
}

std::uint64_t time_of_day()
{
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t bytes_sent(const Slot &slot)
{
    return get(slot.now.tx.bytes) + get(slot.now.tx.os_bytes);
}

std::uint64_t bytes_received(const Slot &slot)
{
    return get(slot.now.rx.bytes) + get(slot.now.rx.os_bytes);
}

struct Message {
    const Slot &slot;
    const iovec *parts;
    std::size_t skip;
    std::size_t length;
    std::size_t there;
    bool out;
    const CaptureEnds *ends;
};

std::uint16_t flags_of(const Message &m)
{
    const std::uint16_t way = m.out ? std::uint16_t{kCaptureOut} : std::uint16_t{0};
    const bool udp = m.slot.facts.protocol == IPPROTO_UDP;
    return udp ? static_cast<std::uint16_t>(way | kCaptureUdp) : way;
}

// From `done` on, `length` bytes.
void write_record(CaptureRing &ring, CaptureHeader &header, const Message &m, std::size_t done, std::uint32_t length)
{
    const Facts &f = m.slot.facts;
    const std::size_t there = m.there > done ? m.there - done : 0;
    const auto wanted = static_cast<std::uint32_t>(std::min({std::size_t{length}, there, std::size_t{ring.most}}));
    const std::uint32_t size = capture_record_size(wanted);
    CaptureRecord *const record = claim(ring, header, size);
    if (record == nullptr)
        return;
    record->time_ns = time_of_day();
    record->length = length;
    record->flags = flags_of(m);
    record->way = static_cast<std::uint8_t>(get(f.way));
    record->ring = static_cast<std::uint8_t>(get(f.ring));
    record->before = (m.out ? bytes_sent(m.slot) : bytes_received(m.slot)) + done;
    record->other = m.out ? bytes_received(m.slot) : bytes_sent(m.slot);
    write_ends(*record, f, m.ends);
    record->fd = get(f.fd);
    record->use = get(f.use);
    record->thread = this_thread();
    record->copied = copy_parts(reinterpret_cast<std::uint8_t *>(record + 1), m.parts, m.skip + done, wanted);
    __atomic_store_n(&record->size, size, __ATOMIC_RELEASE);
}

void capture(const Message &m)
{
    CaptureRing &ring = g_capture.ring;
    const Use use(ring);
    if (use.header() == nullptr)
        return;
    std::size_t done = 0;
    do { // a datagram may have no bytes
        const auto piece = static_cast<std::uint32_t>(std::min<std::size_t>(m.length - done, kMostPayload));
        write_record(ring, *use.header(), m, done, piece);
        done += piece;
    } while (done < m.length);
}

} // namespace

void capture_sent(const Slot &slot, const iovec *parts, std::size_t skip, std::size_t length, std::size_t there,
                  const CaptureEnds *ends)
{
    capture({slot, parts, skip, length, there, true, ends});
}

void capture_received(const Slot &slot, const iovec *parts, std::size_t skip, std::size_t length, std::size_t there,
                      const CaptureEnds *ends)
{
    capture({slot, parts, skip, length, there, false, ends});
}

void capture_sent(const Slot &slot, const void *bytes, std::size_t length)
{
    const iovec part = {const_cast<void *>(bytes), length};
    capture({slot, &part, 0, length, length, true, nullptr});
}

void capture_received(const Slot &slot, const void *bytes, std::size_t length)
{
    const iovec part = {const_cast<void *>(bytes), length};
    capture({slot, &part, 0, length, length, false, nullptr});
}

} // namespace vma::stats
