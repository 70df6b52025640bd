// SPDX-License-Identifier: BSD-2-Clause
// The connection ends in the middle of a send: what was sent counts, and that nobody is there any more is for the next
// call.
#include <sys/mman.h>
#include <sys/sendfile.h>

#include <thread>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

constexpr std::size_t kMore = 64 << 20; // than there is room for, so that the call is over when the connection is

volatile sig_atomic_t g_pipes;
char g_block[kMore];

ssize_t send_two_parts(int fd)
{
    iovec parts[] = {{g_block, 100}, {g_block + 100, kMore - 100}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    return ::sendmsg(fd, &message, 0);
}

ssize_t send_a_file(int fd)
{
    const int file = must(::memfd_create("file", MFD_CLOEXEC), "memfd_create");
    must(::ftruncate(file, kMore), "ftruncate");
    const ssize_t n = ::sendfile(fd, file, nullptr, kMore);
    const int saved = errno;
    ::close(file);
    errno = saved;
    return n;
}

constexpr struct {
    const char *name;
    ssize_t (*send)(int fd);
} kForms[] = {
    {"send", [](int fd) { return ::send(fd, g_block, kMore, 0); }},
    {"write", [](int fd) { return ::write(fd, g_block, kMore); }},
    {"sendmsg", send_two_parts},
    {"sendfile", send_a_file}, // of which the kernel sends piece by piece: its SIGPIPE comes at once
};

using Form = decltype(*kForms);

void send_in_part(const Side &me, Form &form, int fd)
{
    g_pipes = 0;
    ::signal(SIGPIPE, [](int) { g_pipes = g_pipes + 1; });
    const ssize_t n = form.send(fd);
    me.say("%s: %s", form.name, n > 0 && n < static_cast<ssize_t>(kMore) ? "in part" : "unexpected");
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
    for (int i = 0; i < 2; ++i)
        me.show("again", form.send(fd));
    me.say("SIGPIPE: %d", static_cast<int>(g_pipes));
}

} // namespace

// Behind the peer's end a reset is EPIPE, otherwise ECONNRESET, once.
SCENARIO(peer_resets_in_the_middle_of_a_send)
{
    for (Form &form : kForms)
        for (const bool has_ended : {true, false}) {
            const int fd = me.connection();
            if (me.server && has_ended)
                must(::shutdown(fd, SHUT_WR), "shutdown");
            if (!me.server && has_ended)
                await_events(fd, POLLRDHUP);
            if (me.server) {
                receive_text(fd, 100'000);
                await_readable(fd, 1); // a close is a reset then
            } else {
                send_in_part(me, form, fd);
            }
            ::close(fd);
        }
    me.step();
}

SCENARIO(shutdown_in_the_middle_of_a_send)
{
    for (Form &form : kForms) {
        const int fd = me.connection();
        if (!me.server) {
            std::thread other([fd, task = ::gettid()] {
                await_waiting(task);
                must(::shutdown(fd, SHUT_WR), "shutdown");
            });
            send_in_part(me, form, fd);
            other.join();
        }
        me.step();
    }
}
