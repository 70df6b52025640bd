// SPDX-License-Identifier: BSD-2-Clause
// Rings as the extra API shows them: one for all sockets of a process, an epoll set of ours that has those which
// socketxtreme_poll() serves. (Which completion queues they are on is another matter: doc/rings.md.) What a NIC's
// registers are needed for, no device here has.
#include <rdma/fi_domain.h>
#include <sys/epoll.h>

#include "compat/src/config/once.hpp"
#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/registrations.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/ring.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/threads.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/mux/mux.hpp"

namespace vma::extra {

bool is_ring(int fd)
{
    return fd >= 0 && fd == g_xtreme.fd.load(std::memory_order_acquire);
}

int ring()
{
    const int open = g_xtreme.fd.load(std::memory_order_acquire);
    if (open >= 0)
        return open;
    const sock::LockGuard guard(state_lock());
    if (const int other = g_xtreme.fd.load(std::memory_order_relaxed); other >= 0)
        return other;
    const int made = libc::make_private(libc::real.epoll_create1(EPOLL_CLOEXEC));
    if (made < 0)
        return -1;
    mux::epoll_created(made);
    g_xtreme.fd.store(made, std::memory_order_release);
    return made;
}

void forget_ring()
{
    g_xtreme.fd.store(-1, std::memory_order_relaxed);
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

namespace {

bool is_same(const vma_ring_type_attr &a, const vma_ring_type_attr &b)
{
    return a.comp_mask == b.comp_mask && a.ring_type == b.ring_type && a.ring_pktq.comp_mask == b.ring_pktq.comp_mask;
}

} // namespace

bool is_ring_profile(std::uint32_t key)
{
    return key >= 1 && key <= static_cast<std::uint32_t>(g_tables.profile_count.load(std::memory_order_acquire));
}

int add_ring_profile(vma_ring_type_attr *profile, int *key)
{
    if (profile == nullptr || key == nullptr)
        return fail(EINVAL);
    int type = 0; // an enumerator that there isn't must not become one
    __builtin_memcpy(&type, &profile->ring_type, sizeof type);
    if (type != VMA_RING_PACKET && type != VMA_RING_EXTERNAL_MEM)
        return fail(EINVAL);
    const sock::LockGuard guard(state_lock());
    const int count = g_tables.profile_count.load(std::memory_order_relaxed);
    int place = 0;
    while (place < count && !is_same(g_tables.profiles[place], *profile))
        ++place;
    if (place == kMostProfiles)
        return fail(ENOMEM);
    if (place == count) {
        g_tables.profiles[place] = *profile;
        g_tables.profile_count.store(count + 1, std::memory_order_release);
    }
    *key = place + 1;
    return 0;
}

// The ring is all sockets', so a moderation is for all devices that have interrupts. Where none moderates it answers as
// libvma does, which sets what it is told and never looks whether the NIC took it. Arming is for rings of
// VMA_RING_EXTERNAL_MEM.
int modify_ring(vma_modify_ring_attr *wanted)
{
    constexpr std::uint32_t kKnown = VMA_MODIFY_RING_CQ_MODERATION | VMA_MODIFY_RING_CQ_ARM;
    if (wanted == nullptr || !is_ring(wanted->ring_fd) || wanted->comp_bit_mask == 0 ||
        (wanted->comp_bit_mask & ~kKnown) != 0)
        return fail(EINVAL);
    if ((wanted->comp_bit_mask & VMA_MODIFY_RING_CQ_ARM) != 0)
        return unsupported(Once::kNoExternalRing, "vma_modify_ring",
                           "rings of external memory, which are armed, are a ConnectX's");
    if (sock::moderate_as_asked(wanted->cq_moderation.cq_moderation_count,
                                wanted->cq_moderation.cq_moderation_period_usec) == 0 &&
        config::is_first(Once::kNoModeration))
        VMA_LOG(kWarn, "vma_modify_ring(): no device is open that moderates its interrupts: the moderation is kept for "
                       "those that will be, and has no effect until then");
    return 0;
}

int register_memory_on_ring(int ring, void *address, size_t length, uint32_t *key)
{
    if (address == nullptr || length == 0 || key == nullptr || !is_ring(ring))
        return fail(EINVAL);
    const int error = sock::register_memory(address, length, *key);
    if (error == EOPNOTSUPP)
        return unsupported(Once::kNoKeys, "register_memory_on_ring",
                           "no device is open that has keys of memory (RDMA, raw packets)");
    return error == 0 ? 0 : fail(error);
}

int deregister_memory_on_ring(int ring, void *address, size_t length)
{
    if (address == nullptr || length == 0 || !is_ring(ring))
        return fail(EINVAL);
    const int error = sock::deregister_memory(address, length);
    return error == 0 ? 0 : fail(error);
}

int get_ring_direct_descriptors(int ring, vma_mlx_hw_device_data *data)
{
    if (data == nullptr || !is_ring(ring))
        return fail(EINVAL);
    return unsupported(Once::kNoDescriptors, "get_ring_direct_descriptors", "it is for the registers of a ConnectX");
}

} // namespace vma::extra
