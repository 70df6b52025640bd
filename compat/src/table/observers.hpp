// SPDX-License-Identifier: BSD-2-Clause
// Whoever is above the sockets and is told of their changes, or asked about them: the multiplexers (mux/) and the extra
// API (extra/). Each has one table, so that no layer below includes theirs.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

class Socket;

// mux/observer.cpp; what each does says mux/mux.hpp. No watcher lock is held.
struct Multiplexers {
    bool (*may_follow)(Socket &s);
    bool (*became_offloaded)(Socket &s);
    void (*became_kernel_only)(Socket &s);
    bool (*tells_edges)(Socket &s);
    std::uint64_t (*ring_owner)(Socket &s);
    bool (*descriptor_closed)(Socket &s, int fd, bool last);
    bool (*leave_sets)();
    void (*passed)(int fd);
    void (*before_exec)();
    void (*exec_failed)();
    bool (*fork_prepare)();
    void (*fork_parent)();
    void (*fork_child)();
};
extern const Multiplexers kMultiplexers;

// extra/observer.cpp; what each does says extra/extra.hpp. No lock is held.
struct ExtraApi {
    int (*set_option)(Socket &s, int fd, int name, const void *value, socklen_t length);
    int (*get_option)(Socket &s, int name, void *value, socklen_t *length);
    void (*ask_ring_logic)(const Socket &s, std::int32_t &logic, std::uint32_t &user_id);
    ssize_t (*receive_screened)(Socket &s, int fd, msghdr &message, int flags);
    bool (*screen)(Socket &s, int fd);
    bool (*has_ready)(const Socket &s);
    std::size_t (*bytes_ready)(const Socket &s);
    void (*end)(Socket &s);
    void (*after_fork_in_child)();
};
extern const ExtraApi kExtraApi;

// setsockopt() and getsockopt() of SOL_SOCKET: the option is the extra API's.
inline bool is_extra_option(int level, int name)
{
    constexpr int kFirst = 2800;
    constexpr int kLast = 2821;
    return level == SOL_SOCKET && name >= kFirst && name <= kLast;
}

} // namespace vma::sock
