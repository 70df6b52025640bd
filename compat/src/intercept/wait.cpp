// SPDX-License-Identifier: BSD-2-Clause
// select, poll and epoll. A set without anything of ours goes to the kernel as it came; mux/ does the others.
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/extra/extra.hpp"
#include "compat/src/intercept/call_log.hpp"
#include "compat/src/intercept/export.hpp"
#include "compat/src/intercept/sandboxed_wait.hpp"
#include "compat/src/intercept/sets.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/mux/epoll_set.hpp"

#include <string.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // libc's poll() says that it only writes to the set
#endif

namespace vma::intercept {

namespace {

constexpr long kNanosecondsPerMs = 1000000;

// nullptr, for ever, if negative.
const timespec *timespec_of(int milliseconds, timespec &buffer)
{
    if (milliseconds < 0)
        return nullptr;
    buffer.tv_sec = milliseconds / 1000;
    buffer.tv_nsec = milliseconds % 1000 * kNanosecondsPerMs;
    return &buffer;
}

// All of it is there, to read and to write. If not, the kernel refuses it; it is not let wait before, as its sockets
// may have no news.
constexpr timespec kAtOnce = {};

bool has_room(pollfd *fds, nfds_t count)
{
    return libc::can_update(fds, count * sizeof *fds);
}

// Asks the receive callbacks of those that can be read. How many descriptors are left.
int screen(pollfd *fds, nfds_t count, int ready)
{
    for (nfds_t i = 0; i < count && ready > 0; ++i) {
        sock::Socket *const s = (fds[i].revents & (POLLIN | POLLRDNORM)) != 0 ? tracked(fds[i].fd) : nullptr;
        if (s == nullptr || extra::screen(*s, fds[i].fd))
            continue;
        fds[i].revents = static_cast<short>(fds[i].revents & ~(POLLIN | POLLRDNORM));
        ready -= fds[i].revents == 0 ? 1 : 0;
    }
    return ready;
}

timespec time_from(const timespec &start, const timespec &timeout)
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const long long left = (start.tv_sec + timeout.tv_sec - now.tv_sec) * INT64_C(1000000000) + start.tv_nsec +
                           timeout.tv_nsec - now.tv_nsec;
    return left <= 0 ? timespec{}
                     : timespec{static_cast<time_t>(left / 1000000000), static_cast<long>(left % 1000000000)};
}

[[gnu::noinline]] int poll_screened(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    timespec start = {};
    ::clock_gettime(CLOCK_MONOTONIC, &start);
    timespec left = timeout != nullptr ? *timeout : timespec{};
    for (;;) {
        const int n = mux::g_wait_calls.poll(fds, count, timeout != nullptr ? &left : nullptr, mask);
        const int ready = n > 0 ? screen(fds, count, n) : n;
        if (ready != 0 || n == 0)
            return ready;
        if (timeout != nullptr)
            left = time_from(start, *timeout);
    }
}

int poll_all(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    return keep_errno([=] {
        return extra::any_callbacks() ? poll_screened(fds, count, timeout, mask)
                                      : mux::g_wait_calls.poll(fds, count, timeout, mask);
    });
}

[[gnu::noinline]] int poll_ours(pollfd *fds, nfds_t count, int timeout)
{
    if (libc::in_vfork_child())
        return real.poll(fds, count, timeout);
    if (!has_room(fds, count))
        return real.poll(fds, count, 0);
    timespec span;
    return poll_all(fds, count, timespec_of(timeout, span), nullptr);
}

// A select() that asks receive callbacks: those that have nothing for the program are taken out of what was found, and
// it goes on as it was asked to if nothing is left.
class ScreenedSelect
{
public:
    ScreenedSelect(int count, fd_set *in, fd_set *out, fd_set *err)
        : count_(std::min(count, sock::kMaxTracked)), sets_{in, out, err},
          bytes_(static_cast<std::size_t>((count_ + kBits - 1) / kBits) * sizeof(unsigned long)),
          asked_(new (std::nothrow) char[std::size(sets_) * bytes_])
    {
        for (std::size_t i = 0; i < std::size(sets_) && asked_ != nullptr; ++i)
            if (sets_[i] != nullptr)
                memcpy(asked_.get() + i * bytes_, sets_[i], bytes_);
    }

    // How many bits are left of `n`.
    int screen(int n)
    {
        const int words = sets_[0] != nullptr ? (count_ + kBits - 1) / kBits : 0;
        for (int index = 0; index < words && n > 0; ++index) {
            auto *const found = reinterpret_cast<unsigned long *>(sets_[0]) + index;
            for (unsigned long word = *found; word != 0; word &= word - 1) {
                const int fd = index * kBits + __builtin_ctzl(word);
                sock::Socket *const s = fd < count_ ? tracked(fd) : nullptr;
                if (s == nullptr || extra::screen(*s, fd))
                    continue;
                *found &= ~(word & -word);
                --n;
            }
        }
        return n;
    }

    bool restore() const // false: it was never saved
    {
        for (std::size_t i = 0; i < std::size(sets_) && asked_ != nullptr; ++i)
            if (sets_[i] != nullptr)
                memcpy(sets_[i], asked_.get() + i * bytes_, bytes_);
        return asked_ != nullptr;
    }

private:
    static constexpr int kBits = static_cast<int>(sizeof(unsigned long) * 8);

    int count_;
    fd_set *sets_[3];
    std::size_t bytes_;
    std::unique_ptr<char[]> asked_;
};

[[gnu::noinline]] int select_screened(int count, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout,
                                      const sigset_t *mask, timespec *left)
{
    ScreenedSelect select(count, in, out, err);
    timespec start = {};
    ::clock_gettime(CLOCK_MONOTONIC, &start);
    timespec span = timeout != nullptr ? *timeout : timespec{};
    for (;;) {
        const int n = mux::g_wait_calls.select(count, in, out, err, timeout != nullptr ? &span : nullptr, mask, left);
        const int ready = n > 0 ? select.screen(n) : n;
        if (ready != 0 || n == 0 || !select.restore())
            return ready;
        if (timeout != nullptr)
            span = time_from(start, *timeout);
    }
}

int select_all(int count, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout, const sigset_t *mask,
               timespec *left)
{
    return keep_errno([=] {
        return extra::any_callbacks() ? select_screened(count, in, out, err, timeout, mask, left)
                                      : mux::g_wait_calls.select(count, in, out, err, timeout, mask, left);
    });
}

bool has_room(int count, const fd_set *in, const fd_set *out, const fd_set *err)
{
    constexpr std::size_t kBits = sizeof(unsigned long) * 8;
    const std::size_t bytes = (static_cast<std::size_t>(count) + kBits - 1) / kBits * sizeof(unsigned long);
    for (const fd_set *const set : {in, out, err})
        if (set != nullptr && !libc::can_update(set, bytes))
            return false;
    return true;
}

bool is_select_ours(int count, const fd_set *in, const fd_set *out, const fd_set *err)
{
    return any_ours(count, in, out, err) && !libc::in_vfork_child();
}

timespec timespec_of(const timeval &time)
{
    return {time.tv_sec + time.tv_usec / 1000000, time.tv_usec % 1000000 * 1000};
}

bool set_of_ours(int epfd)
{
    return ours(epfd) && !libc::in_vfork_child();
}

} // namespace

} // namespace vma::intercept

using namespace vma;
using namespace vma::intercept;

VMA_EXPORT int poll(pollfd *fds, nfds_t count, int timeout)
{
    if (!any_ours(fds, count)) [[likely]]
        return real.poll(fds, count, timeout);
    if (sock::sandboxed()) [[unlikely]]
        return poll_in_sandbox(fds, count, [=](bool now) { return real.poll(fds, count, now ? 0 : timeout); });
    return poll_ours(fds, count, timeout);
}

VMA_ALIAS(poll) int __poll(pollfd *, nfds_t, int);

VMA_EXPORT int ppoll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    if (!any_ours(fds, count)) [[likely]]
        return real.ppoll(fds, count, timeout, mask);
    if (libc::in_vfork_child() || !valid(timeout) || !valid(mask))
        return real.ppoll(fds, count, timeout, mask);
    if (sock::sandboxed()) [[unlikely]]
        return poll_in_sandbox(fds, count,
                               [=](bool now) { return real.ppoll(fds, count, now ? &kAtOnce : timeout, mask); });
    if (!has_room(fds, count))
        return real.ppoll(fds, count, &kAtOnce, mask);
    return poll_all(fds, count, timeout, mask);
}

VMA_EXPORT int __poll_chk(pollfd *fds, nfds_t count, int timeout, size_t room)
{
    if (room / sizeof(pollfd) < count) // libc's own ends the program
        return real.__poll_chk(fds, count, timeout, room);
    return ::poll(fds, count, timeout);
}

VMA_EXPORT int __ppoll_chk(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask, size_t room)
{
    if (room / sizeof(pollfd) < count)
        return real.__ppoll_chk(fds, count, timeout, mask, room);
    return ::ppoll(fds, count, timeout, mask);
}

VMA_EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *err, timeval *timeout)
{
    if (!is_select_ours(count, in, out, err) || !valid(timeout)) [[likely]]
        return real.select(count, in, out, err, timeout);
    if (sock::sandboxed()) [[unlikely]]
        return select_in_sandbox(count, in, [=](bool now) {
            timeval at_once = {};
            return real.select(count, in, out, err, now ? &at_once : timeout);
        });
    if (!has_room(count, in, out, err))
        return real.pselect(count, in, out, err, &kAtOnce, nullptr);
    if (timeout == nullptr)
        return select_all(count, in, out, err, nullptr, nullptr, nullptr);
    const timespec span = timespec_of(*timeout);
    timespec left = span;
    const int result = select_all(count, in, out, err, &span, nullptr, &left);
    if (libc::can_update(timeout, sizeof *timeout)) // nobody is told
        *timeout = {left.tv_sec, left.tv_nsec / 1000};
    return result;
}

VMA_ALIAS(select) int __select(int, fd_set *, fd_set *, fd_set *, timeval *);

VMA_EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout, const sigset_t *mask)
{
    if (!is_select_ours(count, in, out, err) || !valid(timeout) || !valid(mask)) [[likely]]
        return real.pselect(count, in, out, err, timeout, mask);
    if (sock::sandboxed()) [[unlikely]]
        return select_in_sandbox(
            count, in, [=](bool now) { return real.pselect(count, in, out, err, now ? &kAtOnce : timeout, mask); });
    if (!has_room(count, in, out, err))
        return real.pselect(count, in, out, err, &kAtOnce, mask);
    return select_all(count, in, out, err, timeout, mask, nullptr);
}

VMA_EXPORT int epoll_ctl(int epfd, int operation, int fd, epoll_event *event) noexcept
{
    if (set_of_ours(epfd)) {
        VMA_LOG(kDebug, "ENTER: epoll_ctl(epfd=%d, op=%d, fd=%d)", epfd, operation, fd);
        return left("epoll_ctl", keep_errno([=] { return mux::epoll_control(epfd, operation, fd, event); }));
    }
    if (sock::Socket *const s = tracked(fd)) [[unlikely]] { // nobody would wake who waits on that set
        const KeepErrno keep;
        sock::pin_to_kernel(*s, "in an epoll set that was made past the library");
    }
    return real.epoll_ctl(epfd, operation, fd, event);
}

VMA_EXPORT int epoll_wait(int epfd, epoll_event *events, int max, int timeout)
{
    if (timeout == 0 ? mux::only_kernel(epfd) : !set_of_ours(epfd))
        return real.epoll_wait(epfd, events, max, timeout);
    return keep_errno([=] { return mux::g_wait_calls.epoll_wait_ms(epfd, events, max, timeout, nullptr); });
}

VMA_EXPORT int epoll_pwait(int epfd, epoll_event *events, int max, int timeout, const sigset_t *mask)
{
    if ((timeout == 0 ? mux::only_kernel(epfd) : !set_of_ours(epfd)) || !valid(mask))
        return real.epoll_pwait(epfd, events, max, timeout, mask);
    return keep_errno([=] { return mux::g_wait_calls.epoll_wait_ms(epfd, events, max, timeout, mask); });
}

VMA_EXPORT int epoll_pwait2(int epfd, epoll_event *events, int max, const timespec *timeout, const sigset_t *mask)
{
    if (!set_of_ours(epfd) || !valid(timeout) || !valid(mask))
        return real.epoll_pwait2(epfd, events, max, timeout, mask);
    return keep_errno([=] { return mux::g_wait_calls.epoll_wait(epfd, events, max, timeout, mask); });
}
