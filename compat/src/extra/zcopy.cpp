// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/extra/calls.hpp"

namespace vma::extra {

int recvfrom_zcopy(int, void *, size_t, int *, sockaddr *, socklen_t *)
{
    static constinit std::atomic<bool> said{false};
    return unsupported(said, "recvfrom_zcopy", "not yet");
}

int free_packets(int, vma_packet_t *, size_t)
{
    static constinit std::atomic<bool> said{false};
    return unsupported(said, "free_packets", "not yet");
}

} // namespace vma::extra
