// SPDX-License-Identifier: BSD-2-Clause
// Streams on an Ethernet port: TCP of our own to any peer. The kernel opens and closes the connection, the port carries
// both directions whole in between (doc/wire-sockets.md), so none of the spans of doc/stream-protocol.md is needed.
// What others need of it is in its table, kPort.
#pragma once

namespace vma::sock {

class Stream;

// Helper thread, offload lock held. Finds the port that leads to the peer, opens it if it is the first time. The socket
// is offloaded by one of its next calls; false: there is none, or it can't be used (said in the log where that is
// news), and it stays on the kernel.
bool find_port(Stream &s);

// Offload lock held, no other lock. The connection leaves the kernel, unless somebody is in a call on it: another call
// tries again.
void offload_to_port(Stream &s, int fd);

} // namespace vma::sock
