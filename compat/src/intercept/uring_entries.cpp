// SPDX-License-Identifier: BSD-2-Clause
// An allow-list: what an operation may concern is known here, or the whole process goes to the kernel. All that happens
// before the kernel has taken the entry must be right as well if it never does.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/uring_entries.hpp"
#include "compat/src/intercept/vector.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

using sock::UringHead;
using sock::UringQueue;
using sock::UringReference;

enum class Kind : std::uint8_t {
    kUnknown,
    kNothing,  // of a socket's: files, times, and what has no number yet
    kFile,     // reads, writes or changes the file behind `fd`
    kMessage,  // likewise, and may pass descriptors on
    kPoll,     // waits for it
    kTwoFiles, // splice
    kClose,
    kFiles, // registers files
    kEpollControl,
};

struct Range {
    std::uint8_t first, last;
    Kind kind;
};

// Those after IORING_OP_SENDMSG_ZC are not in the headers of all machines that this is built on.
constexpr Range kRanges[] = {
    {IORING_OP_NOP, IORING_OP_NOP, Kind::kNothing},
    {IORING_OP_READV, IORING_OP_WRITEV, Kind::kFile},
    {IORING_OP_FSYNC, IORING_OP_FSYNC, Kind::kNothing},
    {IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED, Kind::kFile},
    {IORING_OP_POLL_ADD, IORING_OP_POLL_ADD, Kind::kPoll},
    {IORING_OP_POLL_REMOVE, IORING_OP_SYNC_FILE_RANGE, Kind::kNothing},
    {IORING_OP_SENDMSG, IORING_OP_SENDMSG, Kind::kMessage},
    {IORING_OP_RECVMSG, IORING_OP_RECVMSG, Kind::kFile},
    {IORING_OP_TIMEOUT, IORING_OP_TIMEOUT_REMOVE, Kind::kNothing},
    {IORING_OP_ACCEPT, IORING_OP_ACCEPT, Kind::kFile},
    {IORING_OP_ASYNC_CANCEL, IORING_OP_LINK_TIMEOUT, Kind::kNothing},
    {IORING_OP_CONNECT, IORING_OP_CONNECT, Kind::kFile},
    {IORING_OP_FALLOCATE, IORING_OP_OPENAT, Kind::kNothing},
    {IORING_OP_CLOSE, IORING_OP_CLOSE, Kind::kClose},
    {IORING_OP_FILES_UPDATE, IORING_OP_FILES_UPDATE, Kind::kFiles},
    {IORING_OP_STATX, IORING_OP_STATX, Kind::kNothing},
    {IORING_OP_READ, IORING_OP_WRITE, Kind::kFile},
    {IORING_OP_FADVISE, IORING_OP_MADVISE, Kind::kNothing},
    {IORING_OP_SEND, IORING_OP_RECV, Kind::kFile},
    {IORING_OP_OPENAT2, IORING_OP_OPENAT2, Kind::kNothing},
    {IORING_OP_EPOLL_CTL, IORING_OP_EPOLL_CTL, Kind::kEpollControl},
    {IORING_OP_SPLICE, IORING_OP_SPLICE, Kind::kTwoFiles},
    {IORING_OP_PROVIDE_BUFFERS, IORING_OP_REMOVE_BUFFERS, Kind::kNothing},
    {IORING_OP_TEE, IORING_OP_TEE, Kind::kTwoFiles},
    {IORING_OP_SHUTDOWN, IORING_OP_SHUTDOWN, Kind::kFile},
    {IORING_OP_RENAMEAT, IORING_OP_SOCKET, Kind::kNothing}, // and MSG_RING: what it passes on is registered already
    {IORING_OP_URING_CMD, IORING_OP_SEND_ZC, Kind::kFile},
    {IORING_OP_SENDMSG_ZC, IORING_OP_SENDMSG_ZC, Kind::kMessage},
    {49, 49, Kind::kFile},    // READ_MULTISHOT
    {50, 55, Kind::kNothing}, // WAITID, FUTEX_*, FIXED_FD_INSTALL, FTRUNCATE
    {56, 58, Kind::kFile},    // BIND, LISTEN, RECV_ZC
    {59, 59, Kind::kPoll},    // EPOLL_WAIT
    {60, 61, Kind::kFile},    // READV_FIXED, WRITEV_FIXED
    {62, 62, Kind::kNothing}, // PIPE
};
static_assert(IORING_OP_SENDMSG_ZC == 48);

constexpr std::array<Kind, 256> all_kinds()
{
    std::array<Kind, 256> kinds{};
    for (const Range &range : kRanges)
        for (unsigned operation = range.first; operation <= range.last; ++operation)
            kinds[operation] = range.kind;
    return kinds;
}
constexpr std::array<Kind, 256> kKinds = all_kinds();

constexpr std::uint8_t kLinks = IOSQE_IO_LINK | IOSQE_IO_HARDLINK;

// An entry, and what those around it make of it.
struct Look {
    const UringReference &uring;
    std::uint32_t position;
    const io_uring_sqe &entry;
    bool later; // its turn may come when the number means something else
};

bool names_number(const io_uring_sqe &entry)
{
    return (entry.flags & IOSQE_FIXED_FILE) == 0;
}

void file_used(int fd, bool later)
{
    if (later)
        sock::name_for_later(fd);
    if (sock::Socket *const s = sock::lookup(fd))
        sock::pin_to_kernel(*s, "io_uring");
}

void polled(const Look &look)
{
    if (!names_number(look.entry))
        return;
    if (mux::is_epoll(look.entry.fd))
        sock::ring_seen("an io_uring waits for an epoll set");
    file_used(look.entry.fd, look.later);
}

void message_sent(const Look &look)
{
    if (names_number(look.entry))
        file_used(look.entry.fd, look.later);
    const auto *const message = reinterpret_cast<const msghdr *>(look.entry.addr);
    if (libc::faults_are_caught() && is_there_to_send(message) && message->msg_control != nullptr)
        sock::return_passed(message);
}

// Its second file is looked up by a thread of the kernel's.
void spliced(const Look &look)
{
    constexpr std::uint32_t kInIsFixed = 1U << 31; // SPLICE_F_FD_IN_FIXED
    if (names_number(look.entry))
        file_used(look.entry.fd, look.later);
    if ((look.entry.splice_flags & kInIsFixed) == 0)
        file_used(look.entry.splice_fd_in, true);
}

// On the kernel first: should it not be closed after all, it goes on there, untracked.
void closed(const Look &look)
{
    const int fd = look.entry.fd;
    if (look.entry.file_index != 0 || fd < 0)
        return; // a registered file
    if (sock::find_uring(fd))
        return sock::ring_seen("an io_uring closes one");
    if (look.later && mux::is_epoll(fd))
        sock::ring_seen("an io_uring closes an epoll set, later");
    file_used(fd, look.later);
    if (fd == STDERR_FILENO)
        config::stderr_closed();
    if (ours(fd))
        retire(fd);
}

void files_updated(const Look &look)
{
    if (look.later)
        return sock::ring_seen("an io_uring registers files, later");
    files_registered(reinterpret_cast<const int *>(look.entry.addr), look.entry.len);
}

// ---- EPOLL_CTL

// A set of our own, by its number; -1 if there is none. `made` keeps it.
int own_set(std::atomic<int> &made)
{
    if (const int fd = made.load(std::memory_order_acquire); fd > 0)
        return fd;
    const int fresh = real.epoll_create1(EPOLL_CLOEXEC);
    if (fresh < 0)
        return -1;
    const int fd = libc::make_private(fresh);
    int none = 0;
    if (made.compare_exchange_strong(none, fd, std::memory_order_acq_rel))
        return fd;
    libc::close_private(fd);
    return none;
}

// The descriptor by whose set the kernel answers the same entry with `error`, whatever is in the program's. -1: it
// can't be made sure.
int set_that_refuses(int error, int fd)
{
    if (error == EINVAL)
        return fd; // which is none
    if (error == ENOENT)
        return own_set(sock::g_urings.empty_set);
    const int full = own_set(sock::g_urings.full_set);
    epoll_event nothing = {};
    return full >= 0 && (real.epoll_ctl(full, EPOLL_CTL_ADD, fd, &nothing) == 0 || errno == EEXIST) ? full : -1;
}

void replace(const Look &look, const UringHead &by)
{
    UringHead from = {};
    memcpy(&from, static_cast<const void *>(&look.entry), sizeof from);
    look.uring.with_queue([&](UringQueue &queue) { queue.change(look.position, from, by); });
}

// False: the kernel judges the entry by itself, and finds what we have found.
bool refused(const Look &look, int error, int fd)
{
    sock::Socket *const s = sock::lookup(fd);
    if (s == nullptr || error == EFAULT)
        return false;
    const bool by_us = error == EEXIST || error == ENOENT || error == EINVAL; // perhaps
    const int set = by_us ? set_that_refuses(error, fd) : -1;
    if (set < 0) {
        sock::pin_to_kernel(*s, "io_uring");
        return false;
    }
    replace(look, {look.entry.opcode, look.entry.flags, look.entry.ioprio, set});
    return true;
}

// Only what epoll_ctl() can say: all other fields are as they are in an entry that was cleared before.
bool is_plain(const io_uring_sqe &entry)
{
    constexpr std::uint8_t kPlainFlags = kLinks | IOSQE_CQE_SKIP_SUCCESS;
    return (entry.flags & ~kPlainFlags) == 0 && entry.ioprio == 0 && entry.rw_flags == 0 && entry.buf_index == 0 &&
           entry.personality == 0 && entry.splice_fd_in == 0 && entry.fd > 0;
}

// True: it is done.
bool epoll_controlled(const Look &look)
{
    const io_uring_sqe &entry = look.entry;
    const int fd = static_cast<int>(entry.off);
    if (look.uring->only_polled)
        return false; // it is refused there
    if (look.later || look.uring->drains.load(std::memory_order_relaxed) || !is_plain(entry)) {
        sock::ring_seen("an io_uring changes an epoll set in a way of its own");
        return false;
    }
    if (!mux::is_epoll(entry.fd)) {
        file_used(fd, false); // nobody would wake who waits in that set
        return false;
    }
    if (mux::epoll_control(entry.fd, static_cast<int>(entry.len), fd, reinterpret_cast<epoll_event *>(entry.addr)) != 0)
        return refused(look, errno, fd);
    replace(look, {IORING_OP_NOP, entry.flags, entry.ioprio, entry.fd});
    return true;
}

// True: it is done, and nothing is left to the kernel but to say so.
bool look_at(const Look &look)
{
    switch (kKinds[look.entry.opcode]) {
    case Kind::kNothing:
        return false;
    case Kind::kFile:
        if (names_number(look.entry))
            file_used(look.entry.fd, look.later);
        return false;
    case Kind::kMessage:
        message_sent(look);
        return false;
    case Kind::kPoll:
        polled(look);
        return false;
    case Kind::kTwoFiles:
        spliced(look);
        return false;
    case Kind::kClose:
        closed(look);
        return false;
    case Kind::kFiles:
        files_updated(look);
        return false;
    case Kind::kEpollControl:
        return epoll_controlled(look);
    case Kind::kUnknown:
        break;
    }
    sock::ring_seen("an io_uring does what the library does not know");
    return false;
}

bool is_for_our_set(const io_uring_sqe &entry)
{
    return entry.opcode == IORING_OP_EPOLL_CTL && mux::is_epoll(entry.fd);
}

} // namespace

UringPiece look_at_entries(const UringReference &uring, std::uint32_t wanted)
{
    UringPiece piece = {};
    std::uint32_t first = 0;
    std::uint32_t claimed = 0;
    bool passed_by = false;
    bool lost = false;
    const sock::LockGuard turn(uring->turn);
    const int fd = uring->above.load(std::memory_order_relaxed) - 1;
    uring.with_queue([&](UringQueue &queue) {
        passed_by = queue.was_passed_by();
        lost = queue.is_lost();
        claimed = lost ? 0 : queue.claim(wanted, first);
    });
    if (passed_by)
        sock::ring_seen("an io_uring is entered past the library");
    if (lost) {
        sock::ring_seen("a call that hands over an io_uring's entries was left beside others");
        sock::forget_uring(fd);
    }
    bool in_chain = false;
    for (; piece.count < claimed && !piece.stopped; ++piece.count) {
        const std::uint32_t position = first + piece.count;
        io_uring_sqe entry = {};
        bool is_there = false;
        auto changed = UringQueue::Changed::kNo;
        uring.with_queue([&](UringQueue &queue) {
            changed = queue.changed(position);
            is_there = queue.read(position, entry);
        });
        if (changed == UringQueue::Changed::kElsewhere || // or what the kernel does before it would come after it
            (is_there && piece.done != piece.count && !in_chain && is_for_our_set(entry))) {
            piece.stopped = true;
            break;
        }
        if ((entry.flags & IOSQE_IO_DRAIN) != 0)
            uring->drains.store(true, std::memory_order_relaxed);
        const bool later =
            in_chain || (entry.flags & IOSQE_ASYNC) != 0 || uring->drains.load(std::memory_order_relaxed);
        in_chain = (entry.flags & kLinks) != 0;
        if (changed == UringQueue::Changed::kHere || (is_there && look_at({uring, position, entry, later})))
            ++piece.done;
    }
    if (piece.count != claimed)
        uring.with_queue([&](UringQueue &queue) { queue.give_back(claimed - piece.count); });
    return piece;
}

void entries_taken(const UringReference &uring, const UringPiece &piece, std::uint32_t taken)
{
    uring.with_queue([&](UringQueue &queue) {
        queue.end(piece.count - std::min(taken, piece.count));
        queue.restore();
    });
}

void entries_left(const UringReference &uring)
{
    uring.with_queue([](UringQueue &queue) {
        queue.leave();
        queue.restore();
    });
}

void file_registered(int fd)
{
    if (mux::is_epoll(fd))
        sock::ring_seen("an epoll set is registered with an io_uring");
    file_used(fd, false);
}

void files_registered(const int *fds, std::uint32_t count)
{
    constexpr std::uint32_t kAtOnce = 256;
    for (std::uint32_t i = 0; i < count; i += kAtOnce) {
        const std::uint32_t here = std::min(kAtOnce, count - i);
        const bool whole = libc::can_read(fds + i, here * sizeof *fds);
        for (std::uint32_t j = i; j < i + here; ++j) {
            if (!whole && !libc::can_read(fds + j, sizeof *fds))
                return;
            file_registered(fds[j]);
        }
    }
}

} // namespace vma::intercept
