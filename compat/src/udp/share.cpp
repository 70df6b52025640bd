// SPDX-License-Identifier: BSD-2-Clause
// Datagrams that came by the endpoint, are not read, and belong to every process that holds the socket
// (shared_leftovers.hpp): they lie in a row as they stood in the queue, each where a cache line begins.
#include <errno.h>
#include <fcntl.h>

#include <atomic>
#include <new>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/timeouts.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::size_t room_of(std::size_t length)
{
    return (sizeof(Queued) + length + alignof(Queued) - 1) & ~(alignof(Queued) - 1);
}

std::size_t room_of(Queue &queue)
{
    std::size_t room = 0;
    queue.each([&room](Queued &record) { room += room_of(record.length); });
    return room;
}

void put(std::uint8_t *to, Queued &record)
{
    const auto size = static_cast<std::uint32_t>(room_of(record.length));
    auto *const copy = new (to) Queued{record.length, size, record.about};
    memcpy(copy->memory(), record.bytes(), record.length);
}

} // namespace

// rx_lock held; nobody fills the queue any more.
void share_queue(Socket &s)
{
    Queue &queue = state_of(s).queue;
    if (queue.empty() || s.unread.load(std::memory_order_relaxed) != nullptr)
        return;
    SharedLeftovers *const u = make_unread(s.any_fd.load(std::memory_order_relaxed), room_of(queue));
    if (u == nullptr)
        return;
    std::size_t filled = 0;
    queue.each([u, &filled](Queued &record) {
        put(unread_room(*u) + filled, record);
        filled += room_of(record.length);
    });
    publish_unread(*u, filled);
    set_shared(s, u);
    while (queue.front() != nullptr)
        queue.pop();
    forget_queued(s);
}

// Nothing of it is believed but what was checked here: another process may write there.
bool SharedDatagram::read()
{
    if (left < sizeof(Queued))
        return false;
    memcpy(static_cast<void *>(&head), bytes - sizeof head, sizeof head);
    is_peeked = (head.size & Queued::kPeeked) != 0;
    head.size &= ~Queued::kPeeked;
    return head.length <= left - sizeof head && head.size == room_of(head.length) && head.size <= left;
}

bool SharedDatagram::look(const SharedLeftovers &u)
{
    bytes = unread_at(u, place, left) + sizeof head;
    return read();
}

bool SharedDatagram::next()
{
    place += head.size;
    bytes += head.size;
    left -= head.size;
    return read();
}

// Of any other nobody asks.
void SharedDatagram::note_peek() const
{
    if (head.length == 0)
        std::atomic_ref(reinterpret_cast<Queued *>(const_cast<std::uint8_t *>(bytes) - sizeof head)->size)
            .fetch_or(Queued::kPeeked, std::memory_order_relaxed);
}

bool SharedDatagram::take(const SharedLeftovers &u) const
{
    return take_unread(u, place, head.size);
}

// The socket takes datagrams by the kernel alone.
Socket *begin_foreign(int fd, int family, SharedLeftovers *u)
{
    track_datagram(fd, family, (libc::real.fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    Socket *const s = lookup(fd);
    if (s == nullptr || s->udp.load(std::memory_order_relaxed) == nullptr)
        return nullptr;
    read_timeouts(*s, fd);
    read_options(*s, fd);
    s->pinned = true;
    s->kernel_reason = "another process holds it too";
    set_shared(*s, u);
    s->kernel_news.store(true, std::memory_order_relaxed);
    state_of(*s).kernel_error.note(); // perhaps
    s->mode.store(Mode::kOffloaded, std::memory_order_seq_cst);
    tell_way(*s);
    return s;
}

} // namespace vma::sock::udp
