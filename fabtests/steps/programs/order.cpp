// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/steps/programs/order.hpp"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/sockets/programs/peer.hpp"

namespace step {

namespace {

constexpr struct {
    const char *name;
    Fault fault;
    Handler handler;
} kFaults[] = {
    {"none", Fault::kNone, kNoHandler},  {"kill", Fault::kKill, kNoHandler},
    {"stop", Fault::kStop, kNoHandler},  {"stop-kill", Fault::kStopKill, kNoHandler},
    {"count", Fault::kHandler, kCounts}, {"poll", Fault::kHandler, kPolls},
    {"send", Fault::kHandler, kSends},   {"receive", Fault::kHandler, kReceives},
    {"jump", Fault::kHandler, kJumps},   {"cancel", Fault::kHandler, kCancels},
};

void choose_fault(Order &order, const char *name)
{
    for (const auto &known : kFaults)
        if (std::strcmp(name, known.name) == 0) {
            order.fault = known.fault;
            order.handler = known.handler;
            return;
        }
    fabtest::die("--fault %s: there is none of that name", name);
}

void print_scenarios()
{
    for (const Scenario &scenario : kScenarios)
        std::printf("%s\t%s\t%s\n", scenario.name, scenario.victim == kWriter ? "writer" : "reader", scenario.what);
}

} // namespace

Point point_of(const char *name)
{
    Point point;
    const std::string text = name;
    const std::size_t plus = text.rfind("+0x"), at = text.rfind('@'), colon = text.rfind(':');
    if (text == "survey")
        return point;
    if (at == std::string::npos || colon == std::string::npos || colon < at)
        fabtest::die("%s is no point: FILE+OFFSET@ADDRESS:TIME, as a survey names them", name);
    if (plus != std::string::npos && plus < at) {
        point.file = text.substr(0, plus);
        point.offset = std::strtoull(text.c_str() + plus + 3, nullptr, 16);
    }
    point.place = std::strtoull(text.c_str() + at + 1, nullptr, 16);
    point.time = static_cast<unsigned>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
    return point;
}

Order read_options(int argc, char **argv)
{
    Order order;
    const option options[] = {{"talker", 1, nullptr, 't'},  {"scenario", 1, nullptr, 's'}, {"fault", 1, nullptr, 'f'},
                              {"preload", 1, nullptr, 'p'}, {"buffer", 1, nullptr, 'b'},   {"pause", 1, nullptr, 'w'},
                              {"every", 0, nullptr, 'e'},   {"list", 0, nullptr, 'l'},     {"limit", 1, nullptr, 'm'},
                              {nullptr, 0, nullptr, 0}};
    for (int c; (c = ::getopt_long(argc, argv, "", options, nullptr)) != -1;) {
        switch (c) {
        case 't':
            order.talker = optarg;
            break;
        case 's':
            order.scenario = find_scenario(optarg);
            break;
        case 'f':
            choose_fault(order, optarg);
            break;
        case 'p':
            order.preload = optarg;
            break;
        case 'b':
            order.buffer = std::atoi(optarg);
            break;
        case 'w':
            order.pause_ms = static_cast<unsigned>(std::atoi(optarg));
            break;
        case 'm':
            order.limit = std::atof(optarg);
            break;
        case 'e':
            order.every = true;
            break;
        case 'l':
            print_scenarios();
            std::exit(0);
        default:
            std::exit(2);
        }
    }
    if (order.talker == nullptr || order.scenario == nullptr)
        fabtest::die("--talker and --scenario (one of --list) are needed");
    return order;
}

} // namespace step
