// SPDX-License-Identifier: BSD-2-Clause
// The sockets' states of the extra API, and the default that threads have for new sockets.
#include "compat/src/extra/state.hpp"

#include <new>

#include "compat/src/config/params.hpp"
#include "compat/src/extra/packets.hpp"
#include "compat/src/extra/ring.hpp"
#include "compat/src/extra/shared.hpp"
#include "compat/src/extra/threads.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::extra {

[[VMA_TABLE]] constinit Tables g_tables;

namespace {

void forget_ready(State &state)
{
    state.first_ready = state.last_ready = nullptr;
    state.ready_count = 0;
    state.ready_bytes = 0;
}

void begin_anew(State &state, std::uint32_t generation)
{
    state.user_data = 0;
    state.has_user_data = false;
    state.flow_tag = 0;
    state.dummy_sent = 0;
    state.logic = {};
    state.memory = {};
    state.packets = nullptr;
    state.callback = nullptr;
    state.end_told = false;
    state.ring_fd = -1;
    forget_ready(state);
    state.generation = generation;
}

} // namespace

sock::Mutex &state_lock()
{
    return g_tables.lock;
}

State *find_state(const sock::Socket &s)
{
    State *const state = s.extra.load(std::memory_order_acquire);
    const bool fits = state != nullptr && state->generation == s.generation.load(std::memory_order_acquire);
    return fits ? state : nullptr;
}

State *state_of(sock::Socket &s)
{
    if (State *const state = find_state(s))
        return state;
    const sock::LockGuard guard(g_tables.lock);
    State *state = s.extra.load(std::memory_order_acquire);
    if (state == nullptr)
        state = new (std::nothrow) State;
    if (state == nullptr)
        return nullptr;
    const std::uint32_t generation = s.generation.load(std::memory_order_acquire);
    if (state->generation != generation)
        begin_anew(*state, generation);
    s.extra.store(state, std::memory_order_release);
    return state;
}

std::uint64_t user_data_of(const sock::Socket &s, int fd)
{
    const State *const state = find_state(s);
    return state != nullptr ? user_data_of(*state, fd) : static_cast<std::uint64_t>(fd);
}

// ---- threads

bool set_thread_rule(bool offload, pthread_t thread)
{
    const sock::LockGuard guard(g_tables.lock);
    const std::size_t count = g_tables.rule_count.load(std::memory_order_relaxed);
    std::size_t place = 0;
    while (place < count && ::pthread_equal(g_tables.rules[place].thread, thread) == 0)
        ++place;
    if (place == kMostThreads)
        return false;
    g_tables.rules[place] = {thread, offload};
    if (place == count)
        g_tables.rule_count.store(count + 1, std::memory_order_release);
    return true;
}

bool offloads_here()
{
    const bool otherwise = config::params().offloaded_sockets;
    if (g_tables.rule_count.load(std::memory_order_acquire) == 0) [[likely]]
        return otherwise;
    const pthread_t self = ::pthread_self();
    const sock::LockGuard guard(g_tables.lock);
    const std::size_t count = g_tables.rule_count.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < count; ++i)
        if (::pthread_equal(g_tables.rules[i].thread, self) != 0)
            return g_tables.rules[i].offload;
    return otherwise;
}

void end(sock::Socket &s)
{
    State *const state = find_state(s);
    if (state == nullptr) [[likely]]
        return;
    forget_ready(*state);
    drop_all(s);
}

void after_fork_in_child()
{
    g_tables.lock.reset();
    forget_ring();
    ring_after_fork_in_child();
    packets_after_fork_in_child();
    for (std::uint32_t i = 0; i < sock::pool_size(); ++i)
        if (State *const state = sock::socket_by_index(i)->extra.load(std::memory_order_acquire)) {
            state->ready_lock.reset();
            forget_ready(*state); // the memory is the parent's
            state->ring_fd.store(-1, std::memory_order_relaxed);
        }
}

} // namespace vma::extra
