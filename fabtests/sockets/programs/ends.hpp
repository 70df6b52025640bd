// SPDX-License-Identifier: BSD-2-Clause
// A connection whose two ends are in one process and, where the caller likes, in one thread.
#pragma once

namespace fabtest {

struct Ends {
    int a; // connected
    int b; // accepted
};

Ends connected();
void exchange(int from, int to, unsigned number);
void talk(const Ends &ends, int times); // a number there and back, each looked at
void accelerate(const Ends &ends);      // talks until both ends are, where the harness says that they will be
Ends accelerated();                     // both of it

} // namespace fabtest
