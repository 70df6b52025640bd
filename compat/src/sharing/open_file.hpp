// SPDX-License-Identifier: BSD-2-Clause
// What belongs to the open file, so that each process that holds the socket may change it, and is kept here as well, as
// the hot paths look at it: how calls wait, and what is shut down.
#pragma once

#include <cstdint>

namespace vma::sock {

class Socket;

// Of the kernel. (The header that names them and the one that has all of tcp_info can't both be included.)
enum TcpState : std::uint8_t {
    kEstablished = 1,
    kFinWait1 = 4,
    kFinWait2 = 5,
    kTimeWait = 6,
    kClose = 7, // also where the kernel doesn't tell
    kCloseWait = 8,
    kLastAck = 9,
    kClosing = 11,
};
std::uint8_t tcp_state(int fd);
// The peer's FIN came, or the connection is gone.
inline bool peer_has_ended(std::uint8_t state)
{
    return state != kEstablished && state != kFinWait1 && state != kFinWait2;
}

// How calls wait, which another process that has the socket may have changed.
void follow_nonblocking(Socket &s, int fd);

// Of a socket that others held and this process has alone again: the kernel is asked for it anew. False: another one
// has shut it down, so that it is pinned to the kernel, which alone knows how far. Offload lock held.
bool follow_open_file(Socket &s);

} // namespace vma::sock
