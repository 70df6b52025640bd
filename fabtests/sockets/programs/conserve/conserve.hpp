// SPDX-License-Identifier: BSD-2-Clause
// Where bytes were lost, doubled or not counted once: what was sent arrives, once, in order, or the program is told.
// Each group is a file; test_conserve.py has the cases.
#pragma once

#include <cstddef>
#include <string>

#include "fabtests/sockets/programs/peer.hpp"

namespace conserve {

int unread(fabtest::Peer &me, char **argv);    // RETURN END SNDBUF RCVBUF PACE
int handed(fabtest::Peer &me, char **argv);    // WAY ROLE
int uncounted(fabtest::Peer &me, char **argv); // CALL

// Both sides: round trips of numbered messages, the client's first.
void talk(const fabtest::Peer &me, int fd, int rounds);

} // namespace conserve
