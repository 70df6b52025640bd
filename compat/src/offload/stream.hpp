// SPDX-License-Identifier: BSD-2-Clause
// What the stream protocol's table (tcp/protocol.cpp) has of the offload: how a stream comes to its endpoint, and
// leaves it.
#pragma once

#include "compat/src/table/stream.hpp"

namespace vma::sock::tcp {

void try_ready(Stream &s);                                    // offload.cpp
void fall_back(Stream &s, bool keep_unread, Closing closing); // endpoint.cpp
void stop_offloading(Stream &s);

} // namespace vma::sock::tcp
