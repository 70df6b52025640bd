// SPDX-License-Identifier: BSD-2-Clause
// liburing's functions that hand over entries. Those that are written are looked at (uring_entries.hpp), and then the
// real function is given a copy of the io_uring that says of exactly these that they are there: one that another thread
// or a handler adds meanwhile is the next call's, which looks at it.
//
// What waits for some time doesn't tell how many entries were taken where nothing comes. So these are handed over
// before, by a system call of ours, and the real function waits with none.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/liburing.hpp"
#include "compat/src/intercept/uring_calls.hpp"

#include <sys/syscall.h>

#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

// Of the kernel's features.
constexpr std::uint32_t kMinTimeout = 1U << 15;   // IORING_FEAT_MIN_TIMEOUT
constexpr std::uint32_t kAfterWaitReg = 1U << 16; // IORING_FEAT_RW_ATTR

// Has `count` entries for the kernel, and never more.
class Copy
{
public:
    Copy(const LiburingUring &uring, std::uint32_t count) : uring_(uring), tail_(count)
    {
        uring_.submissions.head = &head_;
        uring_.submissions.tail = &tail_;
        uring_.submissions.published = uring_.submissions.written = count;
    }
    Copy(const Copy &) = delete;
    Copy &operator=(const Copy &) = delete;

    LiburingUring *get() { return &uring_; }

private:
    LiburingUring uring_;
    std::uint32_t head_ = 0;
    std::uint32_t tail_;
};

// As liburing does it: what is written is the kernel's to take. How many that are.
std::uint32_t publish(LiburingUring &uring)
{
    LiburingQueue &queue = uring.submissions;
    const std::uint32_t tail = queue.written;
    if (queue.published != tail) {
        queue.published = tail;
        std::atomic_ref(*queue.tail).store(tail, std::memory_order_release);
    }
    return tail - std::atomic_ref(*queue.head).load(std::memory_order_acquire);
}

// Without all else that the program's call does. Negative: the error.
long hand_over_alone(const LiburingUring &uring, std::uint32_t count)
{
    const KeepErrno keep;
    const long taken = libc::by_kernel(real.syscall(SYS_io_uring_enter, uring.fd, count, 0, 0, nullptr, 0UL));
    return taken >= 0 ? taken : -errno;
}

// ---- what returns how many were taken

// The program's call, but for the io_uring.
template <typename Call> struct Submission {
    LiburingUring &uring;
    Call &call;

    static long hand_over(const void *how, std::uint32_t count, bool whole)
    {
        const auto &self = *static_cast<const Submission *>(how);
        if (!whole)
            return hand_over_alone(self.uring, count);
        Copy copy(self.uring, count);
        return libc::by_kernel(self.call(copy.get()));
    }
};

// `least`: how many completions it waits for.
template <typename Call> int submit(const Met &met, LiburingUring *uring, unsigned least, Call call)
{
    if (!met.read) [[unlikely]]
        return libc::by_kernel(call(uring));
    const Submission<Call> submission = {*uring, call};
    const std::uint32_t wanted = publish(*uring);
    if (wanted == 0)
        return static_cast<int>(Submission<Call>::hand_over(&submission, 0, true));
    return static_cast<int>(
        hand_over_in_pieces(met.read, uring->fd, wanted, least, {Submission<Call>::hand_over, &submission}));
}

// ---- what returns a completion

long alone(const void *how, std::uint32_t count, bool)
{
    return hand_over_alone(*static_cast<const LiburingUring *>(how), count);
}

bool has_completion(const LiburingUring &uring)
{
    const auto &queue = uring.completions;
    return *queue.head != std::atomic_ref(*queue.tail).load(std::memory_order_acquire);
}

// What liburing's loop says of the entries.
struct Told {
    int result; // the first call's: how many were taken, or the error
    bool all;   // were taken, and none is left
};

// A call that has no time hands over until all are taken, or a completion was there before.
Told hand_over_first(const sock::UringReference &read, const LiburingUring &uring, std::uint32_t wanted, bool timed)
{
    Told told = {0, wanted == 0};
    bool again = wanted != 0;
    for (bool first = true; again; first = false) {
        const bool had_one = has_completion(uring);
        const long taken = hand_over_in_pieces(read, uring.fd, wanted, 0, {alone, &uring});
        if (first || (taken < 0 && told.result == 0))
            told.result = static_cast<int>(taken);
        if (taken > 0)
            wanted -= static_cast<std::uint32_t>(taken);
        told.all = taken >= 0 && wanted == 0;
        again = taken > 0 && wanted != 0 && !had_one && !timed;
    }
    return told;
}

// The program's call, with nothing to hand over. (Not inlined: so the copy is not on the stack while entries are.)
template <typename Call> [[gnu::noinline]] int with_none(const LiburingUring &uring, unsigned least, const Call &call)
{
    Copy copy(uring, 0);
    return libc::by_kernel(call(copy.get(), least));
}

// As liburing, which doesn't wait where not all were taken. Its call that hands over and waits says how many were taken
// also where a signal ends the wait, and waits once more if it has no time; unless a completion was there before.
template <typename Call>
int submit_then_wait(const sock::UringReference &read, LiburingUring &uring, std::uint32_t wanted, unsigned least,
                     bool timed, Call call)
{
    const bool had_one = has_completion(uring);
    const Told told = hand_over_first(read, uring, wanted, timed);
    int found = with_none(uring, told.all ? least : 0, call);
    if (found == -EINTR && wanted != 0 && told.all && !had_one && !timed)
        found = with_none(uring, least, call);
    if (wanted == 0)
        return found;
    if (told.result < 0)
        return told.result;
    if (had_one)
        return 0;
    return told.result == 0 && timed && !has_completion(uring) ? -ETIME : told.result;
}

template <typename Call>
int submit_and_wait(const Met &met, LiburingUring *uring, unsigned least, bool timed, Call call)
{
    if (!met.read) [[unlikely]]
        return libc::by_kernel(call(uring, least));
    return submit_then_wait(met.read, *uring, publish(*uring), least, timed, call);
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

// -EINVAL where there is no such function: what programs take for an older kernel.
VMA_EXPORT int io_uring_submit(LiburingUring *uring)
{
    const Met met = VMA_MEET_USED(io_uring_submit, uring);
    auto *const theirs = met.behind.as(&io_uring_submit);
    return theirs != nullptr ? submit(met, uring, 0, theirs) : -EINVAL;
}

VMA_EXPORT int io_uring_submit_and_wait(LiburingUring *uring, unsigned least)
{
    const Met met = VMA_MEET_USED(io_uring_submit_and_wait, uring);
    auto *const theirs = met.behind.as(&io_uring_submit_and_wait);
    if (theirs == nullptr)
        return -EINVAL;
    return submit(met, uring, least, [=](LiburingUring *their_uring) { return theirs(their_uring, least); });
}

VMA_EXPORT int io_uring_submit_and_get_events(LiburingUring *uring)
{
    const Met met = VMA_MEET_USED(io_uring_submit_and_get_events, uring);
    auto *const theirs = met.behind.as(&io_uring_submit_and_get_events);
    return theirs != nullptr ? submit(met, uring, 0, theirs) : -EINVAL;
}

VMA_EXPORT int io_uring_submit_and_wait_timeout(LiburingUring *uring, void *completion, unsigned least, void *time,
                                                void *mask)
{
    const Met met = VMA_MEET_USED(io_uring_submit_and_wait_timeout, uring);
    auto *const theirs = met.behind.as(&io_uring_submit_and_wait_timeout);
    if (theirs == nullptr)
        return -EINVAL;
    return submit_and_wait(met, uring, least, time != nullptr, [=](LiburingUring *their_uring, unsigned their_least) {
        return theirs(their_uring, completion, their_least, time, mask);
    });
}

// A kernel without it is told of by the real function, before anything is handed over: so it is given nothing.
VMA_EXPORT int io_uring_submit_and_wait_min_timeout(LiburingUring *uring, void *completion, unsigned least, void *time,
                                                    unsigned microseconds, void *mask)
{
    const Met met = VMA_MEET_USED(io_uring_submit_and_wait_min_timeout, uring);
    auto *const theirs = met.behind.as(&io_uring_submit_and_wait_min_timeout);
    if (theirs == nullptr)
        return -EINVAL;
    const auto call = [=](LiburingUring *their_uring, unsigned their_least) {
        return theirs(their_uring, completion, their_least, time, microseconds, mask);
    };
    if (met.read && (uring->features & kMinTimeout) == 0) [[unlikely]]
        return with_none(*uring, least, call);
    return submit_and_wait(met, uring, least, time != nullptr, call);
}

// Linux 6.13 has it, which no feature tells of; before, the call that would hand over fails as a whole. The next
// release's feature is asked for instead.
VMA_EXPORT int io_uring_submit_and_wait_reg(LiburingUring *uring, void *completion, unsigned least, int place)
{
    Met met = VMA_MEET_USED(io_uring_submit_and_wait_reg, uring);
    auto *const theirs = met.behind.as(&io_uring_submit_and_wait_reg);
    if (theirs == nullptr)
        return -EINVAL;
    if (met.read && (uring->features & kAfterWaitReg) == 0) [[unlikely]] {
        const KeepErrno keep;
        sock::ring_seen("io_uring_submit_and_wait_reg (on a kernel before 6.14)");
        met.read = {};
    }
    return submit_and_wait(met, uring, least, true, [=](LiburingUring *their_uring, unsigned their_least) {
        return theirs(their_uring, completion, their_least, place);
    });
}

// What liburing's header waits by, with `wanted` 0.
VMA_EXPORT int __io_uring_get_cqe(LiburingUring *uring, void *completion, unsigned wanted, unsigned least, void *mask)
{
    const Met met = wanted == 0 ? VMA_MEET(__io_uring_get_cqe, uring) : VMA_MEET_USED(__io_uring_get_cqe, uring);
    auto *const theirs = met.behind.as(&__io_uring_get_cqe);
    if (theirs == nullptr)
        return -EINVAL;
    if (wanted == 0 || !met.read)
        return libc::by_kernel(theirs(uring, completion, wanted, least, mask));
    return submit_then_wait(met.read, *uring, wanted, least, false,
                            [=](LiburingUring *their_uring, unsigned their_least) {
                                return theirs(their_uring, completion, 0, their_least, mask);
                            });
}
