// SPDX-License-Identifier: BSD-2-Clause
// Rings as the extra API shows them: one for all sockets of a process, an epoll set of ours that has those which socketxtreme_poll()
// serves. (Which completion queues they are on is another matter: doc/rings.md.) What a NIC's registers are needed for, no device here has.
#include <rdma/fi_domain.h>
#include <sys/epoll.h>

#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/ring.hpp"
#include "compat/src/extra/threads.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/src/socket/engine_objects.hpp"

namespace vma::extra {

namespace {

constinit std::atomic<int> g_ring{-1};

} // namespace

bool is_ring(int fd)
{
    return fd >= 0 && fd == g_ring.load(std::memory_order_acquire);
}

int ring()
{
    const int open = g_ring.load(std::memory_order_acquire);
    if (open >= 0)
        return open;
    const sock::LockGuard guard(state_lock());
    if (const int other = g_ring.load(std::memory_order_relaxed); other >= 0)
        return other;
    const int made = libc::make_private(libc::real.epoll_create1(EPOLL_CLOEXEC));
    if (made < 0)
        return -1;
    mux::epoll_created(made);
    g_ring.store(made, std::memory_order_release);
    return made;
}

void forget_ring()
{
    g_ring.store(-1, std::memory_order_relaxed);
}

int get_socket_rings_num(int fd)
{
    return sock::lookup(fd) != nullptr ? 1 : fail(EINVAL);
}

int get_socket_rings_fds(int fd, int *rings, int size)
{
    if (rings == nullptr || size <= 0 || sock::lookup(fd) == nullptr)
        return fail(EINVAL);
    const int made = ring();
    if (made < 0)
        return -1;
    rings[0] = made;
    return 1;
}

int get_socket_tx_ring_fd(int fd, sockaddr *, socklen_t)
{
    return sock::lookup(fd) != nullptr ? ring() : fail(EINVAL);
}

int add_ring_profile(vma_ring_type_attr *profile, int *key)
{
    static constinit std::atomic<int> next{1};
    if (profile == nullptr || key == nullptr)
        return fail(EINVAL);
    int type = 0;
    __builtin_memcpy(&type, &profile->ring_type, sizeof type);
    if (type != VMA_RING_PACKET && type != VMA_RING_EXTERNAL_MEM)
        return fail(EINVAL);
    *key = next.fetch_add(1, std::memory_order_relaxed);
    return 0;
}

int modify_ring(vma_modify_ring_attr *wanted)
{
    static constinit std::atomic<bool> said{false};
    if (wanted == nullptr || !is_ring(wanted->ring_fd))
        return fail(EINVAL);
    return unsupported(said, "vma_modify_ring", "the devices here have no interrupts to moderate");
}

int register_memory_on_ring(int ring, void *address, size_t length, uint32_t *key)
{
    static constinit std::atomic<bool> said{false};
    if (address == nullptr || length == 0 || key == nullptr || !is_ring(ring))
        return fail(EINVAL);
    return unsupported(said, "register_memory_on_ring", "the devices here take no keys of memory from sockets");
}

int deregister_memory_on_ring(int ring, void *address, size_t length)
{
    if (address == nullptr || length == 0 || !is_ring(ring))
        return fail(EINVAL);
    return fail(EOPNOTSUPP);
}

int get_ring_direct_descriptors(int ring, vma_mlx_hw_device_data *data)
{
    static constinit std::atomic<bool> said{false};
    if (data == nullptr || !is_ring(ring))
        return fail(EINVAL);
    return unsupported(said, "get_ring_direct_descriptors", "it is for the registers of a ConnectX");
}

int get_socket_network_header(int fd, void *, uint16_t *length)
{
    static constinit std::atomic<bool> said{false};
    if (length == nullptr || sock::lookup(fd) == nullptr)
        return fail(EINVAL);
    return unsupported(said, "get_socket_network_header", "a socket's headers are made anew for each packet");
}

} // namespace vma::extra
