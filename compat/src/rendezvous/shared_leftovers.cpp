// SPDX-License-Identifier: BSD-2-Clause
// The segments of unread bytes. One is removed by whoever reads its last byte, by the last process that drops it, and
// where that was killed, by the next one that opens the shared directory, if the kernel has no such socket any more.
#include "compat/src/rendezvous/shared_leftovers.hpp"

#include <errno.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/fleeting_segment.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rendezvous/owner.hpp"
#include "compat/src/rendezvous/unread_links.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMagic = 0x55414d56; // "VMAU"

struct alignas(64) Segment {
    std::uint32_t magic;
    std::uint64_t secret;
    std::atomic<std::uint64_t> length; // 0: not filled yet
    std::atomic<std::uint64_t> position;
    // How often it was handed to a process that has to find it, and how often one of those has. Neither goes back, so
    // that who reads both hears of whoever is on the way: a program that is being started is attached to nothing.
    std::atomic<std::uint32_t> handed;
    std::atomic<std::uint32_t> found;
    std::atomic<std::uint64_t> peek_place;
    std::atomic<std::int32_t> error; // behind the last byte, until it is told

    std::uint8_t *bytes() { return reinterpret_cast<std::uint8_t *>(this + 1); } // to the segment's end
};

} // namespace

struct SharedLeftovers {
    Segment *segment;
    std::uint64_t length; // as it was when we came: nobody can make us read behind the end
    UnreadName name;
    int id;
};

namespace {

Segment *attach(int id)
{
    void *const memory = ::shmat(id, nullptr, 0);
    return memory == reinterpret_cast<void *>(-1) ? nullptr : static_cast<Segment *>(memory);
}

// Behind the link that names it.
Segment *make_named(key_t key, std::size_t size, int &id)
{
    id = ::shmget(key, size, IPC_CREAT | IPC_EXCL | SHM_NORESERVE | 0600);
    return id >= 0 ? attach(id) : nullptr;
}

SharedLeftovers *describe_unread(Segment *segment, std::uint64_t length, const UnreadName &name, int id)
{
    void *const memory = malloc(sizeof(SharedLeftovers));
    if (memory == nullptr)
        ::shmdt(segment);
    return memory != nullptr ? new (memory) SharedLeftovers{segment, length, name, id} : nullptr;
}

// Two descriptors of a program that was started with one socket count twice: never more than were handed.
void count_found(Segment &segment)
{
    std::uint32_t found = segment.found.load();
    while (found != segment.handed.load() && !segment.found.compare_exchange_weak(found, found + 1)) {
    }
}

// Who was handed it by now. Nobody was on the way while something was looked at if all had found it before, and nobody
// was handed it until after.
struct Handed {
    std::uint32_t times;
    bool all_found;
};

Handed handed_by_now(const Segment &segment)
{
    const std::uint32_t found = segment.found.load(); // first: no more can have found it than were handed it
    const std::uint32_t times = segment.handed.load();
    return {times, found == times};
}

// Of a segment that we have left. True as well if it is not there any more.
bool was_handed_since(int id, const Handed &before)
{
    Segment *const segment = attach(id);
    if (segment == nullptr)
        return true;
    const bool handed = segment->handed.load() != before.times;
    ::shmdt(segment);
    return handed;
}

bool is_attached(int id, std::uint64_t by)
{
    shmid_ds about = {};
    return ::shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch > by;
}

void drop(SharedLeftovers *u)
{
    const UnreadPath path = link_path(u->name);
    const std::uint64_t secret = u->segment->secret;
    const Handed before = handed_by_now(*u->segment);
    UnreadLink link;
    ::shmdt(u->segment);
    // While its link is there nobody has removed it, and the number is its own. Another holder may have handed it on
    // and become another program since we looked.
    if (before.all_found && read_link(path, link) && link.secret == secret && !is_attached(u->id, 0) &&
        !was_handed_since(u->id, before))
        remove_unread(path, u->id);
    free(u);
}

} // namespace

SharedLeftovers *make_unread(int fd, std::size_t room)
{
    UnreadName name;
    if (!open_offers() || !name_of(fd, name))
        return nullptr;
    const std::uint64_t secret = random_cookie();
    UnreadLink link = {static_cast<key_t>(secret & INT32_MAX) | 1, secret, inode_of(fd), pid_space()};
    const UnreadPath path = link_path(name);
    const bool named = make_link(path, link);
    int id = -1;
    Segment *const segment = named ? make_named(link.key, sizeof(Segment) + room, id)
                                   : static_cast<Segment *>(make_fleeting(offers_directory(), sizeof(Segment) + room,
                                                                          id)); // for this process and its children
    if (!named || segment == nullptr)
        VMA_LOG(kWarn,
                "fd=%d: no %s for %zu unread bytes: %s; a process that gets the socket lacks them, or reads them again",
                fd, named ? "shared memory" : path.text, room, strerror(errno));
    if (segment == nullptr) {
        remove_unread(path, id);
        return nullptr;
    }
    segment->magic = kMagic;
    segment->secret = secret;
    return describe_unread(segment, 0, name, id);
}

std::uint8_t *unread_room(SharedLeftovers &u)
{
    return u.segment->bytes();
}

void publish_unread(SharedLeftovers &u, std::size_t filled, int error)
{
    u.length = filled;
    u.segment->error.store(error, std::memory_order_relaxed);
    u.segment->length.store(filled, std::memory_order_release);
}

[[VMA_AT_STARTUP]] bool any_unread()
{
    return ::access(unread_folder().text, F_OK) == 0;
}

SharedLeftovers *find_unread(int fd, bool handed)
{
    UnreadName name;
    UnreadLink link;
    shmid_ds about = {};
    if (!name_of(fd, name) || !read_link(link_path(name), link) || link.inode != inode_of(fd))
        return nullptr;
    const int id = find_segment(link, about, sizeof(Segment) + 1);
    Segment *const segment = id >= 0 ? attach(id) : nullptr;
    if (segment == nullptr)
        return nullptr;
    const bool known = segment->magic == kMagic && segment->secret == link.secret;
    if (known && handed)
        count_found(*segment);
    const std::uint64_t length =
        std::min<std::uint64_t>(segment->length.load(std::memory_order_acquire), about.shm_segsz - sizeof(Segment));
    if (known && (segment->position.load(std::memory_order_acquire) < length ||
                  segment->error.load(std::memory_order_relaxed) != 0))
        return describe_unread(segment, length, name, id);
    if (!known)
        ::shmdt(segment);
    else if (SharedLeftovers *const u = describe_unread(segment, length, name, id))
        drop(u); // it may have been left to us
    return nullptr;
}

void unread_handed(SharedLeftovers &u)
{
    u.segment->handed.fetch_add(1);
}

std::size_t unread_left(const SharedLeftovers &u)
{
    const std::uint64_t position = u.segment->position.load(std::memory_order_acquire);
    return position < u.length ? u.length - position : 0;
}

bool ends_in_error(const SharedLeftovers &u)
{
    return u.segment->error.load(std::memory_order_relaxed) != 0;
}

int take_unread_error(const SharedLeftovers &u)
{
    const int error = ends_in_error(u) ? u.segment->error.exchange(0) : 0;
    if (error != 0 && unread_left(u) == 0)
        remove_unread(link_path(u.name), u.id);
    return error;
}

namespace {

void end_if_read(const SharedLeftovers &u, std::uint64_t position, std::size_t taken)
{
    if (position == u.length && taken != 0 && !ends_in_error(u))
        remove_unread(link_path(u.name), u.id);
}

std::size_t copy_out(const std::uint8_t *from, std::size_t left, const msghdr &msg, std::size_t skip, bool only_count)
{
    std::size_t done = 0;
    for (std::size_t i = 0; i < msg.msg_iovlen && left != 0; ++i) {
        const iovec &v = msg.msg_iov[i];
        if (skip >= v.iov_len) {
            skip -= v.iov_len;
            continue;
        }
        const std::size_t n = std::min(v.iov_len - skip, left);
        if (!only_count)
            memcpy(static_cast<std::uint8_t *>(v.iov_base) + skip, from + done, n);
        skip = 0;
        left -= n;
        done += n;
    }
    return done;
}

} // namespace

std::size_t read_unread(const SharedLeftovers &u, const msghdr &msg, std::size_t skip, int flags)
{
    std::uint64_t position = u.segment->position.load(std::memory_order_acquire);
    std::size_t n = 0;
    do { // again, if another process was faster
        if (position >= u.length)
            return 0;
        n = copy_out(u.segment->bytes() + position, u.length - position, msg, skip, (flags & MSG_TRUNC) != 0);
        if ((flags & MSG_PEEK) != 0)
            return n;
    } while (!u.segment->position.compare_exchange_weak(position, position + n, std::memory_order_acq_rel));
    end_if_read(u, position + n, n);
    return n;
}

const std::uint8_t *unread_at(const SharedLeftovers &u, std::uint64_t &position, std::size_t &left)
{
    position = u.segment->position.load(std::memory_order_acquire);
    left = position < u.length ? u.length - position : 0;
    return u.segment->bytes() + (left != 0 ? position : 0);
}

bool take_unread(const SharedLeftovers &u, std::uint64_t position, std::size_t count)
{
    if (!u.segment->position.compare_exchange_strong(position, position + count, std::memory_order_acq_rel))
        return false;
    end_if_read(u, position + count, count);
    return true;
}

std::uint64_t peek_place(const SharedLeftovers &u)
{
    return u.segment->peek_place.load(std::memory_order_relaxed);
}

void set_peek_place(const SharedLeftovers &u, std::uint64_t bytes)
{
    u.segment->peek_place.store(bytes, std::memory_order_relaxed);
}

std::size_t peek_on_unread(const SharedLeftovers &u, const msghdr &msg, std::size_t skip, int flags)
{
    const std::size_t left = unread_left(u);
    const std::uint64_t place = std::min<std::uint64_t>(peek_place(u), left);
    const std::uint8_t *const from = u.segment->bytes() + (u.length - left) + place;
    const std::size_t n = copy_out(from, left - place, msg, skip, (flags & MSG_TRUNC) != 0);
    set_peek_place(u, place + n);
    return n;
}

bool is_last_with(const SharedLeftovers &u)
{
    const Handed before = handed_by_now(*u.segment);
    return before.all_found && !is_attached(u.id, 1) && u.segment->handed.load() == before.times;
}

void forsake_unread(const SharedLeftovers &u)
{
    if (is_last_with(u))
        remove_unread(link_path(u.name), u.id);
}

void leave_unread(SharedLeftovers *u)
{
    if (u != nullptr && !sandboxed())
        drop(u);
}
} // namespace vma::sock
