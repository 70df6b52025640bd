// SPDX-License-Identifier: BSD-2-Clause
// The command line.
#pragma once

#include "plan.hpp"
#include "run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vma::lat {

inline constexpr std::uint16_t kDefaultPort = 11111;

struct Options {
    bool server = false;
    bool help = false;
    bool version = false;
    std::uint16_t port = kDefaultPort; // of the control connection
    int family = 0;                    // AF_UNSPEC
    int cpu = -1;
    std::string interface;

    // server
    std::string address;       // empty: every one
    std::uint64_t clients = 0; // to serve before it ends; 0: any number

    // client
    std::vector<std::string> hosts;
    std::vector<Plan> plans; // in the order in which they run
    Load load;
    int ttl = 1;
    bool loop = true;
    bool histogram = false;
    bool round_trip = false; // show whole round trips, not half of them
    std::string csv;
    std::string json;
};

Failure parse(int argc, char **argv, Options &options);

extern const char kHelp[];

} // namespace vma::lat
