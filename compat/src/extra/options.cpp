// SPDX-License-Identifier: BSD-2-Clause
// The socket options of the extra API, with libvma's rules for their arguments. A wrong one is EINVAL, no memory to
// read from is EFAULT.
#include <errno.h>
#include <string.h>

#include "compat/src/config/log.hpp"
#include "compat/src/extra/calls.hpp"
#include "compat/src/extra/state.hpp"
#include "compat/src/extra/threads.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::extra {

namespace {

constexpr std::uint32_t kLogicFields = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_USER_ID |
                                       VMA_RING_ALLOC_MASK_RING_INGRESS | VMA_RING_ALLOC_MASK_RING_ENGRESS;

bool is_logic(int value)
{
    switch (value) {
    case RING_LOGIC_PER_INTERFACE:
    case RING_LOGIC_PER_IP:
    case RING_LOGIC_PER_SOCKET:
    case RING_LOGIC_PER_USER_ID:
    case RING_LOGIC_PER_THREAD:
    case RING_LOGIC_PER_CORE:
    case RING_LOGIC_PER_CORE_ATTACH_THREADS:
        return true;
    default:
        return false;
    }
}

int set_logic(State &state, const void *value)
{
    vma_ring_alloc_logic_attr wanted;
    int logic = 0; // an enumerator that there isn't must not become one
    memcpy(&logic, static_cast<const char *>(value) + offsetof(vma_ring_alloc_logic_attr, ring_alloc_logic),
           sizeof logic);
    if (!is_logic(logic))
        return fail(EINVAL);
    memcpy(&wanted, value, sizeof wanted);
    if (wanted.comp_mask == 0 || (wanted.comp_mask & ~kLogicFields) != 0)
        return fail(EINVAL);
    const bool names_profile = (wanted.comp_mask & VMA_RING_ALLOC_MASK_RING_PROFILE_KEY) != 0;
    if (names_profile && !is_ring_profile(wanted.ring_profile_key)) {
        VMA_LOG(kWarn, "SO_VMA_RING_ALLOC_LOGIC: ring_profile_key is %u, none that vma_add_ring_profile() gave: EINVAL",
                wanted.ring_profile_key);
        return fail(EINVAL);
    }
    const sock::LockGuard guard(state_lock());
    const bool has_profile = (state.logic.comp_mask & VMA_RING_ALLOC_MASK_RING_PROFILE_KEY) != 0;
    if (names_profile && has_profile && state.logic.ring_profile_key != wanted.ring_profile_key)
        return fail(EINVAL); // a socket's profile is set once
    if (has_profile && !names_profile) {
        wanted.comp_mask |= VMA_RING_ALLOC_MASK_RING_PROFILE_KEY;
        wanted.ring_profile_key = state.logic.ring_profile_key;
    }
    state.logic = wanted;
    return 0;
}

int shut_receiving(sock::Socket &s, int fd)
{
    const int result = sock::shut_down(s, fd, SHUT_RD);
    return result == 0 || errno == ENOTCONN ? 0 : result; // the kernel has done it all the same
}

socklen_t size_of(int name)
{
    switch (name) {
    case SO_VMA_USER_DATA:
        return sizeof(std::uint64_t);
    case SO_VMA_RING_ALLOC_LOGIC:
        return sizeof(vma_ring_alloc_logic_attr);
    case SO_VMA_RING_USER_MEMORY:
        return sizeof(iovec);
    case SO_VMA_FLOW_TAG:
        return sizeof(std::uint32_t);
    default:
        return 0;
    }
}

void read_option(const sock::Socket &s, State &state, int name, void *value)
{
    const sock::LockGuard guard(state_lock());
    const std::uint64_t data = user_data_of(s, s.any_fd.load(std::memory_order_relaxed));
    const std::uint32_t tag = state.flow_tag.load(std::memory_order_relaxed);
    if (name == SO_VMA_USER_DATA)
        memcpy(value, &data, sizeof data);
    else if (name == SO_VMA_FLOW_TAG)
        memcpy(value, &tag, sizeof tag);
    else if (name == SO_VMA_RING_ALLOC_LOGIC)
        memcpy(value, &state.logic, sizeof state.logic);
    else
        memcpy(value, &state.memory, sizeof state.memory);
}

void set_user_data(State &state, const void *value)
{
    std::uint64_t data = 0;
    memcpy(&data, value, sizeof data);
    state.user_data.store(data, std::memory_order_relaxed);
    state.has_user_data.store(true, std::memory_order_release);
}

int set_memory(State &state, const void *value)
{
    iovec wanted = {};
    memcpy(&wanted, value, sizeof wanted);
    if ((wanted.iov_base == nullptr) != (wanted.iov_len == 0))
        return fail(EINVAL);
    VMA_LOG(kDebug,
            "SO_VMA_RING_USER_MEMORY: taken and of no effect: what a socket receives into is shared with others "
            "(frames of ports can lie in memory of the allocator of ioctl())");
    const sock::LockGuard guard(state_lock());
    state.memory = wanted;
    return 0;
}

} // namespace

void ask_ring_logic(const sock::Socket &s, std::int32_t &logic, std::uint32_t &user_id)
{
    const State *const state = find_state(s);
    if (state == nullptr)
        return;
    const sock::LockGuard guard(state_lock());
    const vma_ring_alloc_logic_attr &set = state->logic;
    const bool directed = (set.comp_mask & (VMA_RING_ALLOC_MASK_RING_INGRESS | VMA_RING_ALLOC_MASK_RING_ENGRESS)) != 0;
    if (set.comp_mask == 0 || (directed && set.ingress == 0))
        return;
    logic = static_cast<std::int32_t>(set.ring_alloc_logic);
    user_id = set.user_id;
}

int set_option(sock::Socket &s, int fd, int name, const void *value, socklen_t length)
{
    if (name == SO_VMA_SHUTDOWN_RX)
        return shut_receiving(s, fd);
    const socklen_t size = size_of(name);
    if (size == 0)
        return fail(ENOPROTOOPT);
    if (value == nullptr)
        return fail(EFAULT);
    if (length != size)
        return fail(EINVAL);
    State *const state = state_of(s);
    if (state == nullptr)
        return fail(ENOMEM);
    std::uint32_t tag = 0;
    switch (name) {
    case SO_VMA_USER_DATA:
        set_user_data(*state, value);
        return 0;
    case SO_VMA_FLOW_TAG:
        memcpy(&tag, value, sizeof tag);
        state->flow_tag.store(tag, std::memory_order_relaxed);
        return 0;
    case SO_VMA_RING_ALLOC_LOGIC:
        return set_logic(*state, value);
    default:
        return set_memory(*state, value);
    }
}

int get_option(sock::Socket &s, int name, void *value, socklen_t *length)
{
    const socklen_t size = size_of(name);
    if (size == 0)
        return fail(ENOPROTOOPT);
    if (value == nullptr || length == nullptr)
        return fail(EFAULT);
    if (*length != size)
        return fail(EINVAL);
    State *const state = state_of(s);
    if (state == nullptr)
        return fail(ENOMEM);
    read_option(s, *state, name, value);
    return 0;
}

} // namespace vma::extra
