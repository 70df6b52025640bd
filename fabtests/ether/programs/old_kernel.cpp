// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: a kernel that doesn't know metadata of frames to send (Linux before 6.8) refuses memory with its flag, as here.
#include <dlfcn.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

// The provider's way to the kernel.
extern "C" [[gnu::visibility("default")]] long syscall(long number, ...) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::syscall)>(::dlsym(RTLD_NEXT, "syscall"));
    va_list list;
    va_start(list, number);
    long a[6];
    for (long &argument : a)
        argument = va_arg(list, long);
    va_end(list);
    constexpr std::size_t kFlagsAt = offsetof(xdp_umem_reg, flags);
    std::uint32_t flags = 0;
    if (number == SYS_setsockopt && a[1] == SOL_XDP && a[2] == XDP_UMEM_REG &&
        static_cast<std::size_t>(a[4]) >= kFlagsAt + sizeof flags) {
        std::memcpy(&flags, reinterpret_cast<const std::byte *>(a[3]) + kFlagsAt, sizeof flags);
        if ((flags & ~std::uint32_t{XDP_UMEM_UNALIGNED_CHUNK_FLAG}) != 0) {
            errno = EINVAL;
            return -1;
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
