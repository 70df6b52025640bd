// SPDX-License-Identifier: BSD-2-Clause
// What a run of the step harness is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "fabtests/patience.hpp"
#include "fabtests/steps/programs/scenarios.hpp"

namespace step {

enum class Fault { kNone, kKill, kStop, kStopKill, kHandler }; // the last: what Order::handler says

struct Order {
    const char *talker = nullptr, *preload = nullptr;
    const Scenario *scenario = nullptr;
    Fault fault = Fault::kNone;
    Handler handler = kNoHandler;
    int buffer = 0;
    bool every = false;
    unsigned pause_ms = 20;
    double limit = patience::seconds(); // until a run hangs
};

// The `time`th time that the thread comes to a place; place 0: nowhere.
struct Point {
    std::string file; // libraries are not mapped at the same place in each run,
    std::uint64_t offset = 0;
    std::uint64_t place = 0; // which holds for those that are not there yet
    unsigned time = 0;
};

Point point_of(const char *name); // as Tracee::point() names it

Order read_options(int argc, char **argv); // ends the program where they are none

} // namespace step
