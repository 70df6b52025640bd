// SPDX-License-Identifier: BSD-2-Clause
// Calls on stacks as small as the kernel needs them, with both ends of a connection in one thread. WHERE they are made:
// context8k, a coroutine whose calls have the connection accelerated; context4k, one that comes when it is; thread, of
// PTHREAD_STACK_MIN, which does both; handler, on an alternate stack of 4 KiB and what the kernel puts there. Nothing
// is mapped below the stacks.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <string_view>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr int kCalls = 600; // some hundred more than it takes to be accelerated
constexpr std::size_t kPage = 4096;
constexpr std::size_t kNothing = 32 * kPage; // more than a frame

Ends g_ends;
int g_set;
int g_file;
volatile int g_done; // rounds

void check(bool right)
{
    if (!right)
        _exit(4); // nothing deeper
}

void talk_once()
{
    char byte = 'x';
    check(::send(g_ends.a, &byte, 1, MSG_NOSIGNAL) == 1);
    check(::recv(g_ends.b, &byte, 1, 0) == 1 && byte == 'x');
    check(::write(g_ends.b, "y", 1) == 1);
    check(::read(g_ends.a, &byte, 1) == 1 && byte == 'y');
}

void send_parts()
{
    char bytes[2] = {'p', 'q'};
    iovec parts[2] = {{&bytes[0], 1}, {&bytes[1], 1}};
    check(::writev(g_ends.a, parts, 2) == 2);
    check(::readv(g_ends.b, parts, 2) == 2);
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    check(::sendmsg(g_ends.a, &message, MSG_NOSIGNAL) == 2);
    check(::recvmsg(g_ends.b, &message, 0) == 2 && bytes[0] == 'p' && bytes[1] == 'q');
}

void send_file()
{
    char byte = 0;
    off_t offset = 0;
    check(::sendfile(g_ends.a, g_file, &offset, 1) == 1);
    check(::recv(g_ends.b, &byte, 1, MSG_PEEK) == 1 && ::recv(g_ends.b, &byte, 1, 0) == 1 && byte == 'f');
}

void wait_for_it()
{
    char byte = 'w';
    pollfd p = {g_ends.b, POLLIN, 0};
    epoll_event event = {};
    check(::poll(&p, 1, 0) == 0 && ::epoll_wait(g_set, &event, 1, 0) == 0 && ::poll(&p, 1, 1) == 0);
    check(::send(g_ends.a, &byte, 1, MSG_NOSIGNAL) == 1);
    check(::poll(&p, 1, -1) == 1 && p.revents == POLLIN);
    check(::epoll_wait(g_set, &event, 1, -1) == 1);
    check(::recv(g_ends.b, &byte, 1, MSG_DONTWAIT) == 1);
}

void select_it()
{
    fd_set in;
    timeval now = {};
    FD_ZERO(&in);
    FD_SET(g_ends.b, &in);
    check(::select(g_ends.b + 1, &in, nullptr, nullptr, &now) == 0);
}

void talk_long()
{
    for (int i = 0; i < kCalls; ++i)
        talk_once();
}

void all_calls()
{
    for (int i = 0; i < 20; ++i) {
        talk_once();
        send_parts();
        send_file();
        wait_for_it();
        select_it();
        g_done = g_done + 1;
    }
}

void all_of_a_thread()
{
    talk_long();
    all_calls();
}

// What handlers may call is less (signal-safety(7)), and a process may end one by one what it has.
void in_handler(int)
{
    talk_once();
    wait_for_it();
    select_it();
    const int other = ::dup(g_ends.b);
    check(other >= 0 && ::close(other) == 0);
    const pid_t child = ::fork();
    if (child == 0)
        _exit(0);
    check(child > 0 && ::waitpid(child, nullptr, 0) == child);
    g_done = g_done + 1;
}

std::byte *make_stack(std::size_t size)
{
    void *const memory = ::mmap(nullptr, kNothing + size + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    auto *const stack = static_cast<std::byte *>(memory) + kNothing;
    must(::mprotect(stack, (size + kPage - 1) / kPage * kPage, PROT_READ | PROT_WRITE), "mprotect");
    return stack;
}

void on_context(std::size_t size, void (*what)())
{
    static ucontext_t mine, its;
    must(::getcontext(&its), "getcontext");
    its.uc_stack.ss_sp = make_stack(size);
    its.uc_stack.ss_size = size;
    its.uc_link = &mine;
    ::makecontext(&its, what, 0);
    must(::swapcontext(&mine, &its), "swapcontext");
}

void on_thread(std::size_t size, void (*what)())
{
    pthread_attr_t attributes;
    pthread_t thread;
    ::pthread_attr_init(&attributes);
    if (::pthread_attr_setstack(&attributes, make_stack(size), size) != 0 ||
        ::pthread_create(
            &thread, &attributes,
            [](void *work) -> void * {
                reinterpret_cast<void (*)()>(work)();
                return nullptr;
            },
            reinterpret_cast<void *>(what)) != 0)
        die("no thread with a stack of %zu bytes", size);
    ::pthread_join(thread, nullptr);
}

void in_handlers(std::size_t size)
{
    const stack_t stack = {make_stack(size), 0, size};
    must(::sigaltstack(&stack, nullptr), "sigaltstack");
    struct sigaction action = {};
    action.sa_handler = in_handler;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    must(::sigaction(SIGUSR1, &action, nullptr), "sigaction");
    for (int i = 0; i < 20; ++i)
        must(::raise(SIGUSR1), "raise");
}

void prepare(bool accelerated_before)
{
    epoll_event event = {EPOLLIN, {}};
    g_ends = accelerated_before ? accelerated() : connected();
    g_set = must(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    must(::epoll_ctl(g_set, EPOLL_CTL_ADD, g_ends.b, &event), "epoll_ctl");
    g_file = must(::fileno(::tmpfile()), "tmpfile");
    if (::pwrite(g_file, "f", 1, 0) != 1)
        die("pwrite");
}

} // namespace

int main(int argc, char **argv)
{
    const std::string_view where = argc == 2 ? argv[1] : "";
    prepare(where == "context4k" || where == "handler");
    if (where == "context8k")
        on_context(2 * kPage, talk_long);
    else if (where == "context4k")
        on_context(kPage, all_calls);
    else if (where == "thread")
        on_thread(PTHREAD_STACK_MIN, all_of_a_thread);
    else if (where == "handler")
        in_handlers(std::max<std::size_t>(::getauxval(AT_MINSIGSTKSZ), MINSIGSTKSZ) + kPage);
    else
        die("usage: small_stacks context8k|context4k|thread|handler");
    accelerate(g_ends);
    std::printf("%d\n", g_done);
    return 0;
}
