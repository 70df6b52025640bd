// SPDX-License-Identifier: BSD-2-Clause
// Calls that hand over entries of an io_uring, and are left in the middle.
#pragma once

#include <string>

namespace fabtest {

void left(const std::string &how);

} // namespace fabtest
