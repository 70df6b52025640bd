// SPDX-License-Identifier: BSD-2-Clause
// What main() and a worker know of each other.
#pragma once

namespace soak {

int work(char **argv); // a worker, or what a worker's child has started: the process's whole life

} // namespace soak
