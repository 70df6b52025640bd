// SPDX-License-Identifier: BSD-2-Clause
// poll() and select() as the interception layer calls them. select() is poll() over an array made of its sets.
#include <errno.h>

#include <algorithm>
#include <cstddef>

#include "compat/src/libc/fail.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/epoll_set.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/mux/poll_wait.hpp"

namespace vma::mux {

namespace {

using libc::fail;

using Word = unsigned long;
constexpr int kWordBits = static_cast<int>(sizeof(Word) * 8);

// What makes a descriptor readable, writable, exceptional for select(2); a hang-up or error is told with the first two.
constexpr short kIn = POLLIN | POLLRDNORM | POLLRDBAND;
constexpr short kOut = POLLOUT | POLLWRNORM | POLLWRBAND;
constexpr short kErr = POLLPRI;
constexpr short kInResult = kIn | POLLHUP | POLLERR;
constexpr short kOutResult = kOut | POLLERR;

// Bits of one set; the kernel reads and writes whole words.
class Bits
{
public:
    Bits(fd_set *set, int nfds)
        : words_(reinterpret_cast<Word *>(set)), count_(set != nullptr ? (nfds + kWordBits - 1) / kWordBits : 0)
    {
    }
    Word word(int index) const { return index < count_ ? words_[index] : 0; }
    bool has(int fd) const { return (word(fd / kWordBits) >> (fd % kWordBits) & 1) != 0; }
    void clear() { std::fill_n(words_, count_, Word{0}); }
    void put(int fd) { words_[fd / kWordBits] |= Word{1} << (fd % kWordBits); }

private:
    Word *words_;
    int count_;
};

struct Sets {
    Bits in;
    Bits out;
    Bits err;
    int nfds;

    template <typename Visit> void each(Visit visit) const // in any of the three
    {
        for (int base = 0; base < nfds; base += kWordBits) {
            const int index = base / kWordBits;
            Word word = in.word(index) | out.word(index) | err.word(index);
            for (; word != 0; word &= word - 1) {
                const int fd = base + __builtin_ctzl(word);
                if (fd < nfds)
                    visit(fd);
            }
        }
    }
    short events(int fd) const
    {
        return static_cast<short>((in.has(fd) ? kIn : 0) | (out.has(fd) ? kOut : 0) | (err.has(fd) ? kErr : 0));
    }
};

// The kernel's answer: bits left in the sets, and how many; EBADF if one isn't open.
int write_back(Sets &sets, const pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; i < count; ++i)
        if ((fds[i].revents & POLLNVAL) != 0)
            return fail(EBADF);
    sets.in.clear();
    sets.out.clear();
    sets.err.clear();
    int n = 0;
    const auto put = [&n](Bits &bits, const pollfd &entry, short asked, short result) {
        if ((entry.events & asked) == 0 || (entry.revents & result) == 0)
            return;
        bits.put(entry.fd);
        ++n;
    };
    for (nfds_t i = 0; i < count; ++i) {
        put(sets.in, fds[i], kIn, kInResult);
        put(sets.out, fds[i], kOut, kOutResult);
        put(sets.err, fds[i], kErr, kErr);
    }
    return n;
}

// What a call waits for, as far as it is ours. Where that is one stream without an endpoint, the call can be the
// kernel's own, with no descriptor more by which to hear of an endpoint.
class Mix
{
public:
    void add(int fd)
    {
        sock::Socket *const s = sock::lookup(fd);
        const sock::Carrier carrier = s != nullptr            ? sock::carrier_of(*s)
                                      : set_of(fd) != nullptr ? sock::Carrier::kOurs
                                                              : sock::Carrier::kKernel;
        if (carrier == sock::Carrier::kKernel)
            return;
        others_ = others_ || carrier == sock::Carrier::kOurs || (stream_ != nullptr && stream_ != s);
        stream_ = s;
    }
    bool only_kernel() const { return !others_ && stream_ == nullptr; }
    sock::Socket *lone_stream() const { return others_ ? nullptr : stream_; }

private:
    sock::Socket *stream_ = nullptr;
    bool others_ = false; // more than one, an epoll set, or what has an endpoint
};

// `wait` is the kernel's call; `n` its result. False: an endpoint began meanwhile, and it was not called.
template <typename Wait> bool wait_beside(sock::Socket &stream, stats::Mux &record, const Wait &wait, int &n)
{
    WaitCount counted(record);
    counted.asleep();
    if (!sock::wait_in_kernel(
            stream, [](const void *call) { return (*static_cast<const Wait *>(call))(); }, &wait, n))
        return false;
    counted.awake();
    counted.by_kernel(n);
    counted.done(n);
    return true;
}

int tell_left(int result, const Deadline &deadline, const timespec *timeout, timespec *left)
{
    const libc::KeepErrno keep;
    if (left != nullptr && timeout != nullptr)
        *left = deadline.started() ? to_timespec(deadline.left_ns()) : *timeout;
    return result;
}

} // namespace

int poll(pollfd *fds, nfds_t count, const timespec *timeout, const sigset_t *mask)
{
    if (!valid_timeout(timeout))
        return fail(EINVAL);
    Mix mix;
    std::for_each(fds, fds + count, [&mix](const pollfd &entry) { mix.add(entry.fd); });
    ThreadRecord *const record = mix.only_kernel() ? nullptr : thread_record();
    if (sock::Socket *const stream = mix.lone_stream(); stream != nullptr && record != nullptr) {
        const auto in_kernel = [=] { return libc::real.ppoll(fds, count, timeout, mask); };
        int n = 0;
        if (wait_beside(*stream, stats::header().poll[record->group], in_kernel, n))
            return n;
    }
    Frame *const frame = record != nullptr ? acquire_frame() : nullptr;
    if (frame == nullptr)
        return libc::real.ppoll(fds, count, timeout, mask);
    Deadline deadline(timeout);
    return PollWait(*record, *frame, fds, count, Style::kPoll, deadline, mask).run();
}

int select(int nfds, fd_set *in, fd_set *out, fd_set *err, const timespec *timeout, const sigset_t *mask,
           timespec *left)
{
    if (nfds < 0 || !valid_timeout(timeout))
        return fail(EINVAL);
    nfds = std::min(nfds, sock::kMaxTracked);
    Sets sets = {{in, nfds}, {out, nfds}, {err, nfds}, nfds};
    std::size_t count = 0;
    Mix mix;
    sets.each([&](int fd) {
        ++count;
        mix.add(fd);
    });
    Deadline deadline(timeout);
    if (left != nullptr)
        deadline.start(); // Linux tells what is left even when it found something at once
    const auto in_kernel = [=] { return libc::real.pselect(nfds, in, out, err, timeout, mask); };
    if (mix.only_kernel())
        return tell_left(in_kernel(), deadline, timeout, left);
    ThreadRecord *const record = thread_record();
    if (sock::Socket *const stream = mix.lone_stream(); stream != nullptr && record != nullptr) {
        int n = 0;
        if (wait_beside(*stream, stats::header().select[record->group], in_kernel, n))
            return tell_left(n, deadline, timeout, left);
    }
    Frame *const frame = record != nullptr ? acquire_frame() : nullptr;
    pollfd *const fds = frame != nullptr ? frame->wanted.at_least(count) : nullptr;
    if (fds == nullptr) {
        if (frame != nullptr)
            frame->release();
        return fail(ENOMEM);
    }
    pollfd *next = fds;
    sets.each([&sets, &next](int fd) { *next++ = {fd, sets.events(fd), 0}; });
    PollWait wait(*record, *frame, fds, count, Style::kSelect, deadline, mask); // has `fds` until its end
    int n = wait.run();
    if (n >= 0)
        n = write_back(sets, fds, count);
    return tell_left(n, deadline, timeout, left);
}

} // namespace vma::mux
