// SPDX-License-Identifier: BSD-2-Clause
// The calls of struct vma_api_t, by the file that has them. Each checks all that a program hands it, and may be made by
// any thread.
#pragma once

#include <atomic>

#include <mellanox/vma_extra.h>

#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/libc/fail.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::extra {

using libc::fail;

// What no device here can do; said once a call.
using config::Once;

inline int unsupported(Once what, const char *call, const char *why)
{
    if (config::is_first(what))
        VMA_LOG(kWarn, "%s(): %s; EOPNOTSUPP from now on", call, why);
    return fail(EOPNOTSUPP);
}

bool is_ring(int fd);                    // what get_socket_rings_fds() gave
bool is_ring_profile(std::uint32_t key); // that vma_add_ring_profile() gave

// ---- control.cpp
int add_conf_rule(const char *line);
int thread_offload(int offload, pthread_t thread);
int dump_fd_stats(int fd, int level);
int set_allocator(void *header, size_t length); // ioctl

// ---- rings.cpp
int get_socket_rings_num(int fd);
int get_socket_rings_fds(int fd, int *rings, int size);
int get_socket_tx_ring_fd(int fd, sockaddr *to, socklen_t length);
int add_ring_profile(vma_ring_type_attr *profile, int *key);
int modify_ring(vma_modify_ring_attr *wanted);
int register_memory_on_ring(int ring, void *address, size_t length, uint32_t *key);
int deregister_memory_on_ring(int ring, void *address, size_t length);
int get_ring_direct_descriptors(int ring, vma_mlx_hw_device_data *data);

// ---- header.cpp
int get_socket_network_header(int fd, void *header, uint16_t *length);

// ---- zcopy.cpp
int recvfrom_zcopy(int fd, void *buffer, size_t length, int *flags, sockaddr *from, socklen_t *from_length);
int free_packets(int fd, vma_packet_t *packets, size_t count);

// ---- callback.cpp
int register_recv_callback(int fd, vma_recv_callback_t callback, void *context);

// ---- xtreme.cpp
int socketxtreme_poll(int ring, vma_completion_t *completions, unsigned count, int flags);
int socketxtreme_free_packets(vma_packet_desc_t *packets, int count);
int socketxtreme_ref(vma_buff_t *buffer);
int socketxtreme_free(vma_buff_t *buffer);

} // namespace vma::extra
