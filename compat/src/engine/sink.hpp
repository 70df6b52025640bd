// SPDX-License-Identifier: BSD-2-Clause
// A poll that takes the datagrams of whichever socket (SocketXtreme): what arrives while it reads the queue goes to it,
// and not to the sockets' queues. That spares a walk over the sockets, and their locks.
#pragma once

#include <sys/uio.h>

#include "compat/src/base/loan.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::sock {

namespace udp {

struct About;

struct Sink {
    // With the poll lock held. True: it has them, and `loan` has no lender any more if they are kept where they are.
    // False: they are for the socket's queue.
    bool (*take)(Sink &sink, Socket &s, const About &about, const iovec &bytes, Loan &loan) = nullptr;
    bool is_full = false; // what comes by shared memory stays where it is
};

// Of this thread's reads of the queue, until nullptr is set. In a critical stretch (libc/critical.hpp): a signal
// handler could jump away.
void set_sink(Sink *sink);

} // namespace udp

// engine_poll(), up to so many times while nothing has come.
unsigned engine_poll_sink(udp::Sink &sink, unsigned times);

} // namespace vma::sock
