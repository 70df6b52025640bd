// SPDX-License-Identifier: BSD-2-Clause
// Settings and state of a stream that is on an Ethernet port: the kernel's socket keeps the options, and the port's TCP
// is told. Private to the port's transport; no lock is held unless said otherwise.
#pragma once

#include <sys/socket.h>

#include "compat/src/table/stream.hpp"

struct fi_vma_tcp_state;

namespace vma::sock {

// Whoever holds no lock may find that it has left the port meanwhile.
inline bool is_on_port(const Stream &s)
{
    return s.transport.load(std::memory_order_relaxed) == &kPort;
}

// Offload, tx and rx lock held, the endpoint is open. All that the kernel's socket has been told holds for the
// endpoint; the kernel itself sends no keep-alives from here on. 0 or a negative errno.
int begin_port_options(Stream &s, int fd);
void end_port_options(Stream &s, int fd); // the kernel does it itself again

bool is_port_urgent(Stream &s); // the peer has sent urgent data, and nothing is taken any more

// Of the transport's table.
bool count_port(Stream &s, QueuedBytes &bytes);
void publish_port(Stream &s);
bool set_port_option(Stream &s, int fd, int level, int name, const void *value, socklen_t len, int &result);
void port_option_was_set(Stream &s, int fd, int level, int name, const void *value);
void correct_port_option(Stream &s, int level, int name, void *value, socklen_t len);

} // namespace vma::sock
