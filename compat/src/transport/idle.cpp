// SPDX-License-Identifier: BSD-2-Clause
// Which pages may go: nobody will read what is in them, and nobody writes to them meanwhile. Of a ring that holds for
// two parts, which one side each knows without asking the other: what the sender may write to is its own, and it holds
// the lock by which it would; what the receiver has consumed and not told of, no sender writes to before it is told.
#include "compat/src/transport/idle.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/src/transport/idle_streams.hpp"

namespace vma::sock {

namespace {

constexpr std::uint64_t kWorthIt = 16384; // bytes through the ring since the last time

std::uint64_t page_size()
{
    return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The whole pages of positions [from, to), in one part or two. `give` may refuse: they are locked in memory, as the
// program wants it.
template <typename Give> void give_back(std::uint64_t ring, std::uint64_t from, std::uint64_t to, Give give)
{
    const std::uint64_t page = page_size();
    from = (from + page - 1) & ~(page - 1);
    to &= ~(page - 1);
    for (bool good = true; good && from < to;) {
        const std::uint64_t offset = from & (ring - 1);
        const std::uint64_t piece = std::min(to - from, ring - offset);
        good = give(offset, piece);
        from += piece;
    }
}

// True: it has not moved since the last look, but since the last time that pages were given back.
bool is_idle(std::uint64_t now, std::uint64_t &seen, std::uint64_t given)
{
    const bool still = now == seen;
    seen = now;
    return still && now - given >= kWorthIt;
}

// What a RETURN may want back lies between the last CREDIT and the position.
void give_back_sent(Stream &s)
{
    const std::uint64_t position = s.tx.position;
    const std::uint64_t credit = s.tx.credit.load(std::memory_order_acquire);
    if (credit > position || position - credit > s.tx.ring)
        return;
    s.idle.sent_given = position;
    give_back(s.tx.ring, position, credit + s.tx.ring, [&s](std::uint64_t offset, std::uint64_t length) {
        const fi_vma_range range = {offset, length};
        return fi_setopt(&s.endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_DISCARD), &range,
                         sizeof range) == 0;
    });
}

void give_back_read(Stream &s)
{
    const Receiver &rx = s.rx;
    const std::uint64_t consumed =
        std::min(rx.consumed.load(std::memory_order_relaxed), rx.lent_from.load(std::memory_order_relaxed));
    const std::uint64_t credited = rx.credited.load(std::memory_order_relaxed);
    s.idle.read_given = rx.consumed.load(std::memory_order_relaxed);
    if (credited < consumed && consumed - credited <= rx.ring)
        give_back(rx.ring, credited, consumed, [&rx](std::uint64_t offset, std::uint64_t length) {
            return ::madvise(const_cast<std::uint8_t *>(rx.base) + offset, length, MADV_REMOVE) == 0;
        });
}

bool is_connected(const Stream &s)
{
    // Holes in memory that a guest has would be its to delay: it stays.
    return s.endpoint != nullptr && !s.connecting && offloaded(s) && transport(s).shrinks && !s.guest &&
           s.device == &engine_device() && !s.endpoint_down.load(std::memory_order_relaxed);
}

} // namespace

// A credit is told with the poll lock or rx_lock held: none is while both are.
void look_at_idle_ring(Stream &s)
{
    IdleMarks &marks = s.idle;
    if (marks.sent_given > s.tx.position || marks.read_given > s.rx.consumed.load(std::memory_order_relaxed))
        marks = {}; // of an endpoint before
    if (is_idle(s.tx.position, marks.sent_seen, marks.sent_given) && s.tx_lock.try_lock()) {
        if (s.tx.position == marks.sent_seen && s.tx.resend_from == kNone)
            give_back_sent(s);
        unlock_tx(s);
    }
    if (is_idle(s.rx.consumed.load(std::memory_order_relaxed), marks.read_seen, marks.read_given) &&
        s.rx_lock.try_lock()) {
        engine_exclude_polling(true, ring_of(s));
        if (s.rx.leftovers == nullptr && s.rx.base != nullptr)
            give_back_read(s);
        engine_exclude_polling(false, ring_of(s));
        s.rx_lock.unlock();
    }
}

void look_at_idle_rings(std::uint32_t turns_per_round, std::uint32_t &next, IdleStreams &idle)
{
    const std::uint32_t count = pool_size();
    for (std::uint32_t n = 0; n <= count / turns_per_round && count != 0; ++n) {
        next = next + 1 < count ? next + 1 : 0;
        if (!g_sockets.noted.has(static_cast<int>(next)))
            continue;
        if (Stream *const s = stream_of(*socket_by_index(next)); s != nullptr && is_connected(*s)) {
            look_at_idle_ring(*s);
            idle.look_at(*s);
        }
    }
}

} // namespace vma::sock
