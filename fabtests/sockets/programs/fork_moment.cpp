// SPDX-License-Identifier: BSD-2-Clause
// Forks again and again while connections are being accelerated, and looks at what the child inherits: nothing that the
// library's thread had begun. An allocator that stands still in that thread is where it shows: its lock would stay
// locked in the child. And the thread that forks asks for no memory between handlers: an allocator with handlers of its
// own (jemalloc's) is locked there. With FORK_MOMENT_LOCKS=1 this one is, and whoever asks it for memory waits.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "fabtests/sockets/programs/peer.hpp"

using namespace fabtest;

namespace {

constexpr int kForks = 200;
constexpr int kForksWhenAccelerated = 8;
constexpr ::useconds_t kStay = 200; // in malloc() and free()

std::atomic<int> g_allocating;   // threads that are in malloc() or free()
std::atomic<int> g_while_locked; // calls of the thread that forks, between handlers
thread_local bool t_locked;
const ::pid_t g_program = ::getpid();
bool g_locks;
::pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER; // of all memory

void lock()
{
    if (g_locks)
        ::pthread_mutex_lock(&g_lock);
    t_locked = true;
}

void unlock()
{
    t_locked = false;
    if (g_locks)
        ::pthread_mutex_unlock(&g_lock);
}

// Other threads than the program's stay a while: a fork that comes then finds them there.
struct Within {
    Within()
    {
        if (t_locked)
            ++g_while_locked;
        else if (locks)
            ::pthread_mutex_lock(&g_lock);
        ++g_allocating;
        if (::gettid() != g_program)
            ::usleep(kStay);
    }
    ~Within()
    {
        --g_allocating;
        if (locks && !t_locked)
            ::pthread_mutex_unlock(&g_lock);
    }
    Within(const Within &) = delete;
    Within &operator=(const Within &) = delete;

    const bool locks = g_locks;
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

// While connections are accelerated: all go back to the kernel.
void fork_with_some(Peer &me, int number)
{
    std::array<int, 4> fds = {};
    for (int &fd : fds)
        me.offload(fd = me.connect_plain());
    fork_once(number);
    for (const int fd : fds) {
        send_all(fd, &number, sizeof number);
        receive_all(fd, &number, sizeof number);
        ::close(fd);
    }
}

// While one is about to be, or not yet.
void fork_after(Peer &me, int turns, int number)
{
    const int fd = me.connect_plain();
    for (int turn = 0; turn < turns; ++turn) {
        send_all(fd, &number, sizeof number);
        receive_all(fd, &number, sizeof number);
    }
    fork_once(number);
    me.step();
    ::close(fd);
}

} // namespace

int main(int argc, char **argv)
{
    g_locks = ::getenv("FORK_MOMENT_LOCKS") != nullptr;
    must(::pthread_atfork(&lock, &unlock, &unlock), "pthread_atfork");
    Peer me = parse_peer(&argc, argv);
    me.open_listener();
    for (int i = 0; i < kForks; ++i)
        fork_after(me, 4 + i % 16, i); // more bytes than those after which it is accelerated, or less
    for (int i = 0; i < kForksWhenAccelerated; ++i)
        fork_with_some(me, i);
    me.offload(me.connect_plain()); // still
    return 0;
}
