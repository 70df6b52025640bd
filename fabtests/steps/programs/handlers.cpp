// SPDX-License-Identifier: BSD-2-Clause
// Handlers, and what a process does when one has jumped out of its stretch, or its thread was cancelled there.
#include "fabtests/steps/programs/handlers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace step {

sigjmp_buf g_way_out;

namespace {

constexpr int kTakenMs = 500;
constexpr std::size_t kMore = 3000; // of whoever takes over from a cancelled thread

Side *g_side;
pthread_t g_stepped;

// Each call that waits for locks of the one that it has interrupted, and moves no byte.
void look(const Side &side)
{
    char byte;
    pollfd one{side.fd, POLLIN | POLLOUT, 0};
    static_cast<void>(::poll(&one, 1, 0));
    static_cast<void>(::recv(side.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
    static_cast<void>(::send(side.fd, &byte, 0, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void handle(int)
{
    const int saved = errno;
    const Side &side = *g_side;
    const unsigned handler = side.board->handler;
    ++side.board->handled;
    if (handler == kPolls)
        look(side);
    else if (handler == kSends)
        side.send_aside();
    else if (handler == kReceives)
        side.receive_aside();
    else if (handler == kJumps)
        siglongjmp(g_way_out, 1);
    errno = saved;
}

// No lock was left held, no list in disorder: each of these calls has all of some.
void use_everything(const Side &side)
{
    look(side);
    const int set = ::epoll_create1(0);
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(set, EPOLL_CTL_ADD, side.fd, &event);
    ::epoll_wait(set, &event, 1, 0);
    ::close(::dup(side.fd));
    ::close(set);
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(0);
    ::waitpid(child, nullptr, 0);
}

// The other side waits for a connection: a writer's socket can be connected once more where it is not yet, and what an
// accept() that was left has not taken is there for the next one. It may have taken it.
void connect_at_last(Side &side)
{
    if (side.connected)
        return;
    if (side.role == kWriter)
        side.connect();
    else if (pollfd one{side.listener, POLLIN, 0}; side.board->port == 0 || ::poll(&one, 1, kTakenMs) == 1)
        side.accept();
}

// What its call has sent or read is not known: of a receive that was left no byte behind is at a place that can be
// told, on the kernel's own path as well. What it has sent ends.
[[noreturn]] void end_unknown(Side &side)
{
    connect_at_last(side);
    if (side.role == kWriter) {
        ::shutdown(side.fd, SHUT_WR);
        side.end_stretch();
        use_everything(side);
        side.is_receiving() ? side.read_unchecked() : side.read_to_end();
        std::exit(0);
    }
    side.end_stretch();
    use_everything(side);
    ::close(side.fd);
    std::exit(0);
}

// A thread ends at a cancellation point, which has done nothing then: what it wrote down before is what was sent and
// read. A send that waits may have sent some all the same.
[[noreturn]] void take_over(Side &side)
{
    while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) { // children that have the connection
    }
    const bool was = side.connected;
    if (was && ::fcntl(side.fd, F_GETFD) < 0)
        std::exit(0);
    connect_at_last(side);
    if (side.role == kWriter && was && !side.is_sending())
        side.send_all(kMore);
    ::shutdown(side.fd, SHUT_WR);
    side.end_stretch();
    use_everything(side);
    wait_for(side.board->released);
    side.read_to_end();
    std::exit(0);
}

void *be_cancelled(void *)
{
    for (;;)
        ::pause();
}

// The first pthread_cancel() of a process loads libgcc, and waits for libc's locks: a thread that is stopped in a fork
// has them.
void cancel_one_before()
{
    pthread_t first;
    if (::pthread_create(&first, nullptr, be_cancelled, nullptr) != 0)
        fail(g_side->board, "no thread");
    ::pthread_cancel(first);
    ::pthread_join(first, nullptr);
}

void *cancel_when_told(void *)
{
    void *result = nullptr;
    wait_for(g_side->board->cancel);
    ::pthread_cancel(g_stepped);
    g_side->board->cancelled = true;
    ::pthread_join(g_stepped, &result); // for ever, where it ends the process
    take_over(*g_side);
}

} // namespace

void install(Side &side)
{
    g_side = &side;
    if (side.board->handler == kNoHandler || !side.is_victim())
        return;
    if (side.board->handler == kCancels) {
        pthread_t canceller;
        g_stepped = ::pthread_self();
        cancel_one_before();
        if (::pthread_create(&canceller, nullptr, cancel_when_told, nullptr) != 0)
            fail(side.board, "no thread");
        return;
    }
    struct sigaction action = {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &action, nullptr);
}

void go_on_behind_jump()
{
    end_unknown(*g_side);
}

} // namespace step
