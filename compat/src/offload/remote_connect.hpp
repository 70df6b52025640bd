// SPDX-License-Identifier: BSD-2-Clause
// How two processes on different hosts find each other: the one that accepted the TCP connection connects back over the
// RDMA device to the client's own port (doc/between-hosts.md, "Finding each other"). All of it but begin_attempt() and
// end_attempt() runs in the helper thread; the offload lock is held unless said otherwise.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>

namespace vma::sock {

class Stream;
struct Addresses;
struct Device;

bool may_reach_host(Stream &s); // false: parameters or this host say no, and it stays on the kernel

void begin_attempt(Stream &s); // it has been used enough; does nothing for a while after the peer's host has refused
void end_attempt(Stream &s);   // if one is open; an endpoint that is being connected stays
void attempt_succeeded(Stream &s);
void attempt_failed(Stream &s); // its endpoint was refused: once more later, or not for a while

bool attempts_are_open(); // no lock held
void tick_attempts();     // likewise
void on_remote_request(fid_pep *listener, fi_info *info, const void *data, std::size_t len);
void attempts_after_fork_in_child();

} // namespace vma::sock
