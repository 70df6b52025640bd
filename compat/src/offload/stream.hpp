// SPDX-License-Identifier: BSD-2-Clause
// What the stream protocol's table (tcp/protocol.cpp) has of the offload: how a stream comes to its endpoint, and
// leaves it.
#pragma once

#include "compat/src/table/stream.hpp"

namespace vma::sock::tcp {

void try_ready(Socket &s);                                    // lift.cpp
void tear_down(Socket &s, bool keep_unread, Closing closing); // endpoint.cpp
void stop_lifting(Socket &s);

} // namespace vma::sock::tcp
