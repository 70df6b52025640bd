// SPDX-License-Identifier: BSD-2-Clause
// Calls of the program's that are inside the kernel on a plain socket, counted in the socket: it isn't lifted under them.
// A call may be left without its destructor running, by siglongjmp or cancellation: each thread knows which it has open.
#pragma once

#include "compat/src/socket/stream.hpp"

namespace vma::sock {

// While it is in here, START can't come: READY waits for it.
class BareReceive
{
public:
    explicit BareReceive(Socket &s);
    ~BareReceive();
    BareReceive(const BareReceive &) = delete;
    BareReceive &operator=(const BareReceive &) = delete;

private:
    Socket &s_;
};

// While it is in here, the peer isn't told of an endpoint's start: what it sends is not counted yet.
class BareSend
{
public:
    explicit BareSend(Socket &s);
    ~BareSend();
    BareSend(const BareSend &) = delete;
    BareSend &operator=(const BareSend &) = delete;

private:
    Socket &s_;
};

void recount_bare_calls(); // in a forked child, where the counters begin anew and this thread is the only one

} // namespace vma::sock
