// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: a kernel that doesn't know metadata of frames to send (Linux before 6.8) refuses memory with its flag, as here.
#include <dlfcn.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" [[gnu::visibility("default")]] int setsockopt(int fd, int level, int option, const void *value,
                                                         socklen_t length) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::setsockopt)>(::dlsym(RTLD_NEXT, "setsockopt"));
    constexpr std::size_t kFlagsAt = offsetof(xdp_umem_reg, flags);
    std::uint32_t flags = 0;
    if (level == SOL_XDP && option == XDP_UMEM_REG && length >= kFlagsAt + sizeof flags) {
        std::memcpy(&flags, static_cast<const std::byte *>(value) + kFlagsAt, sizeof flags);
        if ((flags & ~std::uint32_t{XDP_UMEM_UNALIGNED_CHUNK_FLAG}) != 0) {
            errno = EINVAL;
            return -1;
        }
    }
    return real(fd, level, option, value, length);
}
