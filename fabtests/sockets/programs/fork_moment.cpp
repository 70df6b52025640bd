// SPDX-License-Identifier: BSD-2-Clause
// Forks again and again while connections are being accelerated, and looks at what the child inherits: nothing that the library's
// thread had begun. An allocator that stands still in that thread is where it shows: its lock would stay locked in the child.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kForks = 200;
constexpr ::useconds_t kStay = 200; // in malloc() and free()

std::atomic<int> g_allocating; // threads that are in malloc() or free()
const ::pid_t g_program = ::getpid();

// Other threads than the program's stay a while: a fork that comes then finds them there.
struct Within {
    Within()
    {
        ++g_allocating;
        if (::gettid() != g_program)
            ::usleep(kStay);
    }
    ~Within() { --g_allocating; }
    Within(const Within &) = delete;
    Within &operator=(const Within &) = delete;
};

} // namespace

extern "C" void *__libc_malloc(std::size_t size); // NOLINT: glibc's name
extern "C" void __libc_free(void *memory);        // NOLINT

extern "C" void *malloc(std::size_t size)
{
    const Within within;
    return __libc_malloc(size);
}

extern "C" void free(void *memory)
{
    const Within within;
    __libc_free(memory);
}

namespace {

void fork_once(int number)
{
    const ::pid_t child = must(::fork(), "fork");
    if (child == 0)
        ::_exit(g_allocating.load());
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("fork %d: a thread was in the middle of malloc() or free() (status %#x)", number,
            static_cast<unsigned>(status));
}

} // namespace

int main(int argc, char **argv)
{
    Peer me = parse_peer(&argc, argv);
    me.open_listener();
    for (int i = 0; i < kForks; ++i) {
        const int fd = me.connect_plain();
        int number = i;
        for (int turn = 0; turn < 4 + i % 16; ++turn) { // more bytes than those after which it is accelerated, or less
            send_all(fd, &number, sizeof number);
            receive_all(fd, &number, sizeof number);
        }
        fork_once(i);
        me.step();
        ::close(fd);
    }
    me.lift(me.connect_plain()); // still
    return 0;
}
