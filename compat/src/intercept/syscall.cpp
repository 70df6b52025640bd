// SPDX-License-Identifier: BSD-2-Clause
// syscall(): programs that want a call which their libc lacks, or none of its wrapper. Those that close or duplicate
// descriptors or move bytes go where the function of that name goes; all others are the kernel's.
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/own_tables.hpp"
#include "compat/src/intercept/sandbox.hpp"
#include "compat/src/intercept/sets.hpp"
#include "compat/src/intercept/uring_calls.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/provider_text.hpp"

#include <linux/sched.h> // clone_args
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

using namespace vma;
using namespace vma::intercept;

namespace {

struct Arguments {
    long at[6];
    template <typename T> T get(int index) const
    {
        if constexpr (std::is_pointer_v<T>)
            return reinterpret_cast<T>(at[index]);
        else
            return static_cast<T>(at[index]);
    }
    int fd() const { return get<int>(0); }
};

inline long real_syscall(long number, const Arguments &a)
{
    using Direct = long (*)(long, long, long, long, long, long, long);
    return libc::by_kernel(
        reinterpret_cast<Direct>(real.syscall)(number, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5]));
}

// The kernel's set of signals is shorter than libc's, and stands with its size. What it would refuse it is given as it
// came.
class Mask
{
public:
    Mask(const void *set, std::size_t bytes)
        : given_(set != nullptr), refused_(given_ && (bytes != mux::kMaskBytes || !libc::can_read(set, bytes)))
    {
        if (given_ && !refused_)
            memcpy(&set_, set, mux::kMaskBytes);
    }
    bool refused() const { return refused_; }
    const sigset_t *get() const { return given_ ? &set_ : nullptr; }

private:
    const bool given_;
    const bool refused_;
    sigset_t set_ = {};
};

// Of clone(): with the stack of its caller, as fork().
bool clones_process(const Arguments &a)
{
    if ((a.at[0] & CLONE_VM) == 0)
        return a.at[1] == 0;
    before_clone(a.get<unsigned long>(0));
    return false;
}

// Of clone3(): a process with memory of its own and the stack of its caller, as fork() makes it. Whatever the kernel
// refuses is not one.
bool copies_process(const Arguments &a)
{
    const auto *const given = a.get<const clone_args *>(0);
    if (a.get<std::size_t>(1) < CLONE_ARGS_SIZE_VER0 || !libc::can_read(given, CLONE_ARGS_SIZE_VER0))
        return false;
    before_clone(given->flags);
    return (given->flags & CLONE_VM) == 0 && given->stack == 0;
}

// What makes a process of this one's sockets, replaces it or ends it.
bool concerns_process(long number, const Arguments &a, long &result)
{
    switch (number) {
#ifdef SYS_fork
    case SYS_fork:
        result = ::_Fork();
        return true;
#endif
    case SYS_clone:
        if (!clones_process(a))
            return false;
        result = copy_process([&a] { return real_syscall(SYS_clone, a); });
        return true;
    case SYS_clone3:
        if (!copies_process(a))
            return false;
        result = copy_process([&a] { return real_syscall(SYS_clone3, a); });
        return true;
    case SYS_execve:
        result = ::execve(a.get<const char *>(0), a.get<char *const *>(1), a.get<char *const *>(2));
        return true;
    case SYS_execveat:
        result =
            ::execveat(a.fd(), a.get<const char *>(1), a.get<char *const *>(2), a.get<char *const *>(3), a.get<int>(4));
        return true;
    case SYS_exit_group:
        ::_exit(a.get<int>(0));
    case SYS_seccomp:
        before_seccomp(a.get<unsigned>(0), a.get<unsigned>(1), a.get<const void *>(2));
        return false;
    case SYS_unshare:
        before_unshare(a.get<int>(0));
        return false;
    case SYS_prctl:
        before_prctl(a.get<int>(0), a.get<unsigned long>(1), a.get<const void *>(2));
        return false;
    default:
        return false;
    }
}

// What changes the table of descriptors.
bool changes_descriptors(long number, const Arguments &a, long &result)
{
    switch (number) {
    case SYS_close:
        result = ::close(a.fd());
        return true;
    case SYS_close_range:
        result = ::close_range(a.get<unsigned>(0), a.get<unsigned>(1), a.get<int>(2));
        return true;
    case SYS_dup:
        result = ::dup(a.fd());
        return true;
#ifdef SYS_dup2
    case SYS_dup2:
        result = ::dup2(a.fd(), a.get<int>(1));
        return true;
#endif
    case SYS_dup3:
        result = ::dup3(a.fd(), a.get<int>(1), a.get<int>(2));
        return true;
    default:
        return false;
    }
}

bool concerns_uring(long number, const Arguments &a, const void *caller, long &result)
{
    switch (number) {
    case SYS_io_uring_setup:
        result = set_up_uring(a.at, caller);
        return true;
    case SYS_io_uring_enter:
        result = enter_uring(a.at);
        return true;
    case SYS_io_uring_register:
        result = register_with_uring(a.at);
        return true;
    default:
        return false;
    }
}

bool polls_ours(const Arguments &a)
{
    return any_ours(a.get<const pollfd *>(0), a.get<nfds_t>(1));
}

bool selects_ours(const Arguments &a)
{
    return any_ours(a.get<int>(0), a.get<const fd_set *>(1), a.get<const fd_set *>(2), a.get<const fd_set *>(3));
}

// Below, false leaves it to the kernel, past libc: that looks at a time by itself, where the kernel says EFAULT.
bool poll_masked(const Arguments &a, long &result)
{
    if (!polls_ours(a) || !valid(a.get<const timespec *>(2)))
        return false;
    const Mask mask(a.get<const void *>(3), a.get<std::size_t>(4));
    if (mask.refused())
        return false;
    result = ::ppoll(a.get<pollfd *>(0), a.get<nfds_t>(1), a.get<timespec *>(2), mask.get());
    return true;
}

// Its mask stands with its size in memory of its own, as six arguments are the most.
bool select_masked(const Arguments &a, long &result)
{
    struct Given {
        const void *set;
        std::size_t bytes;
    };
    const auto *const given = a.get<const Given *>(5);
    if (!selects_ours(a) || !valid(a.get<const timespec *>(4)) ||
        (given != nullptr && !libc::can_read(given, sizeof *given)))
        return false;
    const Mask mask(given != nullptr ? given->set : nullptr, given != nullptr ? given->bytes : 0);
    if (mask.refused())
        return false;
    result = ::pselect(a.get<int>(0), a.get<fd_set *>(1), a.get<fd_set *>(2), a.get<fd_set *>(3), a.get<timespec *>(4),
                       mask.get());
    return true;
}

#ifdef SYS_select
bool select_kernel_only(const Arguments &a, long &result)
{
    if (!selects_ours(a) || !valid(a.get<const timeval *>(4)))
        return false;
    result = ::select(a.get<int>(0), a.get<fd_set *>(1), a.get<fd_set *>(2), a.get<fd_set *>(3), a.get<timeval *>(4));
    return true;
}
#endif

// What may have a socket of ours in a set, or behind another argument than the first; their functions look for it.
bool may_concern_us(long number, const Arguments &a, long &result)
{
    switch (number) {
    case SYS_epoll_ctl:
        result = ::epoll_ctl(a.fd(), a.get<int>(1), a.get<int>(2), a.get<epoll_event *>(3));
        return true;
#ifdef SYS_poll
    case SYS_poll:
        result = ::poll(a.get<pollfd *>(0), a.get<nfds_t>(1), a.get<int>(2));
        return true;
    case SYS_select:
        return select_kernel_only(a, result);
#endif
    case SYS_ppoll:
        return poll_masked(a, result);
    case SYS_pselect6:
        return select_masked(a, result);
    case SYS_splice:
        result = ::splice(a.fd(), a.get<off64_t *>(1), a.get<int>(2), a.get<off64_t *>(3), a.get<size_t>(4),
                          a.get<unsigned>(5));
        return true;
    default:
        return false;
    }
}

// The sets that are ours.
bool waits_in_set(long number, const Arguments &a, long &result)
{
    switch (number) {
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
        result = ::epoll_wait(a.fd(), a.get<epoll_event *>(1), a.get<int>(2), a.get<int>(3));
        return true;
#endif
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2: {
        const Mask mask(a.get<const void *>(4), a.get<std::size_t>(5));
        if (mask.refused())
            return false;
        result = number == SYS_epoll_pwait
                     ? ::epoll_pwait(a.fd(), a.get<epoll_event *>(1), a.get<int>(2), a.get<int>(3), mask.get())
                     : ::epoll_pwait2(a.fd(), a.get<epoll_event *>(1), a.get<int>(2), a.get<timespec *>(3), mask.get());
        return true;
    }
    default:
        return false;
    }
}

// What is asked and set of a socket of ours.
bool changes_state(long number, const Arguments &a, long &result)
{
    switch (number) {
    case SYS_shutdown:
        result = ::shutdown(a.fd(), a.get<int>(1));
        return true;
    case SYS_fcntl:
        result = ::fcntl(a.fd(), a.get<int>(1), a.get<void *>(2));
        return true;
    case SYS_ioctl:
        result = ::ioctl(a.fd(), a.get<unsigned long>(1), a.get<void *>(2));
        return true;
    case SYS_connect:
        result = ::connect(a.fd(), a.get<const sockaddr *>(1), a.get<socklen_t>(2));
        return true;
    case SYS_listen:
        result = ::listen(a.fd(), a.get<int>(1));
        return true;
    case SYS_accept:
        result = ::accept(a.fd(), a.get<sockaddr *>(1), a.get<socklen_t *>(2));
        return true;
    case SYS_accept4:
        result = ::accept4(a.fd(), a.get<sockaddr *>(1), a.get<socklen_t *>(2), a.get<int>(3));
        return true;
    case SYS_getsockopt:
        result = ::getsockopt(a.fd(), a.get<int>(1), a.get<int>(2), a.get<void *>(3), a.get<socklen_t *>(4));
        return true;
    case SYS_setsockopt:
        result = ::setsockopt(a.fd(), a.get<int>(1), a.get<int>(2), a.get<const void *>(3), a.get<socklen_t>(4));
        return true;
    default:
        return waits_in_set(number, a, result);
    }
}

// What reads and writes a descriptor of ours, as has_wrapper() has seen.
bool moves_bytes(long number, const Arguments &a, long &result)
{
    switch (number) {
    case SYS_read:
        result = ::read(a.fd(), a.get<void *>(1), a.get<size_t>(2));
        return true;
    case SYS_write:
        result = ::write(a.fd(), a.get<void *>(1), a.get<size_t>(2));
        return true;
    case SYS_readv:
        result = ::readv(a.fd(), a.get<iovec *>(1), a.get<int>(2));
        return true;
    case SYS_writev:
        result = ::writev(a.fd(), a.get<iovec *>(1), a.get<int>(2));
        return true;
    case SYS_recvfrom:
        result = ::recvfrom(a.fd(), a.get<void *>(1), a.get<size_t>(2), a.get<int>(3), a.get<sockaddr *>(4),
                            a.get<socklen_t *>(5));
        return true;
    case SYS_sendto:
        result = ::sendto(a.fd(), a.get<void *>(1), a.get<size_t>(2), a.get<int>(3), a.get<sockaddr *>(4),
                          a.get<socklen_t>(5));
        return true;
    case SYS_recvmsg:
        result = ::recvmsg(a.fd(), a.get<msghdr *>(1), a.get<int>(2));
        return true;
    case SYS_sendmsg:
        result = ::sendmsg(a.fd(), a.get<msghdr *>(1), a.get<int>(2));
        return true;
    case SYS_recvmmsg:
        result = ::recvmmsg(a.fd(), a.get<mmsghdr *>(1), a.get<unsigned>(2), a.get<int>(3), a.get<timespec *>(4));
        return true;
    case SYS_sendmmsg:
        result = ::sendmmsg(a.fd(), a.get<mmsghdr *>(1), a.get<unsigned>(2), a.get<int>(3));
        return true;
    case SYS_preadv2: // the offset in two halves, the lower of which holds all of it here
        result = ::preadv2(a.fd(), a.get<iovec *>(1), a.get<int>(2), a.get<off_t>(3), a.get<int>(5));
        return true;
    case SYS_pwritev2:
        result = ::pwritev2(a.fd(), a.get<iovec *>(1), a.get<int>(2), a.get<off_t>(3), a.get<int>(5));
        return true;
    case SYS_sendfile:
        result = ::sendfile(a.fd(), a.get<int>(1), a.get<off_t *>(2), a.get<size_t>(3));
        return true;
    default:
        return changes_state(number, a, result);
    }
}

constexpr long kWrapped[] = {
    SYS_close,          SYS_close_range,    SYS_dup,
    SYS_dup3,           SYS_read,           SYS_write,
    SYS_readv,          SYS_writev,         SYS_sendto,
    SYS_recvfrom,       SYS_fcntl,          SYS_recvmsg,
    SYS_sendmsg,        SYS_shutdown,       SYS_recvmmsg,
    SYS_sendmmsg,       SYS_preadv2,        SYS_pwritev2,
    SYS_sendfile,       SYS_ioctl,          SYS_connect,
    SYS_listen,         SYS_accept,         SYS_accept4,
    SYS_getsockopt,     SYS_ppoll,          SYS_pselect6,
    SYS_epoll_ctl,      SYS_setsockopt,     SYS_splice,
    SYS_epoll_pwait,    SYS_epoll_pwait2,   SYS_clone,
    SYS_execve,         SYS_execveat,       SYS_exit_group,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    SYS_clone3,         SYS_seccomp,        SYS_prctl,
    SYS_unshare,
#ifdef SYS_dup2 // the older half, which newer machines have not
    SYS_dup2,           SYS_fork,           SYS_poll,
    SYS_select,         SYS_epoll_wait,
#endif
};
// Of these, what concerns us whatever its first argument is. The others are about that descriptor.
constexpr long kWrappedAnyhow[] = {
    SYS_close,
    SYS_close_range,
    SYS_dup,
    SYS_dup3,
    SYS_ppoll,
    SYS_pselect6,
    SYS_epoll_ctl,
    SYS_splice,
    SYS_clone,
    SYS_clone3,
    SYS_execve,
    SYS_execveat,
    SYS_exit_group,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_seccomp,
    SYS_prctl,
    SYS_unshare,
#ifdef SYS_dup2
    SYS_dup2,
    SYS_fork,
    SYS_poll,
    SYS_select,
#endif
};
constexpr unsigned long kNumbers = 512;

enum class Wrapper : std::uint8_t { kNone, kOfDescriptor, kAnyhow };

constexpr std::array<Wrapper, kNumbers> wrapped_numbers()
{
    std::array<Wrapper, kNumbers> wrapped{};
    for (const long number : kWrapped)
        wrapped[static_cast<unsigned long>(number)] = Wrapper::kOfDescriptor;
    for (const long number : kWrappedAnyhow)
        wrapped[static_cast<unsigned long>(number)] = Wrapper::kAnyhow;
    return wrapped;
}
constexpr std::array<Wrapper, kNumbers> kWrapper = wrapped_numbers();

// Two look-ups.
inline bool has_wrapper(long number, long first)
{
    if (static_cast<unsigned long>(number) >= kNumbers)
        return false;
    const Wrapper wrapper = kWrapper[static_cast<unsigned long>(number)];
    return wrapper == Wrapper::kAnyhow || (wrapper == Wrapper::kOfDescriptor && ours(static_cast<int>(first)));
}

// The provider means the kernel's socket, whatever it asks of it: it takes connections out of there, and puts them
// back. Nor may it wait here for a lock, as whoever called it holds them.
[[gnu::noinline]] long call_wrapper(long number, Arguments a, const void *caller)
{
    long result = 0;
    if (libc::is_provider(caller))
        return real_syscall(number, a);
    if (concerns_process(number, a, result) || concerns_uring(number, a, caller, result) ||
        changes_descriptors(number, a, result) || may_concern_us(number, a, result) || moves_bytes(number, a, result))
        return result;
    return real_syscall(number, a);
}

} // namespace

// Not variadic, so that what is not ours costs a test and a jump: the arguments are where libc's own expects them.
extern "C" [[gnu::visibility("default")]] long vma_syscall(long number, long a, long b, long c, long d, long e,
                                                           long f) asm("syscall");

long vma_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (has_wrapper(number, a)) [[unlikely]]
        return call_wrapper(number, {{a, b, c, d, e, f}}, __builtin_return_address(0));
    return real_syscall(number, {{a, b, c, d, e, f}});
}
