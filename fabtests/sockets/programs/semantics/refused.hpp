// SPDX-License-Identifier: BSD-2-Clause
// Tables of wrong calls: refused.cpp has them for wrong values, faults.cpp for memory that is not there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace fabtest {

struct Row {
    std::string name;
    std::function<long(int fd)> call;
};

// Both sides call it: the client makes each call on each kind of descriptor and prints the results, and then both say
// how many bytes came.
void compare(const Side &me, void (*add)(std::vector<Row> &));
void compare_with_bytes_there(const Side &me, void (*add)(std::vector<Row> &)); // which the client has not read

} // namespace fabtest
