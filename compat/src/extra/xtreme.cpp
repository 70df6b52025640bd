// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/extra/calls.hpp"

namespace vma::extra {

namespace {

int not_on(const char *call)
{
    static constinit std::atomic<bool> said{false};
    return unsupported(said, call, "VMA_SOCKETXTREME=1 was not set when the program started");
}

} // namespace

int socketxtreme_poll(int, vma_completion_t *, unsigned, int)
{
    return not_on("socketxtreme_poll");
}

int socketxtreme_free_packets(vma_packet_desc_t *, int)
{
    return not_on("socketxtreme_free_vma_packets");
}

int socketxtreme_ref(vma_buff_t *)
{
    return not_on("socketxtreme_ref_vma_buff");
}

int socketxtreme_free(vma_buff_t *)
{
    return not_on("socketxtreme_free_vma_buff");
}

} // namespace vma::extra
