// SPDX-License-Identifier: BSD-2-Clause
// vmad's command line.
#pragma once

#include <string>

#include "agent.hpp"
#include "ether/guardian_message.hpp"

namespace vma::guard {

struct Options {
    std::string guardian = ether::kGuardianPath; // empty: there is none
    AgentOptions agent;
    unsigned verbose = 4; // log.hpp: Level
    bool console = false; // stays in the foreground
};

enum class Parsed { kRun, kDone, kWrong };

// kDone: help or the version was asked for, and printed. kWrong: what is wrong is on standard error.
Parsed parse_options(int argc, char **argv, Options &options);

} // namespace vma::guard
