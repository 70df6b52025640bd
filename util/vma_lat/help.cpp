// SPDX-License-Identifier: BSD-2-Clause
// The text of --help. man/vma_lat.1 says the same at more length.
#include "options.hpp"

namespace vma::lat {

const char kHelp[] = R"(vma_lat: latency and message rate of sockets and of libfabric endpoints

usage: vma_lat server [OPTIONS]
       vma_lat client [OPTIONS] HOST[:PORT] [HOST[:PORT] ...]

A server serves any test of any client, one client after another. Several hosts: one sender, a group of receivers
(--group and --test throughput).

What to test (each transport named runs, in this order, with each size)
  --udp                UDP sockets (the default)
  --tcp                TCP sockets
  --fabric TYPE        libfabric endpoints: msg (FI_EP_MSG) or dgram (FI_EP_DGRAM)
  --provider NAME      libfabric's provider for them (vma)
  --test TEST          ping-pong: one message under way, each a sample (the default)
                       throughput: one way, as fast as they go or at --mps
                       under-load: messages at --mps, replies as they come
  --wait HOW           how both sides wait: recvfrom (blocking, one socket; fi_cq_sread), spin, select, poll, epoll
  --size N[,N...]      bytes a message, 12 to 16777216 (64); UDP to 65507
  --sockets N          so many sockets or endpoints, each with its own port, used in turn (1)
  --mps N              messages a second (under-load: 10000; else as fast as they go)
  --reply-every N      under-load: each N-th message is answered and is a sample (1)
  --check              fill messages with a pattern, and look at every byte that arrives

How long
  --duration SECONDS   5, or without limit where --count is given; at most 86400
  --count N            messages
  --warm-up N          round trips before those that count (1000)
  --timeout MS         a reply that takes longer is lost (1000)

Multicast (UDP)
  --group ADDRESS      send to this group; replies are unicast
  --data-port N        the group's port, the first of --sockets (11112)
  --interface NAME     interface or address for the group, on either side (that of the control connection)
  --ttl N              0 to 255 (1)
  --no-loop            receivers on this host get nothing

Results (on standard output, of both sides)
  --rtt                show whole round trips; without it half of them, as one-way latency
  --histogram          a bar chart; the length of a bar is the logarithm of its count
  --csv FILE           every sample
  --json FILE          everything that is shown, as JSON
  --max-samples N      samples to keep one by one (4000000); those after them count in the histogram

Both
  --port N             TCP port of the control connection (11111)
  --cpu N              run on this CPU
  -4, -6               IPv4 or IPv6 where a name has both
  --help, --version
Server
  --address ADDRESS    listen at this address only
  --clients N          end after so many clients

Exit status: 0 fine; 1 a call failed; 2 wrong command line; 3 the server can't be reached, refuses or went away;
4 messages were damaged, or a transport that loses none lost some; 5 a signal ended the run, and the results so far
were shown (a server then ends with 0).
)";

} // namespace vma::lat
