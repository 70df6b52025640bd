// SPDX-License-Identifier: BSD-2-Clause
// Threads that wait each for a socket of its own sleep at its place by futex(2) (FI_VMA_PLACES of the provider): what
// comes for the socket wakes them and nobody else, by one system call on each side. What the kernel has for the socket
// meanwhile, the helper thread hears and tells.
#pragma once

#include <rdma/fi_ext_vma.h>

#include <atomic>
#include <cstdint>

#include "compat/src/engine/engine.hpp"

namespace vma::sock {

// Of the main ring's queue, until they are closed; offload lock held. No socket has an endpoint then. False: somebody
// is there still, who needs the queue's memory.
void open_places(const fi_vma_places &places);
bool close_places();
void places_after_fork_in_child();

// `places`, `count` and `open` are written with the offload lock held; all are read without.
struct Places {
    std::atomic<std::uint32_t> sleepers{0}; // threads that sleep at one, or are about to; they count themselves
    std::atomic<fi_vma_place *> places{nullptr};
    std::atomic<std::uint32_t> count{0};
    std::atomic<bool> open{false};
    std::atomic<int> news{-1}; // an epoll set of sockets that somebody sleeps for, each until it has told once
    std::atomic<std::uint32_t> news_number{1}; // of the set: a child's is another one than its parent's
    std::atomic<std::uint64_t> sleeps{0};
    std::atomic<std::uint64_t> wakes{0};
};

// By the counters.
struct PlaceSleeps {
    std::uint64_t begun = 0;
    std::uint64_t woken = 0; // of those, by somebody who had something
};
PlaceSleeps sleeps_at_places();

// Whether the helper thread has yet to tell of the kernel what was asked for by place_for_input().
bool is_heard_of(const Socket &s);

// Of the errors of a socket's datagrams, while it is open, whoever sleeps for it. Offload lock held.
void hear_of_errors(Socket &s, int fd);

// What is heard for it; the helper thread polls the descriptor, -1 while nobody has slept so, and then tells.
int kernel_news_fd();
void tell_kernel_news();

} // namespace vma::sock
