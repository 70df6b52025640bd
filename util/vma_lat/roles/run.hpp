// SPDX-License-Identifier: BSD-2-Clause
// One test, from the side of the client and from that of the server, over a transport that is connected.
#pragma once

#include "util/vma_lat/measure/statistics.hpp"
#include "util/vma_lat/roles/control.hpp"
#include "util/vma_lat/transport/transport.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vma::lat {

// What only the client has to know.
struct Load {
    std::uint64_t count = 0;       // messages; 0: as long as it lasts
    std::uint64_t duration_ns = 0; // 0: until all are sent
    std::uint64_t warm_up = 1000;  // messages before those that count
    std::uint64_t rate = 0;        // messages a second; 0: as fast as they go
    std::uint64_t reply_every = 1; // under-load: each so many-th message is a sample
    std::uint64_t timeout_ns = 0;  // a reply that takes longer is lost
    std::size_t most_samples = 0;  // that are kept one by one
    bool progress = false;         // a line a second on stderr
};

struct Outcome {
    Plan plan;
    Samples samples{0};
    Counts client;
    Side side; // the client's, as `client` is
    std::vector<Counts> servers;
    std::vector<Side> server_sides;
    std::uint64_t asked = 0;  // messages that wanted a reply
    std::uint64_t lost = 0;   // of them, or where none wants one of what was sent, by the worst server
    std::uint64_t behind = 0; // messages that were sent late, by more than 100 us, for the rate wanted
    bool interrupted = false;
    Failure failure; // what ended it before its time; what was measured until then is here
};

// Room for the samples that a load will give.
std::size_t room_for(const Plan &plan, const Load &load);

void run_client(const Load &load, Transport &transport, const std::vector<Control *> &servers, Outcome &outcome);

// Until the client has finished and all that it sent arrived, or nothing more comes.
// `client` is what that side said it is, if it came to its end.
Failure run_server(const Plan &plan, Transport &transport, Control &control, Counts &counts, Side &client);

} // namespace vma::lat
