// SPDX-License-Identifier: BSD-2-Clause
// How two processes of different users find each other, without daemon or privilege: the connector listens for a while
// at an abstract name made of the ports and its socket's cookie and inode number, which the kernel tells the acceptor;
// each then shows that it holds its end (doc/rendezvous.md, doc/trust.md). The offload lock is held.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace vma::sock {

class Stream;

// Once its addresses are known: who has the other end. A peer of another user's makes it a guest's stream, and one that
// is on this host after all, under another address, is not remote. False: the kernel doesn't know yet, ask again later.
bool find_peer(Stream &s, int fd);

void meet(Stream &s, int fd);      // it has been used enough
void end_meeting(Stream &s);       // what listens for it; an endpoint that is being connected stays
void hear_broker();                // what vmad has answered
void tick_meeting(Stream &s);      // its time is over
void meeting_succeeded(Stream &s); // connected

// Whose request this is, by the cookie of a socket that listens so; nullptr: nobody's.
Stream *met_by(const void *data, std::size_t len);

} // namespace vma::sock
