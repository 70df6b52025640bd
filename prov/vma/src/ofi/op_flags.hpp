// SPDX-License-Identifier: BSD-2-Clause
// The flags of those calls of an endpoint that don't carry flags, one word for each of its halves (fi_control(3)).
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace vma::ofi {

// FI_GETOPSFLAG and FI_SETOPSFLAG say in the flags themselves which half they mean.
inline int control_op_flags(std::uint64_t &tx_flags, std::uint64_t &rx_flags, int command,
                            std::uint64_t *flags) noexcept
{
    constexpr std::uint64_t kHalves = FI_TRANSMIT | FI_RECV;
    if (!flags || ((*flags & kHalves) != FI_TRANSMIT && (*flags & kHalves) != FI_RECV))
        return -FI_EINVAL;
    std::uint64_t &place = (*flags & FI_TRANSMIT) ? tx_flags : rx_flags;
    if (command == FI_GETOPSFLAG)
        *flags = place;
    else
        place = *flags & ~kHalves;
    return 0;
}

// fi_control() on an endpoint of any device.
template <typename Endpoint> int control_endpoint(Endpoint &endpoint, bool orphaned, int command, void *argument)
{
    switch (command) {
    case FI_ENABLE:
        return orphaned ? -FI_EOPBADSTATE : endpoint.enable();
    case FI_GETOPSFLAG:
    case FI_SETOPSFLAG:
        return control_op_flags(endpoint.tx_flags, endpoint.rx_flags, command, static_cast<std::uint64_t *>(argument));
    default:
        return -FI_ENOSYS;
    }
}

} // namespace vma::ofi
