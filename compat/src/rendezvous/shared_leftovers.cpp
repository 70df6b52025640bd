// SPDX-License-Identifier: BSD-2-Clause
// The segments of unread bytes. One is removed by whoever reads its last byte, by the last process that drops it, and
// where that was killed, by the next one that opens the shared directory, if the kernel has no such socket any more.
#include "compat/src/rendezvous/shared_leftovers.hpp"
#include "compat/src/rendezvous/owner.hpp"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/libc/join.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock {

namespace {

constexpr std::uint32_t kMagic = 0x55414d56; // "VMAU"
constexpr std::size_t kPathMax = 400;

// A socket, for as long as this kernel runs.
struct Name {
    std::uint64_t network = 0;
    std::uint64_t cookie = 0;
};

struct Path {
    char text[kPathMax];
};

struct alignas(64) Segment {
    std::uint32_t magic;
    std::uint64_t secret;
    std::atomic<std::uint64_t> length; // 0: not filled yet
    std::atomic<std::uint64_t> position;
    std::atomic<std::int32_t> handed; // to processes that have not found it yet
    std::atomic<std::uint64_t> peek_place;
    std::atomic<std::int32_t> error; // behind the last byte, until it is told

    std::uint8_t *bytes() { return reinterpret_cast<std::uint8_t *>(this + 1); } // to the segment's end
};

} // namespace

struct SharedLeftovers {
    Segment *segment;
    std::uint64_t length; // as it was when we came: nobody can make us read behind the end
    Name name;
    int id;
};

namespace {

[[VMA_AT_STARTUP]] Path folder_path()
{
    Path path;
    char directory[kOffersPathMax];
    offers_path(directory);
    libc::join(path.text, sizeof path.text, {directory, "/unread"});
    return path;
}

Path link_path(const Name &name)
{
    Path path;
    const Path folder = folder_path();
    std::snprintf(path.text, sizeof path.text, "%.300s/%" PRIx64 "-%" PRIx64, folder.text, name.network, name.cookie);
    return path;
}

bool name_of(int fd, Name &name)
{
    socklen_t size = sizeof name.cookie;
    name.network = udp::network_of(fd);
    return libc::real.getsockopt(fd, SOL_SOCKET, SO_COOKIE, &name.cookie, &size) == 0;
}

struct Link {
    key_t key = 0;            // of the segment: it is made after the link, so that none is ever without
    std::uint64_t secret = 0; // stands in the segment as well
    std::uint64_t inode = 0;  // of the socket
    std::uint64_t space = 0;  // of the numbers of processes, where it was made: pid_space()
};

bool read_link(const Path &path, Link &link)
{
    char target[80];
    const ssize_t length = ::readlink(path.text, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return std::sscanf(target, "shm.%d.%" SCNx64 ".%" SCNu64 ".%" SCNx64, &link.key, &link.secret, &link.inode,
                       &link.space) == 4;
}

// The folder may go while it is empty.
bool make_link(const Path &path, const Link &link)
{
    char target[80];
    std::snprintf(target, sizeof target, "shm.%d.%" PRIx64 ".%" PRIu64 ".%" PRIx64, link.key, link.secret, link.inode,
                  link.space);
    int result = -1;
    for (int tries = 0; tries < 3 && result != 0; ++tries) {
        ::mkdir(folder_path().text, 0700);
        ::unlink(path.text); // of an earlier socket: cookies begin anew with the kernel
        result = ::symlink(target, path.text);
    }
    return result == 0;
}

// Its segment, of this user. -1: there is none.
int find_segment(const Link &link, shmid_ds &about)
{
    const int id = ::shmget(link.key, 0, 0);
    const bool fits = id >= 0 && ::shmctl(id, IPC_STAT, &about) == 0 && about.shm_segsz > sizeof(Segment) &&
                      about.shm_perm.uid == ::geteuid();
    return fits ? id : -1;
}

Segment *attach(int id)
{
    void *const memory = ::shmat(id, nullptr, 0);
    return memory == reinterpret_cast<void *>(-1) ? nullptr : static_cast<Segment *>(memory);
}

// What a filter of system calls may refuse is left to the next program that opens the directory.
void remove(const Path &path, int id)
{
    if (sandboxed())
        return;
    ::unlink(path.text);
    ::shmctl(id, IPC_RMID, nullptr); // its memory goes when the last process drops it
    ::rmdir(folder_path().text);     // if it is empty
}

SharedLeftovers *describe_unread(Segment *segment, std::uint64_t length, const Name &name, int id)
{
    void *const memory = malloc(sizeof(SharedLeftovers));
    if (memory == nullptr)
        ::shmdt(segment);
    return memory != nullptr ? new (memory) SharedLeftovers{segment, length, name, id} : nullptr;
}

void count_found(Segment &segment)
{
    std::int32_t handed = segment.handed.load(std::memory_order_relaxed);
    while (handed > 0 && !segment.handed.compare_exchange_weak(handed, handed - 1, std::memory_order_relaxed)) {
    } // two descriptors of a program that was started with one socket count twice
}

bool is_attached(int id, std::uint64_t by)
{
    shmid_ds about = {};
    return ::shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch > by;
}

void drop(SharedLeftovers *u)
{
    const Path path = link_path(u->name);
    const std::uint64_t secret = u->segment->secret;
    const bool handed = u->segment->handed.load(std::memory_order_relaxed) > 0;
    Link link;
    ::shmdt(u->segment);
    // While its link is there nobody has removed it, and the number is its own.
    if (!handed && read_link(path, link) && link.secret == secret && !is_attached(u->id, 0))
        remove(path, u->id);
    free(u);
}

std::uint64_t inode_of(int fd)
{
    struct stat st = {};
    return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

} // namespace

SharedLeftovers *make_unread(int fd, std::size_t room)
{
    Name name;
    if (!open_offers() || !name_of(fd, name))
        return nullptr;
    const std::uint64_t secret = random_cookie();
    Link link = {static_cast<key_t>(secret & INT32_MAX) | 1, secret, inode_of(fd), pid_space()};
    const Path path = link_path(name);
    const bool named = make_link(path, link);
    const int id =
        ::shmget(named ? link.key : IPC_PRIVATE, sizeof(Segment) + room, IPC_CREAT | IPC_EXCL | SHM_NORESERVE | 0600);
    Segment *const segment = id >= 0 ? attach(id) : nullptr;
    if (!named || segment == nullptr)
        VMA_LOG(kWarn,
                "fd=%d: no %s for %zu unread bytes: %s; a process that gets the socket lacks them, or reads them again",
                fd, named ? "shared memory" : path.text, room, strerror(errno));
    if (!named || segment == nullptr)
        remove(path, id); // it stays with this process and its children
    if (segment == nullptr)
        return nullptr;
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
    return ::access(folder_path().text, F_OK) == 0;
}

SharedLeftovers *find_unread(int fd, bool handed)
{
    Name name;
    Link link;
    shmid_ds about = {};
    if (!name_of(fd, name) || !read_link(link_path(name), link) || link.inode != inode_of(fd))
        return nullptr;
    const int id = find_segment(link, about);
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
    u.segment->handed.fetch_add(1, std::memory_order_relaxed);
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
        remove(link_path(u.name), u.id);
    return error;
}

namespace {

void end_if_read(const SharedLeftovers &u, std::uint64_t position, std::size_t taken)
{
    if (position == u.length && taken != 0 && !ends_in_error(u))
        remove(link_path(u.name), u.id);
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
    return u.segment->handed.load(std::memory_order_relaxed) <= 0 && !is_attached(u.id, 1);
}

void forsake_unread(const SharedLeftovers &u)
{
    if (is_last_with(u))
        remove(link_path(u.name), u.id);
}

void leave_unread(SharedLeftovers *u)
{
    if (u != nullptr && !sandboxed())
        drop(u);
}

// ---- what the dead left

namespace {

// The tables of sockets of this network namespace: a socket that only waits in a message is there, one that nobody can
// get any more has no inode.
bool kernel_lists(const char *table, std::uint64_t inode, bool &readable)
{
    FILE *const file = libc::real.fopen(table, "re");
    if (file == nullptr)
        return false;
    readable = true;
    char line[512];
    bool found = false;
    while (!found && ::fgets(line, sizeof line, file) != nullptr) {
        std::uint64_t listed = 0;
        found = std::sscanf(line, " %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64, &listed) == 1 && listed == inode;
    }
    libc::real.fclose(file);
    return found;
}

// In another network namespace: some process has it open.
bool holds(const char *process, std::uint64_t inode)
{
    char path[kPathMax];
    char target[64];
    char wanted[64];
    std::snprintf(path, sizeof path, "/proc/%.20s/fd", process);
    std::snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    DIR *const descriptors = ::opendir(path);
    if (descriptors == nullptr)
        return false;
    bool found = false;
    while (const dirent *const entry = found ? nullptr : ::readdir(descriptors)) {
        const ssize_t length = ::readlinkat(::dirfd(descriptors), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    ::closedir(descriptors);
    return found;
}

bool somebody_holds(std::uint64_t inode)
{
    DIR *const processes = ::opendir("/proc");
    if (processes == nullptr)
        return true;
    bool found = false;
    while (const dirent *const entry = found ? nullptr : ::readdir(processes))
        found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && holds(entry->d_name, inode);
    ::closedir(processes);
    return found;
}

bool may_live(std::uint64_t network, const Link &link, const Path &path)
{
    bool readable = false;
    if (network != udp::network_of_thread()) // of another container /proc doesn't show the processes
        return somebody_holds(link.inode) || (link.space != pid_space() && !is_old(AT_FDCWD, path.text));
    bool found = false;
    for (const char *const table : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6",
                                    "/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"})
        found = found || kernel_lists(table, link.inode, readable);
    return found || !readable;
}

// `id`: its segment's, if there is one.
bool is_left_by_the_dead(const Path &path, std::uint64_t network, int &id)
{
    shmid_ds about = {};
    Link link;
    if (!read_link(path, link))
        return errno != ENOENT;
    id = find_segment(link, about);
    return (id < 0 || about.shm_nattch == 0) && !may_live(network, link, path);
}

} // namespace

void remove_unread_of_the_dead()
{
    DIR *const folder = ::opendir(folder_path().text);
    if (folder == nullptr)
        return;
    while (const dirent *const entry = ::readdir(folder)) {
        Name name;
        int id = -1;
        if (std::sscanf(entry->d_name, "%" SCNx64 "-%" SCNx64, &name.network, &name.cookie) != 2)
            continue;
        const Path path = link_path(name);
        if (is_left_by_the_dead(path, name.network, id))
            remove(path, id);
    }
    ::closedir(folder);
    ::rmdir(folder_path().text);
}

} // namespace vma::sock
