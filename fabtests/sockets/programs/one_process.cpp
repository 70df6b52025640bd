// SPDX-License-Identifier: BSD-2-Clause
// Both ends of one connection in one process and thread: the shortest program that has everything at work. The harness
// starts it where "the next start" is meant, and says that the connection will be accelerated: the provider is loaded
// then.
#include <unistd.h>

#include "fabtests/sockets/programs/ends.hpp"

int main()
{
    const fabtest::Ends ends = fabtest::accelerated();
    ::close(ends.a);
    ::close(ends.b);
    return 0;
}
