// SPDX-License-Identifier: BSD-2-Clause
// The text of --help. man/vma_lat.1 says the same at more length.
#include "util/vma_lat/options.hpp"

namespace vma::lat {

const char kHelp[] = R"(vma_lat: latency and message rate of sockets and of libfabric endpoints, RMA included

usage: vma_lat server [OPTIONS]
       vma_lat client [OPTIONS] HOST[:PORT] [HOST[:PORT] ...]
       vma_lat sweep [OPTIONS] HOST[:PORT]
       vma_lat mesh [OPTIONS] --processes N
       vma_lat mesh [OPTIONS] --rank I --peers HOST:PORT,HOST:PORT,...

A server serves any test of any client, and sweeps, one client after another. Several hosts: one sender, a group of
receivers (--group and --test throughput). A sweep measures operations of libfabric endpoints of many sizes. A mesh is
processes that all write to all others, and verify.

What to test (each transport named runs, in this order, with each size)
  --udp                UDP sockets (the default)
  --tcp                TCP sockets
  --fabric TYPE        libfabric endpoints: msg (FI_EP_MSG) or dgram (FI_EP_DGRAM)
  --provider NAME      libfabric's provider for them (vma)
  --domain NAME        libfabric's domain: a device of that provider (any; a server follows its client)
  --test TEST          ping-pong: one message under way, each a sample (the default)
                       throughput: one way, as fast as they go or at --mps
                       under-load: messages at --mps, replies as they come
  --wait HOW           how both sides wait: recvfrom (blocking, one socket; fi_cq_sread), spin, select, poll, epoll
  --size N[,N...]      bytes a message, 12 to 16777216 (64); UDP to 65507
  --sockets N          so many sockets or endpoints, each with its own port, used in turn (1)
  --mps N              messages a second (under-load: 10000; else as fast as they go)
  --reply-every N      under-load: each N-th message is answered and is a sample (1)
  --check, --verify    fill messages with a pattern, and look at every byte that arrives

Sweep (latency of single operations, then the rate of a window of them; connected endpoints, FI_EP_MSG)
  --operations LIST    of send, write, read, write-imm (all)
  --from N, --to N     smallest and largest size, bytes; each is twice the one before (1 to 8388608)
  --size N[,N...]      these sizes instead, 1 to 16777216
  --count N            operations one at a time, on each connection (by size: 16 to 1000)
  --stream N           operations in the window, on each connection; 0: none (by size: 64 to 20000)
  --window N           operations under way in it, 1 to 1024 (64); as memory and queues allow
  --warm-up N          operations before those that count (100)
  --connections N      connections, 1 to 256 (1)

Progress model (sweep and mesh; both sides of a sweep follow the client)
  --wait HOW           poll: read the queues without end (the default); channel: sleep on the descriptor of one queue;
                       epoll: one epoll set for all queues of a thread
  --cq WHICH           own: a completion queue for each connection (sweep); shared: one for all (mesh)
  --threads HOW        one: for all connections (the default); each: a thread for each, with --cq own

Mesh (write with immediate data, every block verified)
  --processes N        start so many here, 2 to 256
  --rank I             be this member, from 0, of those that --peers names in the order of their ranks
  --peers LIST         HOST:PORT of each member's control connection
  --size N, --count N  bytes a block (65536), blocks to each other member (1000)
  --window N           blocks under way to each other member (16)
  --seed N             of the blocks' bytes (1)
  --listen-fd N        this descriptor listens already; the verdict is another's (how --processes starts its members)

How long
  --duration SECONDS   5, or without limit where --count is given; at most 86400
  --count N            messages
  --warm-up N          round trips before those that count (1000)
  --timeout MS         a reply that takes longer is lost (1000); a sweep or mesh ends (10000)

Multicast (UDP)
  --group ADDRESS      send to this group; replies are unicast
  --data-port N        the group's port, the first of --sockets (11112)
  --interface NAME     interface or address for the group, on either side (that of the control connection)
  --ttl N              0 to 255 (1)
  --no-loop            receivers on this host get nothing

Results (on standard output, of both sides)
  --rtt                show whole round trips; without it half of them, as one-way latency
  --histogram          a bar chart; the length of a bar is the logarithm of its count
  --csv FILE           every sample; of a sweep, every line
  --json FILE          everything that is shown, as JSON
  --max-samples N      samples to keep one by one (4000000); those after them count in the histogram

Both
  --port N             TCP port of the control connection (11111)
  --cpu N              run on this CPU
  -4, -6               IPv4 or IPv6 where a name has both
  --help, --version
Server
  --address ADDRESS    listen at this address only (of a mesh: what its members talk over, 127.0.0.1)
  --clients N          end after so many clients

Exit status: 0 fine; 1 a call failed; 2 wrong command line; 3 the server, or a member, can't be reached, refuses or went
away, or nothing came in time;
4 messages were damaged, or a transport that loses none lost some; 5 a signal ended the run, and the results so far
were shown (a server then ends with 0).
)";

} // namespace vma::lat
