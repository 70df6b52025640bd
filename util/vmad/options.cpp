// SPDX-License-Identifier: BSD-2-Clause
#include "options.hpp"

#include <getopt.h>

#include <climits>
#include <cstdio>

#include "config.h"

#include "core/parse_number.hpp"
#include "log.hpp"

namespace vma::guard {

namespace {

constexpr char kHelp[] =
    R"(vmad: resets the TCP connections that a process leaves behind on an Ethernet port, and introduces the ends of others

usage: vmad [OPTIONS]

  --console               stays in the foreground, and prints what it has to say there; else it is a daemon, and syslog's
  -n, --notify-dir DIR    where processes of the agent protocol have their files (/tmp/vma)
  -r, --retry-interval MS until a peer is asked again, 1 to 60000 (1000)
      --force-rst         resets peers itself; else this host's kernel does, by what they answer
      --broker PATH       where processes at both ends of a connection within this host are introduced to each other
                          (/run/vma/broker); empty: nowhere
      --config FILE       which of them may be (/etc/vmad.conf); else those of one user
      --cgroup PATH       the tree of control groups whose connections are known (where version 2 is mounted)
      --broker-connections NUMBER  that are known, at most, 1024 to 4194304 (65536; 160 bytes each)
      --broker-patience MS  until who asked first is told that the other hasn't, 1 to 60000 (2000)
  -v, --verbose LEVEL     0: nothing, 1: what ends it, 2: errors, 3: warnings, 4: ends of processes, 5: connections,
                          6: messages (4)
  -p, --pid NUMBER        of processes of the agent protocol, at most (1024)
  -f, --fid NUMBER        of connections of each of them, at most (65536; 1048576 in all)
      --agent-socket PATH the agent protocol's socket (/var/run/vma_agent.sock); empty: none
      --lock-file PATH    says that there is one with such a socket (/var/lock/vmad.lock)
      --socket PATH       the guardian's socket (/run/vma/vmad.sock); FI_VMA_GUARDIAN of the processes names the same
      --version
  -h, --help

SIGTERM and SIGINT end it.
)";

enum : int {
    kConsole = 256,
    kForceReset,
    kAgentSocket,
    kLockFile,
    kSocket,
    kVersion,
    kBroker,
    kConfig,
    kCgroup,
    kConnections,
    kPatience
};

constexpr option kOptions[] = {
    {"console", no_argument, nullptr, kConsole},
    {"notify-dir", required_argument, nullptr, 'n'},
    {"pid", required_argument, nullptr, 'p'},
    {"fid", required_argument, nullptr, 'f'},
    {"force-rst", no_argument, nullptr, kForceReset},
    {"verbose", required_argument, nullptr, 'v'},
    {"retry-interval", required_argument, nullptr, 'r'},
    {"agent-socket", required_argument, nullptr, kAgentSocket},
    {"lock-file", required_argument, nullptr, kLockFile},
    {"socket", required_argument, nullptr, kSocket},
    {"broker", required_argument, nullptr, kBroker},
    {"config", required_argument, nullptr, kConfig},
    {"cgroup", required_argument, nullptr, kCgroup},
    {"broker-connections", required_argument, nullptr, kConnections},
    {"broker-patience", required_argument, nullptr, kPatience},
    {"version", no_argument, nullptr, kVersion},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

bool take_number(const char *option, const char *text, std::uint32_t least, std::uint32_t most, std::uint32_t &value)
{
    if (core::parse_number(text, most, value) && value >= least)
        return true;
    std::fprintf(stderr, "vmad: %s is \"%s\", expected a number from %u to %u\n", option, text, least, most);
    return false;
}

bool take_number_option(int found, Options &options)
{
    constexpr std::uint32_t kLongestInterval = 60000;
    std::uint32_t value = 0;
    switch (found) {
    case 'p':
        return take_number("--pid", optarg, 1, INT_MAX, options.agent.most_processes);
    case 'f':
        return take_number("--fid", optarg, 1, INT_MAX, options.agent.most_open);
    case 'v':
        return take_number("--verbose", optarg, 0, kMostVerbose, options.verbose);
    case kConnections:
        return take_number("--broker-connections", optarg, 1024, 1 << 22, options.broker.connections);
    case kPatience:
        if (!take_number("--broker-patience", optarg, 1, kLongestInterval, value))
            return false;
        options.broker.waiting.patience = value * inet::kMillisecond;
        return true;
    default:
        if (!take_number("--retry-interval", optarg, 1, kLongestInterval, value))
            return false;
        options.agent.prober.interval = value * inet::kMillisecond;
        return true;
    }
}

// kRun: go on.
Parsed take_option(int found, Options &options)
{
    switch (found) {
    case kConsole:
        options.console = true;
        return Parsed::kRun;
    case kForceReset:
        options.agent.prober.force_reset = true;
        return Parsed::kRun;
    case kAgentSocket:
        options.agent.socket = optarg;
        return Parsed::kRun;
    case kLockFile:
        options.agent.lock = optarg;
        return Parsed::kRun;
    case kSocket:
        options.guardian = optarg;
        return Parsed::kRun;
    case kBroker:
        options.broker.socket = optarg;
        return Parsed::kRun;
    case kConfig:
        options.broker.rules = optarg;
        return Parsed::kRun;
    case kCgroup:
        options.broker.cgroup = optarg;
        return Parsed::kRun;
    case 'n':
        options.agent.folder = optarg;
        return Parsed::kRun;
    case kVersion:
        std::printf("vmad %s\n", PACKAGE_VERSION);
        return Parsed::kDone;
    case 'h':
        std::fputs(kHelp, stdout);
        return Parsed::kDone;
    case '?':
        return Parsed::kWrong;
    default:
        return take_number_option(found, options) ? Parsed::kRun : Parsed::kWrong;
    }
}

} // namespace

Parsed parse_options(int argc, char **argv, Options &options)
{
    for (int found; (found = getopt_long(argc, argv, "n:p:f:v:r:h", kOptions, nullptr)) != -1;) {
        if (const Parsed parsed = take_option(found, options); parsed != Parsed::kRun)
            return parsed;
    }
    if (optind == argc)
        return Parsed::kRun;
    std::fprintf(stderr, "vmad: takes no arguments, but %s was given; see vmad --help\n", argv[optind]);
    return Parsed::kWrong;
}

} // namespace vma::guard
