// SPDX-License-Identifier: BSD-2-Clause
// syscall(): programs that want a call which their libc lacks, or none of its wrapper. Those that close or duplicate
// descriptors or move bytes go where the function of that name goes; all others are the kernel's.
#include "compat/src/intercept/export.hpp"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
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

// What reads and writes a socket of ours.
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
    case SYS_shutdown:
        result = ::shutdown(a.fd(), a.get<int>(1));
        return true;
    case SYS_fcntl:
        result = ::fcntl(a.fd(), a.get<int>(1), a.get<void *>(2));
        return true;
    default:
        return false;
    }
}

constexpr long kWrapped[] = {
    SYS_close,  SYS_close_range, SYS_dup,      SYS_dup3,  SYS_read,    SYS_write,   SYS_readv,
    SYS_writev, SYS_sendto,      SYS_recvfrom, SYS_fcntl, SYS_recvmsg, SYS_sendmsg, SYS_shutdown,
#ifdef SYS_dup2
    SYS_dup2,
#endif
};
constexpr unsigned long kNumbers = 512;

constexpr std::array<bool, kNumbers> wrapped_numbers()
{
    std::array<bool, kNumbers> wrapped{};
    for (const long number : kWrapped)
        wrapped[static_cast<unsigned long>(number)] = true;
    return wrapped;
}
constexpr std::array<bool, kNumbers> kHasWrapper = wrapped_numbers();

bool has_wrapper(long number)
{
    return static_cast<unsigned long>(number) < kNumbers && kHasWrapper[static_cast<unsigned long>(number)];
}

inline long real_syscall(long number, const Arguments &a)
{
    using Direct = long (*)(long, long, long, long, long, long, long);
    return reinterpret_cast<Direct>(real.syscall)(number, a.at[0], a.at[1], a.at[2], a.at[3], a.at[4], a.at[5]);
}

[[gnu::noinline]] long call_wrapper(long number, Arguments a)
{
    long result = 0;
    if (changes_descriptors(number, a, result) || (ours(a.fd()) && moves_bytes(number, a, result)))
        return result;
    return real_syscall(number, a);
}

} // namespace

// Not variadic, so that what is not ours costs a test and a jump: the arguments are where libc's own expects them.
extern "C" [[gnu::visibility("default")]] long vma_syscall(long number, long a, long b, long c, long d, long e,
                                                           long f) asm("syscall");

long vma_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (has_wrapper(number)) [[unlikely]]
        return call_wrapper(number, {{a, b, c, d, e, f}});
    return real_syscall(number, {{a, b, c, d, e, f}});
}
