// SPDX-License-Identifier: BSD-2-Clause
// What a socket tells the statistics: its record of counters (compat/src/stats), and the facts about it that change
// rarely. The hot paths count in the record directly (stats/count.hpp).
#pragma once

#include <sys/socket.h>

#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/stats/count.hpp"
#include "compat/src/stats/region.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

// Of a socket that was closed meanwhile it may be the sink, or another's: counts are lost, nothing else.
inline stats::Slot &record_of(const Socket &s)
{
    return *s.record.load(std::memory_order_relaxed);
}

// What the kernel's own call returned; errno stays. No lock needed.
inline ssize_t by_os_sent(const Socket &s, ssize_t n)
{
    libc::note_kernel_act();
    stats::os_sent(record_of(s), n);
    stats::touch();
    return n;
}

// With the call's flags: what was only looked at, or is news of an error, is not received. Who counted it would have
// the capture's positions be wrong.
inline ssize_t by_os_received(const Socket &s, ssize_t n, int flags)
{
    libc::note_kernel_act();
    if (n < 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) == 0)
        stats::os_received(record_of(s), n);
    stats::touch();
    return n;
}

// recvmmsg(), sendmmsg().
int by_os_sent(const Socket &s, const mmsghdr *messages, int n);
int by_os_received(const Socket &s, const mmsghdr *messages, int n, int flags);

// What waited for the reader of a stream is not there any more, or `left` bytes of it. rx_lock or poll lock held.
inline void forget_unread(const Socket &s, std::uint64_t left = 0)
{
    stats::Counters &c = record_of(s).now;
    stats::set(c.in.bytes, stats::get(c.rx.bytes) + left);
}

// Likewise of UDP.
inline void forget_queued(const Socket &s)
{
    stats::Counters &c = record_of(s).now;
    stats::set(c.in.packets, stats::get(c.rx.packets));
    forget_unread(s);
}

// Those below are rare; any lock may be held, errno may change.
void open_record(Socket &s, int fd, int protocol, int family); // when it is tracked
void close_record(Socket &s);                                  // when it is released
void tell_way(Socket &s);                                      // mode, device or reason changed
void tell_migration(Socket &s);                                // likewise, and it moved between kernel and device
void tell_peer_user(const Socket &s, uid_t user);              // it is another one than this process's
void tell_by_vmad(const Socket &s, bool asked);                // vmad is asked for the other end, or knows of none
void tell_addresses(const Socket &s);                          // `addresses` was read
void tell_local_address(const Socket &s, int fd);              // by system calls
void tell_sender(const Socket &s, int fd, bool by_port,
                 const char *device);                // of UDP: a destination is reached by a device
void tell_limit(const Socket &s, std::size_t bytes); // of what may wait for its reader
void tell_option(const Socket &s, int level, int name, const void *value, socklen_t len); // of UDP, the kernel took it
void tell_loop(const Socket &s, bool on);
void tell_blocking(const Socket &s, bool blocking);
void accounting_after_fork_in_child();

} // namespace vma::sock
