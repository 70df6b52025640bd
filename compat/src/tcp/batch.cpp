// SPDX-License-Identifier: BSD-2-Clause
// recvmmsg() and sendmmsg(): one message after the other, and what the kernel alone can move in one call of its own.
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

#include <algorithm>

#include "compat/src/base/sandboxed.hpp"
#include "compat/src/libc/critical.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr unsigned kMostMessages = IOV_MAX; // the kernel's limit
constexpr long long kSecond = 1'000'000'000;

// Another thread has closed its last descriptor between two messages: what is done so far is what the call has done.
bool is_another(const Socket &s, std::uint32_t generation)
{
    return s.generation.load(std::memory_order_acquire) != generation;
}

// The timeout of recvmmsg(), which is looked at after each message only and gives back what is left.
class Remaining
{
public:
    explicit Remaining(timespec *left) : left_(left), last_(left != nullptr ? now_ns() : 0) {}
    bool used_up()
    {
        if (left_ == nullptr)
            return false;
        const long long now = now_ns();
        const long long after = std::max(left_->tv_sec * kSecond + left_->tv_nsec - (now - last_), 0LL);
        *left_ = {static_cast<time_t>(after / kSecond), static_cast<long>(after % kSecond)};
        last_ = now;
        return after == 0;
    }

private:
    timespec *const left_;
    long long last_;
};

// What ends a call that has taken messages is told by the next one, as recvmmsg() does for any protocol: also that a
// buffer of the program's was no good. Of a stream poll() tells of it meanwhile, and a receive only behind all bytes.
void leave_for_next_call(Socket &s, int error)
{
    if (error != EFAULT)
        return keep_error(s, error);
    owe_error(s, error);
    if (!protocol(s).messages)
        note_kernel_events(s, POLLERR);
}

// An error that is pending ends recvmmsg() before it looks for bytes, as the kernel's do_recvmmsg() does, and is over
// then. A receive of a stream tells it behind them, so nobody has asked yet.
int error_of_stream(Socket &s, int fd)
{
    int error = 0;
    socklen_t size = sizeof error;
    const bool is_known = get_option(s, fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0;
    return is_known ? error : 0;
}

} // namespace

int receive_messages(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout)
{
    if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= kSecond)) {
        errno = EINVAL;
        return -1;
    }
    int n = 0;
    if (!is_screened(s) && protocol(s).receive_messages_at_once(s, fd, messages, count, flags, timeout, n))
        return n;
    libc::test_cancel(); // not behind a message that is taken
    if (!protocol(s).messages && !sandboxed() && (flags & MSG_ERRQUEUE) == 0)
        if (const int error = error_of_stream(s, live_fd(s, fd)); error != 0) {
            errno = error;
            return -1;
        }
    Remaining remaining(timeout);
    unsigned done = 0;
    const unsigned wanted = std::min(count, kMostMessages);
    const std::uint32_t generation = s.generation.load(std::memory_order_acquire);
    while (done < wanted && (done == 0 || !is_another(s, generation))) {
        const ssize_t length = receive_msg(s, live_fd(s, fd), &messages[done].msg_hdr, flags & ~MSG_WAITFORONE);
        if (length < 0 && done != 0)
            leave_for_next_call(s, errno);
        if (length < 0)
            return done != 0 ? static_cast<int>(done) : -1;
        messages[done].msg_len = static_cast<unsigned>(length);
        ++done;
        if ((flags & MSG_WAITFORONE) != 0)
            flags |= MSG_DONTWAIT;
        if (remaining.used_up() || (messages[done - 1].msg_hdr.msg_flags & MSG_OOB) != 0)
            break; // urgent data ends it, too
        if (!is_screened(s) && done < wanted && protocol(s).only_kernel_brings(s)) {
            n = libc::real.recvmmsg(live_fd(s, fd), messages + done, wanted - done, flags | MSG_DONTWAIT, nullptr);
            if (n > 0)
                done += static_cast<unsigned>(by_os_received(s, messages + done, n, flags));
        }
    }
    return static_cast<int>(done);
}

int send_messages(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags)
{
    int n = 0;
    if (protocol(s).send_messages_at_once(s, fd, messages, count, flags, n))
        return n;
    const unsigned wanted = std::min(count, kMostMessages);
    const std::uint32_t generation = s.generation.load(std::memory_order_acquire);
    for (unsigned done = 0; done < wanted; ++done) {
        if (done != 0 && is_another(s, generation))
            return static_cast<int>(done);
        const ssize_t length = send_msg(s, live_fd(s, fd), &messages[done].msg_hdr, flags);
        if (length < 0)
            return done != 0 ? static_cast<int>(done) : -1;
        messages[done].msg_len = static_cast<unsigned>(length);
        if (static_cast<std::size_t>(length) < total_length(messages[done].msg_hdr))
            return static_cast<int>(done) + 1; // the next message would stand where the rest of this one belongs
    }
    return static_cast<int>(wanted);
}

} // namespace vma::sock
