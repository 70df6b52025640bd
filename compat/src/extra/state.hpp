// SPDX-License-Identifier: BSD-2-Clause
// What the extra API keeps of a socket: options and counters. Memory is made at the first call that needs it, and stays
// with the Socket.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "compat/src/extra/extra.hpp"
#include "compat/src/table/socket_state.hpp"
#include <mellanox/vma_extra.h>

namespace vma::extra {

struct Packet;

struct State {
    std::uint32_t generation = 0; // of the socket that it is about
    std::atomic<std::uint64_t> user_data{0};
    std::atomic<bool> has_user_data{false};
    std::atomic<std::uint32_t> flow_tag{0};
    std::atomic<std::uint64_t> dummy_sent{0}; // n_tx_dummy
    vma_ring_alloc_logic_attr logic = {};     // the last one that was set; state_lock()
    iovec memory = {};                        // likewise
    std::atomic<vma_recv_callback_t> callback{nullptr};
    std::atomic<void *> callback_context{nullptr};
    std::atomic<bool> end_told{false}; // by socketxtreme_poll()
    std::atomic<int> ring_fd{-1};      // the number that the ring knows it by; -1: it is not in there
    sock::Mutex ready_lock;            // of what a callback has let through, and is not read yet
    Packet *first_ready = nullptr;
    Packet *last_ready = nullptr;
    sock::Racy<std::uint32_t> ready_count = 0;
    sock::Racy<std::uint32_t> ready_bytes = 0;
    Packet *packets = nullptr; // that the program holds; the packets' lock
};

// Of an open socket; made where there is none. nullptr: no memory.
State *state_of(sock::Socket &s);
// nullptr: it has none.
State *find_state(const sock::Socket &s);

// What completions of it say; `fd` where the program has not set it.
inline std::uint64_t user_data_of(const State &state, int fd)
{
    return state.has_user_data.load(std::memory_order_acquire) ? state.user_data.load(std::memory_order_relaxed)
                                                               : static_cast<std::uint64_t>(fd);
}
std::uint64_t user_data_of(const sock::Socket &s, int fd);

} // namespace vma::extra
