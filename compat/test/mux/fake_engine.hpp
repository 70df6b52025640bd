// SPDX-License-Identifier: BSD-2-Clause
// What a fake socket is, and the engine that brings its events: a ring under a mutex.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>
#include <deque>

#include "compat/src/engine/engine.hpp"
#include "compat/src/mux/mux.hpp"
#include "compat/test/mux/fake_socket.hpp"

namespace vma::sock {

class Socket
{
public:
    std::atomic<bool> used{false};
    std::atomic<bool> offloaded{false};
    std::atomic<bool> pinned{false};
    std::atomic<bool> full{false};
    std::atomic<int> bytes{0}; // by the endpoint, unread
    std::atomic<int> descriptors{0};
    int peer = -1;
    Mutex watch_lock;
    Watcher *watchers = nullptr;
    MuxHook hook;
};

} // namespace vma::sock

namespace vma::fake {

struct Event {
    sock::Socket *socket;
    std::uint32_t events;
    int bytes = 0; // that are there once it is taken
};

struct Engine {
    sock::Mutex lock;
    sock::Mutex poll_lock;
    std::deque<Event> queue;
    bool armed = false;
    const int wait_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<int> asleep{0};
};

Engine &engine();
void notify(sock::Socket &s, std::uint32_t events);
void write_byte(sock::Socket &s); // by the kernel

} // namespace vma::fake
