// SPDX-License-Identifier: BSD-2-Clause
// A program whose thread-local variables are larger than the library's thread needs for itself: each thread of the
// process has them.
#include <unistd.h>

#include <cstring>

#include "fabtests/sockets/programs/peer.hpp"

namespace {

thread_local char g_large[4 << 20];

} // namespace

int main(int argc, char **argv)
{
    fabtest::Peer me = fabtest::parse_peer(&argc, argv);
    std::memset(g_large, argc, sizeof g_large);
    me.open_listener();
    const int fd = me.connect_plain();
    me.offload(fd);
    ::close(fd);
    return g_large[sizeof g_large - 1] == argc ? 0 : 1;
}
