// SPDX-License-Identifier: BSD-2-Clause
// Forks again and again while connections are being accelerated, and looks at what the child inherits: nothing that the
// library's thread had begun. An allocator that stands still in that thread is where it shows: its lock would stay
// locked in the child. And the thread that forks asks for no memory between handlers: an allocator with handlers of its
// own (jemalloc's) is locked there.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "fabtests/sockets/programs/fork_loops.hpp"

using namespace fabtest;

namespace {

constexpr ::useconds_t kStay = 200; // in malloc() and free()

std::atomic<int> g_allocating;   // threads that are in malloc() or free()
std::atomic<int> g_while_locked; // calls of the thread that forks, between handlers
thread_local bool t_locked;
const ::pid_t g_program = ::getpid();

void lock()
{
    t_locked = true;
}

void unlock()
{
    t_locked = false;
}

// Other threads than the program's stay a while: a fork that comes then finds them there.
struct Within {
    Within()
    {
        ++g_allocating;
        if (t_locked)
            ++g_while_locked;
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
        ::_exit(g_allocating.load() + g_while_locked.load());
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("fork %d: a thread was in the middle of malloc() or free(), or the child asked for memory between handlers "
            "(status %#x)",
            number, static_cast<unsigned>(status));
    if (g_while_locked.load() != 0)
        die("fork %d: %d calls for memory between handlers", number, g_while_locked.load());
}

} // namespace

int main(int argc, char **argv)
{
    must(::pthread_atfork(&lock, &unlock, &unlock), "pthread_atfork");
    Peer me = parse_peer(&argc, argv);
    fork_again_and_again(me, fork_once);
    return 0;
}
