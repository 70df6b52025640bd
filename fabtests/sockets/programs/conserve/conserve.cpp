// SPDX-License-Identifier: BSD-2-Clause
// conserve server|client --control FD GROUP ARGUMENTS: see conserve.hpp.
#include "fabtests/sockets/programs/conserve/conserve.hpp"

#include <cstring>

namespace conserve {

void talk(const fabtest::Peer &me, int fd, int rounds)
{
    char mine[64], theirs[64];
    for (int round = 0; round < rounds; ++round) {
        std::memset(mine, round, sizeof mine);
        if (!me.server)
            fabtest::send_all(fd, mine, sizeof mine);
        fabtest::receive_all(fd, theirs, sizeof theirs);
        if (std::memcmp(mine, theirs, sizeof mine) != 0)
            fabtest::die("round %d of %d: another message came, which begins with %d", round, rounds, theirs[0]);
        if (me.server)
            fabtest::send_all(fd, mine, sizeof mine);
    }
}

} // namespace conserve

int main(int argc, char **argv)
{
    fabtest::Peer me = fabtest::parse_peer(&argc, argv);
    const std::string group = argc > 2 ? argv[1] : "";
    if (group == "unread" && argc == 7)
        return conserve::unread(me, argv + 2);
    if (group == "handed" && argc == 4)
        return conserve::handed(me, argv + 2);
    if (group == "uncounted" && argc == 3)
        return conserve::uncounted(me, argv + 2);
    fabtest::die("conserve server|client --control FD unread|handed|uncounted ARGUMENTS");
}
