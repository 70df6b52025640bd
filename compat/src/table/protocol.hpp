// SPDX-License-Identifier: BSD-2-Clause
// What a tracked socket's protocol does for it: one table for streams (stream_protocol.cpp) and one for datagrams
// (udp/protocol.cpp). Calls that every protocol has go through these tables; nobody else asks what a socket is.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/stats/layout.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

struct SharedLeftovers;

enum class Closing { kNow, kBehindFork }; // of what costs time and nobody waits for (retired.hpp)

inline constexpr std::size_t kNameMax = 160;

// Every function is there. Unless it says otherwise it takes no lock of the socket's for held, and returns what the
// libc call of its name does, with errno.
struct Protocol {
    const char *name;
    bool messages; // borders are kept: what a receive has no room for is gone, offsets are within one message

    // ---- calls (send.cpp, receive.cpp, control.cpp). The receiving ones do not ask the program's receive callback.
    ssize_t (*send)(Socket &s, int fd, const void *buf, std::size_t len, int flags);
    ssize_t (*send_to)(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to,
                       socklen_t to_len);
    ssize_t (*send_msg)(Socket &s, int fd, const msghdr *msg, int flags);
    ssize_t (*send_file)(Socket &s, int fd, int in_fd, off64_t *offset, std::size_t count);
    ssize_t (*receive)(Socket &s, int fd, void *buf, std::size_t len, int flags);
    ssize_t (*receive_from)(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from,
                            socklen_t *from_len);
    ssize_t (*receive_msg)(Socket &s, int fd, msghdr *msg, int flags);
    // Several messages at once by the kernel alone; false: they are moved one by one. `n` is what the call returns.
    bool (*send_messages_at_once)(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, int &n);
    bool (*receive_messages_at_once)(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout,
                                     int &n);
    bool (*only_kernel_brings)(const Socket &s); // the next messages: they can be had in one call
    int (*bytes_readable)(Socket &s, int fd, int *count);
    int (*bytes_unsent)(Socket &s, int fd, unsigned long request, int *count);
    int (*at_mark)(Socket &s, int fd, int *mark);
    int (*shut_down)(Socket &s, int fd, int how);
    bool (*admits_option)(Socket &s, int level, int name); // false: with errno; it may be the kernel's for good now
    int (*set_option)(Socket &s, int fd, int level, int name, const void *value, socklen_t len);
    int (*get_option)(Socket &s, int fd, int level, int name, void *value, socklen_t *len);

    // ---- readiness, of an offloaded socket
    std::uint32_t (*ready_events)(Socket &s, int fd, std::uint32_t interest);
    std::uint32_t (*ready_events_fast)(const Socket &s, std::uint32_t interest);
    void (*note_kernel_events)(Socket &s, std::uint32_t events); // besides what all do
    bool (*has_input)(const Socket &s);                          // of the endpoint
    bool (*waits_for_kernel)(const Socket &s, std::uint32_t interest);
    bool (*sends_by_endpoint)(const Socket &s);    // now, so that its rate limit is the endpoint's
    bool (*receives_by_endpoint)(const Socket &s); // nothing else brings what a thread waits for. rx_lock held
    bool (*tells_what_came_before)(const Socket &s);
    Carrier (*kernel_only_carrier)(const Socket &s);              // who tells of its events while it is kernel-only
    std::uint32_t (*place)(const Socket &s, std::uint32_t count); // where a thread sleeps for it (places.hpp)

    // ---- its life
    void (*begin)(Socket &s, int fd, int family); // it is tracked
    // Tracked, of another process that left unread bytes in memory that both have: it is offloaded until they are read.
    // nullptr: no memory.
    Socket *(*begin_foreign)(int fd, int family, SharedLeftovers *unread);
    void (*end)(Socket &s, int fd); // its last descriptor is closed
    // Before end(), no lock is held. True: the helper thread releases it, once the peer has answered or did not in
    // time.
    bool (*begin_linger)(Socket &s, int fd);
    void (*start_leaving)(Socket &s, Heir heir);
    // Behind start_leaving(): it is kernel-only again, at `until_ns` of CLOCK_MONOTONIC at the latest. No lock held.
    void (*finish_leaving)(Socket &s, std::int64_t until_ns, Heir heir, Closing closing);
    void (*fall_back)(Socket &s, bool keep_unread, Closing closing); // offload lock held
    void (*stop_offloading)(Socket &s); // it leaves at once if it is offloaded, and stays so till then. Offload lock
    bool (*may_have_peer)(const Socket &s); // now, or one is about to find it
    void (*try_ready)(Socket &s);           // rx_lock or the poll lock held
    void (*share_unread)(Socket &s);        // rx_lock held
    bool (*take_alone)(Socket &s);          // no other process has it any more; false: not yet
    void (*begin_in_child)(Socket &s);      // in the child of a fork: locks are free, nobody is in a call
    void (*leave_in_child)(Socket &s);      // likewise, once all sockets are so far: what is left is the parent's

    // ---- what the log and vma_stats say
    const char *(*print_name)(const Socket &s, char (&out)[kNameMax]);
    bool (*has_to_explain)(Socket &s); // why it was never accelerated; reads the addresses that the line names
    std::uint32_t (*calls_before_offload)(const Socket &s);
    const char *(*device_name)(const Socket &s);
    const char *(*queue_name)(const Socket &s); // of the completion queue that it is on
    stats::Way (*way)(const Socket &s);
};

// Where the tables lie: the loader writes their pointers, and it writes to that page anyway (libc/sections.hpp).
namespace storage {
extern Protocol streams;
extern Protocol datagrams;
} // namespace storage

inline constexpr const Protocol &kStreamProtocol = storage::streams;

namespace udp {
inline constexpr const Protocol &kProtocol = storage::datagrams;
}

} // namespace vma::sock
