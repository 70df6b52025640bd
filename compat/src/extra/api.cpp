// SPDX-License-Identifier: BSD-2-Clause
// The table that vma_get_api() finds, and the mask that says which of its entries do what they are for.
#include "compat/src/extra/extra.hpp"

#include <errno.h>
#include <string.h>

#include "compat/src/config/params.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::extra {

namespace {

constexpr std::uint64_t kAlways =
    VMA_EXTRA_API_REGISTER_RECV_CALLBACK | VMA_EXTRA_API_RECVFROM_ZCOPY | VMA_EXTRA_API_FREE_PACKETS |
    VMA_EXTRA_API_ADD_CONF_RULE | VMA_EXTRA_API_THREAD_OFFLOAD | VMA_EXTRA_API_DUMP_FD_STATS |
    VMA_EXTRA_API_GET_SOCKET_RINGS_NUM | VMA_EXTRA_API_GET_SOCKET_RINGS_FDS | VMA_EXTRA_API_GET_SOCKET_TX_RING_FD |
    VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER | VMA_EXTRA_API_ADD_RING_PROFILE | VMA_EXTRA_API_REGISTER_MEMORY_ON_RING |
    VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING | VMA_EXTRA_API_MODIFY_RING | VMA_EXTRA_API_IOCTL;

constexpr vma_api_t kTable = {
    .register_recv_callback = register_recv_callback,
    .recvfrom_zcopy = recvfrom_zcopy,
    .free_packets = free_packets,
    .add_conf_rule = add_conf_rule,
    .thread_offload = thread_offload,
    .socketxtreme_poll = socketxtreme_poll,
    .get_socket_rings_num = get_socket_rings_num,
    .get_socket_rings_fds = get_socket_rings_fds,
    .get_socket_tx_ring_fd = get_socket_tx_ring_fd,
    .socketxtreme_free_vma_packets = socketxtreme_free_packets,
    .socketxtreme_ref_vma_buff = socketxtreme_ref,
    .socketxtreme_free_vma_buff = socketxtreme_free,
    .dump_fd_stats = dump_fd_stats,
    .vma_add_ring_profile = add_ring_profile,
    .get_socket_network_header = get_socket_network_header,
    .get_ring_direct_descriptors = get_ring_direct_descriptors,
    .register_memory_on_ring = register_memory_on_ring,
    .deregister_memory_on_ring = deregister_memory_on_ring,
    .vma_modify_ring = modify_ring,
    .vma_extra_supported_mask = kAlways,
    .ioctl = set_allocator,
};
static_assert(sizeof(kTable) == 168);

void complete_mask()
{
    std::uint64_t mask = kAlways;
    if (config::params().socketxtreme)
        mask |= VMA_EXTRA_API_SOCKETXTREME_POLL | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS |
                VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF;
    __atomic_store_n(&g_api.table.vma_extra_supported_mask, mask, __ATOMIC_RELAXED);
}

} // namespace

[[VMA_STARTUP_DATA]] constinit Api g_api = {.table = kTable, .accept = nullptr};

constexpr socklen_t kPointer = sizeof(void *);

// As libvma: no magic number, and no need of anything that was started before.
bool answer(int fd, int level, int name, void *value, socklen_t *length, int &result)
{
    if (fd != -1 || level != SOL_SOCKET || name != SO_VMA_GET_API || value == nullptr || length == nullptr ||
        *length < kPointer)
        return false;
    config::load_params();
    complete_mask();
    vma_api_t *const api = &g_api.table;
    memcpy(value, &api, kPointer);
    *length = kPointer;
    result = 0;
    return true;
}

} // namespace vma::extra
