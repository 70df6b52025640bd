// SPDX-License-Identifier: BSD-2-Clause
// What socketxtreme_poll() finds besides the datagrams that it takes from the engine's queue (completions.hpp).
#pragma once

#include <cstdint>

#include "compat/src/extra/completions.hpp"

namespace vma::extra {

// One completion at most of each socket that had something lately, and with `asks` of those that the ring's set tells
// of. Takes a lock.
void look_around(Output &out, DatagramSink &sink, int set, bool asks);
std::uint32_t hot_sockets(); // that had something lately: no lock

} // namespace vma::extra
