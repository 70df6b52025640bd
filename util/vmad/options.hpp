// SPDX-License-Identifier: BSD-2-Clause
// vmad's command line.
#pragma once

#include <string>

#include "agent.hpp"
#include "broker/broker.hpp"
#include "ether/guardian_message.hpp"
#include "util/tool/parsed.hpp"

namespace vma::guard {

using tool::Parsed;

struct Options {
    std::string guardian = ether::kGuardianPath; // empty: there is none
    AgentOptions agent;
    BrokerOptions broker;
    unsigned verbose = 4; // log.hpp: Level
    bool console = false; // stays in the foreground
};

// Help and the version go to standard output, what is wrong to standard error.
Parsed parse_options(int argc, char **argv, Options &options);

} // namespace vma::guard
