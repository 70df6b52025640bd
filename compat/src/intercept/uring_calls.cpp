// SPDX-License-Identifier: BSD-2-Clause
// io_uring by syscall(), as libuv and Rust's crates use it: what they hand over is looked at before the kernel takes it
// (uring_entries.hpp). Whatever can't be followed takes all sockets of the process to the kernel (table/uring.hpp).
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/uring_calls.hpp"
#include "compat/src/intercept/uring_entries.hpp"

#include <linux/io_uring.h>
#include <sys/syscall.h>

#include "compat/src/config/log.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

using Arguments = long[6];

// Of io_uring_enter().
constexpr int kWanted = 1;
constexpr int kLeast = 2; // how many completions it waits for
constexpr int kFlags = 3;

constexpr unsigned kKnownFlags = IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP | IORING_ENTER_SQ_WAIT |
                                 IORING_ENTER_EXT_ARG | 1U << 5 | 1U << 6 |
                                 1U << 7; // ABS_TIMER, EXT_ARG_REG, NO_IOWAIT

// Of io_uring_register()'s operations: IORING_REGISTER_USE_REGISTERED_RING.
constexpr unsigned kByPlace = 1U << 31;

long call(long number, const Arguments &a)
{
    using Direct = long (*)(long, long, long, long, long, long, long);
    return libc::by_kernel(reinterpret_cast<Direct>(real.syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}

// Another process's, or one that was set up past us; not a call that only asks whether there is io_uring. Where one is
// in use already another thread may still be giving sockets back.
void look_for_others(const char *how)
{
    const KeepErrno keep;
    if (!sock::sandboxed() && (sock::ring_in_use() || sock::finds_ring()))
        sock::ring_seen(how);
}

// The number is none of a descriptor (IORING_REGISTER_RING_FDS), so it isn't known whether we read it.
void by_place(const char *how)
{
    const KeepErrno keep;
    if (!sock::sandboxed())
        sock::ring_seen(how);
}

// As a call of syscall() hands over.
long by_syscall(const void *how, std::uint32_t count, bool whole)
{
    const Arguments &a = *static_cast<const Arguments *>(how);
    if (whole)
        return call(SYS_io_uring_enter, {a[0], count, a[kLeast], a[kFlags], a[4], a[5]});
    return call(SYS_io_uring_enter, {a[0], count, 0, 0, 0, 0});
}

// What one call claims, so that a handler that jumps out of it, or ends its thread, doesn't leave the claim.
class Claim
{
public:
    explicit Claim(const sock::UringReference &uring) : uring_(uring) {}
    Claim(const Claim &) = delete;
    Claim &operator=(const Claim &) = delete;

    UringPiece look(std::uint32_t wanted)
    {
        const KeepErrno keep;
        const libc::Stretch both;
        const UringPiece piece = look_at_entries(uring_, wanted);
        open_ = true;
        if (piece.count != 0 && !uring_->proven.load(std::memory_order_relaxed)) [[unlikely]]
            sock::prove_uring(uring_);
        return piece;
    }
    void settle(const UringPiece &piece, long taken)
    {
        const KeepErrno keep;
        const libc::Stretch both;
        entries_taken(uring_, piece, taken > 0 ? static_cast<std::uint32_t>(taken) : 0);
        open_ = false;
    }
    void leave()
    {
        const libc::Stretch both;
        if (open_)
            entries_left(uring_);
        open_ = false;
    }

private:
    const sock::UringReference uring_;
    bool open_ = false;
};

long enter_read_uring(const sock::UringReference &uring, const Arguments &a)
{
    const bool waits = (static_cast<unsigned>(a[kFlags]) & IORING_ENTER_GETEVENTS) != 0;
    return hand_over_in_pieces(uring, static_cast<int>(a[0]), static_cast<std::uint32_t>(a[kWanted]),
                               waits ? static_cast<std::uint32_t>(a[kLeast]) : 0, {by_syscall, &a});
}

struct FilesUpdate { // both kinds begin so
    std::uint32_t offset;
    std::uint32_t reserved;
    std::uint64_t fds;
};

struct FilesUpdate2 : FilesUpdate {
    std::uint64_t tags;
    std::uint32_t count;
    std::uint32_t reserved2;
};

struct Files2 {
    std::uint32_t count;
    std::uint32_t flags;
    std::uint64_t reserved;
    std::uint64_t fds;
    std::uint64_t tags;
};

const int *array_at(std::uint64_t address)
{
    return reinterpret_cast<const int *>(address);
}

template <typename What> const What *read_argument(const Arguments &a)
{
    const auto *const what = reinterpret_cast<const What *>(a[2]);
    return libc::can_read(what, sizeof *what) ? what : nullptr;
}

void registers_files(unsigned operation, const Arguments &a)
{
    const auto count = static_cast<std::uint32_t>(a[3]);
    if (operation == IORING_REGISTER_FILES)
        return files_registered(reinterpret_cast<const int *>(a[2]), count);
    if (operation == IORING_REGISTER_FILES_UPDATE) {
        if (const auto *const update = read_argument<FilesUpdate>(a))
            files_registered(array_at(update->fds), count);
    } else if (operation == IORING_REGISTER_FILES2) {
        if (const auto *const files = read_argument<Files2>(a))
            files_registered(array_at(files->fds), files->count);
    } else if (const auto *const update = read_argument<FilesUpdate2>(a)) {
        files_registered(array_at(update->fds), update->count);
    }
}

bool registers_nothing_of_sockets(unsigned operation)
{
    switch (operation) {
    case IORING_REGISTER_BUFFERS:
    case IORING_UNREGISTER_BUFFERS:
    case IORING_UNREGISTER_FILES:
    case IORING_REGISTER_EVENTFD:
    case IORING_UNREGISTER_EVENTFD:
    case IORING_REGISTER_EVENTFD_ASYNC:
    case IORING_REGISTER_PROBE:
    case IORING_REGISTER_PERSONALITY:
    case IORING_UNREGISTER_PERSONALITY:
    case IORING_REGISTER_BUFFERS2:
    case IORING_REGISTER_BUFFERS_UPDATE:
    case IORING_REGISTER_IOWQ_AFF:
    case IORING_UNREGISTER_IOWQ_AFF:
    case IORING_REGISTER_IOWQ_MAX_WORKERS:
    case IORING_REGISTER_PBUF_RING:
    case IORING_UNREGISTER_PBUF_RING:
    case IORING_REGISTER_SYNC_CANCEL:
    case IORING_REGISTER_FILE_ALLOC_RANGE:
    case 26: // PBUF_STATUS, and NAPI, CLOCK, CLONE_BUFFERS
    case 27:
    case 28:
    case 29:
    case 30:
        return true;
    default:
        return false;
    }
}

} // namespace

// As in the kernel there is no waiting if less is handed over than was asked for.
long hand_over_in_pieces(const sock::UringReference &uring, int fd, std::uint32_t wanted, std::uint32_t least,
                         const HandOver &hand)
{
    std::uint32_t total = 0;
    Claim claim(uring);
    const libc::WhenLeft<Claim, &Claim::leave> left(claim);
    for (;;) {
        const UringPiece piece = claim.look(wanted - total);
        if (piece.count == 0 && !sock::find_uring(fd)) [[unlikely]] // forgotten meanwhile
            return total != 0 ? static_cast<long>(total) : hand.call(hand.how, wanted, true);
        const bool all = total + piece.count == wanted;
        // What was changed for the kernel is not to stay so for as long as it waits.
        const bool apart = all && piece.done != 0 && least > piece.done;
        const long taken = hand.call(hand.how, piece.count, all && !apart);
        claim.settle(piece, taken);
        if (taken < 0)
            return total != 0 ? static_cast<long>(total) : taken;
        total += static_cast<std::uint32_t>(taken);
        if (apart && total == wanted) {
            const KeepErrno keep;
            hand.call(hand.how, 0, true);
        }
        if (!piece.stopped || static_cast<std::uint32_t>(taken) != piece.count || piece.count == 0)
            return static_cast<long>(total);
    }
}

bool uring_made(int fd, const io_uring_params &made, const void *site)
{
    const char *const why =
        libc::in_vfork_child() ? "io_uring_setup (a child of vfork())" : sock::read_uring(fd, made, site);
    if (why != nullptr) {
        sock::ring_seen(why);
        return false;
    }
    number_tracked(fd);
    VMA_LOG(kDebug, "fd=%d: an io_uring whose submissions are read: sockets that it takes go to the kernel", fd);
    if (sock::rings_forbid())
        sock::return_before_ring();
    return true;
}

long set_up_uring(const Arguments &a, const void *caller)
{
    let_loads_end();
    const sock::RingComesOrGoes comes;
    const long result = call(SYS_io_uring_setup, a);
    if (result < 0)
        return result;
    const KeepErrno keep;
    const int fd = static_cast<int>(result);
    number_given(fd);
    if (sock::sandboxed())
        return result;
    uring_made(fd, *reinterpret_cast<const io_uring_params *>(a[1]), caller); // the kernel has written it
    return result;
}

long enter_uring(const Arguments &a)
{
    const auto flags = static_cast<unsigned>(a[kFlags]);
    if ((flags & IORING_ENTER_REGISTERED_RING) != 0) {
        by_place("io_uring_enter (a place among those that are registered)");
        return call(SYS_io_uring_enter, a);
    }
    const sock::UringReference uring = sock::find_uring(static_cast<int>(a[0]));
    if (!uring) {
        look_for_others("io_uring_enter");
        return call(SYS_io_uring_enter, a);
    }
    const bool known = (flags & ~kKnownFlags) == 0 && !libc::in_vfork_child();
    if (known && !uring->inherited.load(std::memory_order_relaxed)) {
        if (static_cast<std::uint32_t>(a[kWanted]) != 0)
            return enter_read_uring(uring, a);
    } else {
        const KeepErrno keep;
        sock::ring_seen("an io_uring is entered in a way that the library does not follow");
    }
    return call(SYS_io_uring_enter, a);
}

long register_with_uring(const Arguments &a)
{
    const auto operation = static_cast<unsigned>(a[1]);
    const bool at_place = (operation & kByPlace) != 0;
    bool is_unknown = at_place;
    const sock::UringReference uring = at_place ? sock::UringReference() : sock::find_uring(static_cast<int>(a[0]));
    if (at_place) {
        by_place("io_uring_register (a place among those that are registered)");
    } else if (!uring) {
        look_for_others("io_uring_register");
    } else {
        const KeepErrno keep;
        if (uring->inherited.load(std::memory_order_relaxed) || libc::in_vfork_child())
            sock::ring_seen("io_uring_register (an io_uring of the parent's)");
        else if (operation == IORING_REGISTER_FILES || operation == IORING_REGISTER_FILES_UPDATE ||
                 operation == IORING_REGISTER_FILES2 || operation == IORING_REGISTER_FILES_UPDATE2)
            registers_files(operation, a);
        else if (!registers_nothing_of_sockets(operation)) {
            is_unknown = true;
            sock::ring_seen("io_uring_register (what the library does not know)");
        }
    }
    if (!is_unknown)
        return call(SYS_io_uring_register, a);
    const libc::Stretch both; // a handler may jump out of the call
    const long result = call(SYS_io_uring_register, a);
    if (result >= 0) {
        const KeepErrno keep;
        sock::forget_urings(); // our mappings may be of memory that it uses no more (IORING_REGISTER_RESIZE_RINGS)
    }
    return result;
}

} // namespace vma::intercept
