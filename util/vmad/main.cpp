// SPDX-License-Identifier: BSD-2-Clause
// vmad, the guardian: when a process dies, the peers of its TCP connections over Ethernet ports hear a reset at once. See
// man/vmad.8.
#include <getopt.h>

#include <cstdio>

#include "config.h"

#include "daemon.hpp"

namespace {

constexpr char kHelp[] = R"(vmad: resets the TCP connections that a process leaves behind on an Ethernet port

usage: vmad [OPTIONS]

  --socket PATH   listens there (/run/vma/vmad.sock); FI_VMA_GUARDIAN of the processes names the same
  --verbose       prints each connection
  --help
  --version

Stays in the foreground. SIGTERM and SIGINT end it.
)";

constexpr option kOptions[] = {
    {"socket", required_argument, nullptr, 's'},
    {"verbose", no_argument, nullptr, 'v'},
    {"help", no_argument, nullptr, 'h'},
    {"version", no_argument, nullptr, 'V'},
    {nullptr, 0, nullptr, 0},
};

constexpr int kFine = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int serve(const char *path, bool verbose)
{
    vma::guard::Daemon daemon;
    if (const std::string error = daemon.open(path, verbose); !error.empty()) {
        std::fprintf(stderr, "vmad: %s\n", error.c_str());
        return kFailed;
    }
    std::printf("vmad listens at %s\n", path);
    std::fflush(stdout);
    daemon.run();
    return kFine;
}

} // namespace

int main(int argc, char **argv)
{
    const char *path = vma::ether::kGuardianPath;
    bool verbose = false;
    for (int found; (found = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
        switch (found) {
        case 's':
            path = optarg;
            break;
        case 'v':
            verbose = true;
            break;
        case 'h':
            std::fputs(kHelp, stdout);
            return kFine;
        case 'V':
            std::printf("vmad %s\n", PACKAGE_VERSION);
            return kFine;
        default:
            return kUsage;
        }
    }
    if (optind != argc) {
        std::fprintf(stderr, "vmad: takes no arguments, but %s was given; see vmad --help\n", argv[optind]);
        return kUsage;
    }
    return serve(path, verbose);
}
