// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: a kernel that doesn't know metadata of frames to send (Linux before 6.8) refuses memory with its flag, as
// here.
#include <linux/if_xdp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fabtests/ether/programs/kernel_wrapper.hpp"

bool answers(long number, long (&arguments)[6], long &result)
{
    constexpr std::size_t kFlagsAt = offsetof(xdp_umem_reg, flags);
    std::uint32_t flags = 0;
    if (number != SYS_setsockopt || arguments[1] != SOL_XDP || arguments[2] != XDP_UMEM_REG ||
        static_cast<std::size_t>(arguments[4]) < kFlagsAt + sizeof flags)
        return false;
    std::memcpy(&flags, reinterpret_cast<const std::byte *>(arguments[3]) + kFlagsAt, sizeof flags);
    if ((flags & ~std::uint32_t{XDP_UMEM_UNALIGNED_CHUNK_FLAG}) == 0)
        return false;
    errno = EINVAL;
    result = -1;
    return true;
}
