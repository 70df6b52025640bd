// SPDX-License-Identifier: BSD-2-Clause
// SO_MAX_PACING_RATE of accelerated sockets: the rate a socket has, and who waits for its turn. The kernel's socket has
// the rate too, in its own form, and limits what goes by it. Streams are paced by their endpoint, datagrams here.
// doc/pacing.md
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "compat/src/table/pacing_state.hpp"

namespace vma::sock {

class Socket;
class Stream;

// The form of the option that libvma's programs know (vma_rate_limit_t): 12 bytes.
struct VmaRateLimit {
    std::uint32_t rate;           // kbit a second, 0: no limit
    std::uint32_t max_burst;      // bytes, 0: ours to choose
    std::uint16_t typical_packet; // bytes, 0: not known
};
static_assert(sizeof(VmaRateLimit) == 12);

// The option's calls.
int set_pacing_rate(Socket &s, int fd, const void *value, socklen_t len);
int get_pacing_rate(Socket &s, int fd, void *value, socklen_t *len);

// What the kernel's socket has is what holds: it may have come by accept() or from another process. Before a socket
// sends by an endpoint. tx_lock held.
void adopt_pacing_rate(Socket &s, int fd);
// tx_lock held, before the endpoint carries on after the kernel, which has paced what it sent meanwhile: of that time
// nothing is earned, nor made up for (not of a connection to another host: there it may be the NIC that paces). What it
// has still to send goes at the same rate: the socket is held for so long, and its pieces are of no bytes until
// paced_span_has_begun() has said so.
void begin_paced_span(Stream &s);
bool paced_span_has_begun(Stream &s);

// tx_lock held. Whether a datagram of this length may go now, and counts it; if not, it is held until it may.
bool may_go(Socket &s, std::size_t length);
// The endpoint has refused a write: notes until when, if that is because of the rate.
void note_refusal(Stream &s);

// Its watchers are told when it is held no more. No lock needed.
void tell_when_due(Socket &s);

// The helper thread's sleep: for so many ms (-1: for ever), telling watchers meanwhile whose turn has come. It gives
// back g_helper.turn where it sleeps. Bit n: fds[n] has news; one of -1 has none.
constexpr std::size_t kHelperFds = 5;
unsigned sleep_and_give_turns(const int (&fds)[kHelperFds], int milliseconds);
void pacing_after_fork_in_child(); // before forget_pacing_turn() of each socket

} // namespace vma::sock
