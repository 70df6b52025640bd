// SPDX-License-Identifier: BSD-2-Clause
// Forks again and again while connections are being accelerated; children ask for memory. For allocators that lock
// themselves while a process forks: locked_allocator.so, jemalloc.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "fabtests/sockets/programs/fork_loops.hpp"

using namespace fabtest;

namespace {

void fork_once(int number)
{
    const ::pid_t child = must(::fork(), "fork");
    if (child == 0) {
        void *volatile memory = std::malloc(100);
        std::free(memory);
        ::_exit(0);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("fork %d: status %#x", number, static_cast<unsigned>(status));
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    fork_again_and_again(me, fork_once);
    return 0;
}
