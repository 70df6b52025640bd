// SPDX-License-Identifier: BSD-2-Clause
// vma_lat: latency and message rate of UDP and TCP sockets and of libfabric endpoints. See man/vma_lat.1.
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/roles/mesh.hpp"
#include "util/vma_lat/roles/session.hpp"
#include "util/vma_lat/roles/sweep.hpp"
#include "util/vma_lat/udp_lat.hpp"

#include "config.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>

namespace vma::lat {

int complain(const Error &error)
{
    std::fflush(stdout);
    std::fprintf(stderr, "vma_lat: %s\n", error.text.c_str());
    return error.status;
}

namespace {

Failure pin(int cpu)
{
    if (cpu < 0)
        return {};
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return error(kExitUsage, "--cpu: this process may not run on CPU %d, or there is none", cpu);
    return {};
}

} // namespace

} // namespace vma::lat

int main(int argc, char **argv)
{
    using namespace vma::lat;
    if (is_udp_lat(argv[0]))
        return be_udp_lat(argc, argv);
    Options options;
    if (auto failure = parse(argc, argv, options))
        return complain(*failure);
    if (options.help) {
        std::fputs(kHelp, stdout);
        return kExitFine;
    }
    if (options.version) {
        std::printf("vma_lat %s\n", PACKAGE_VERSION);
        return kExitFine;
    }
    if (auto failure = pin(options.cpu))
        return complain(*failure);
    options.load.progress = isatty(STDERR_FILENO) != 0;
    catch_signals();
    switch (options.role) {
    case Role::kServer:
        return be_server(options);
    case Role::kClient:
        return be_client(options);
    case Role::kSweep:
        return be_sweep(options);
    case Role::kMesh:
        return be_mesh(options);
    }
    return kExitFailed;
}
