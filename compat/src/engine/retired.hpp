// SPDX-License-Identifier: BSD-2-Clause
// Endpoints that their sockets have left in front of a fork(): closed to the peer, looked at by nobody. Closing one
// takes two munmap() and a message, 30 us where system calls are dear, and the helper thread does it behind the fork:
// 10,000 of them in front of it were 0.3 s.
#pragma once

#include <rdma/fi_endpoint.h>

namespace vma::sock {

class Stream;

// Offload lock held. The endpoint is a local one that is cut and has no unread bytes. False: the caller closes it, as
// one of this socket waits.
bool retire(Stream &s, fid_ep &endpoint);
void retired_must_stay();           // a fork comes: the helper thread closes no more for now
void retired_may_go();              // it is over; offload lock held, no memory to be had
void wake_for_retired();            // the helper thread, which may be asleep; offload lock held, behind all handlers
bool close_some_retired();          // helper thread, no lock held. True: there are more
void close_all_retired();           // offload lock held
void retired_after_fork_in_child(); // they are the parent's

} // namespace vma::sock
