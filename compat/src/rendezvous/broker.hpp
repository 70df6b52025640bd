// SPDX-License-Identifier: BSD-2-Clause
// What a process asks vmad's broker (doc/broker.md): who is at the other end of a connection that this network
// namespace knows nothing of. Offload lock held; nothing of it waits.
#pragma once

#include <cstdint>

#include "compat/src/rendezvous/broker_messages.hpp"

namespace vma::sock {

// Connects where there is a broker; looks for one once a second at most.
bool broker_is_there();
int broker_fd(); // readable with an answer; -1: not connected

// Whether the other end of a TCP connection has been established: it has sent a byte, or acknowledged one after the
// handshake. Before, vmad may find no other end although it is on this host.
bool has_other_end(int tcp_socket);

// False: it isn't there any more, or doesn't read.
bool ask_broker(std::uint32_t id, int tcp_socket);
void cancel_question(std::uint32_t id);

struct BrokerAnswer {
    broker::Answer what;
    int socket = -1; // private, the caller's; of the result kMet
};
// An answer that has come. False: there is none.
bool read_broker(BrokerAnswer &out);

void broker_after_fork_in_child();

} // namespace vma::sock
