// SPDX-License-Identifier: BSD-2-Clause
// The command line.
#pragma once

#include "util/vma_lat/measure/plan.hpp"
#include "util/vma_lat/measure/step.hpp"
#include "util/vma_lat/roles/run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vma::lat {

inline constexpr std::uint16_t kDefaultPort = 11111;

enum class Role : std::uint8_t { kServer, kClient, kSweep, kMesh };

// What a member of a mesh does; all of them say the same.
struct MeshPlan {
    std::uint32_t processes = 0;
    std::uint32_t size = 65536; // bytes a block
    std::uint32_t window = 16;  // blocks under way to each other member
    std::uint64_t count = 1000; // blocks to each other member
    std::uint64_t seed = 1;
    Progress progress{Model::kPoll, true, false};
    std::string provider;
};

struct Options {
    Role role = Role::kServer;
    bool help = false;
    bool version = false;
    std::uint16_t port = kDefaultPort; // of the control connection
    int family = 0;                    // AF_UNSPEC
    int cpu = -1;
    std::string interface;
    std::string domain; // libfabric's; empty: any

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

    // sweep
    std::vector<Step> steps;

    // mesh
    MeshPlan mesh;
    int rank = -1; // -1: all members are to be started here
    std::vector<std::string> peers;
    int listen_fd = -1; // where this member listens already
};

Failure parse(int argc, char **argv, Options &options);

extern const char kHelp[];

} // namespace vma::lat
