// SPDX-License-Identifier: BSD-2-Clause
// Calls that reach a connection's bytes past the functions of that name: libc's own insides, and system calls by
// number.
#include <aio.h>
#include <execinfo.h>
#include <pty.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <utmp.h>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

namespace {

using namespace fabtest;

ssize_t finish(aiocb &request)
{
    const aiocb *list[] = {&request};
    while (::aio_error(&request) == EINPROGRESS)
        ::aio_suspend(list, 1, nullptr);
    return ::aio_return(&request);
}

aiocb request(int fd, char *buffer, std::size_t size)
{
    aiocb made{};
    made.aio_fildes = fd;
    made.aio_buf = buffer;
    made.aio_nbytes = size;
    return made;
}

} // namespace

// The peer has ended what it sent: a stream of libc's reads a part of what is there, the program the rest, then another
// stream.
SCENARIO(stdio_of_unread_bytes)
{
    if (me.server) {
        send_text(me.fd, "one two three");
        const pid_t child = must(::fork(), "fork"); // the span's end
        if (child == 0)
            ::_exit(0);
        must(::waitpid(child, nullptr, 0), "waitpid");
        me.step();
        me.step();
        send_text(me.fd, " four");
        ::shutdown(me.fd, SHUT_WR);
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 13);
    char text[32] = {};
    std::FILE *file = ::fdopen(must(::dup(me.fd), "dup"), "r");
    ::setvbuf(file, nullptr, _IONBF, 0);
    me.say("fread: %zu \"%s\"", std::fread(text, 1, 4, file), text);
    me.say("a number: %d, seek: %d", ::fileno(file) >= 0, std::fseek(file, 1, SEEK_SET));
    me.say("fclose: %d", std::fclose(file));
    me.say("recv: \"%s\"", receive_text(me.fd, 4).c_str());
    me.step();
    file = ::fdopen(must(::dup(me.fd), "dup"), "r+");
    me.say("fgets: \"%s\"", std::fgets(text, sizeof text, file) != nullptr ? text : "nothing");
    me.say("end: %d, error: %d", std::feof(file) != 0, std::ferror(file) != 0);
    me.say("fclose: %d", std::fclose(file));
    me.step();
}

SCENARIO(aio_between_sends)
{
    char buffer[16] = "second";
    if (me.server) {
        send_text(me.fd, "first");
        aiocb write = request(me.fd, buffer, 6);
        me.show("aio_write", ::aio_write(&write));
        me.say("%zd", finish(write));
        send_text(me.fd, "third");
        me.step();
        me.say("%s", receive_text(me.fd, 11).c_str());
        me.step();
        return;
    }
    me.step();
    await_readable(me.fd, 5);
    me.say("%s", receive_text(me.fd, 5).c_str());
    aiocb read = request(me.fd, buffer, 6);
    me.show("aio_read", ::aio_read(&read));
    me.say("%zd %.6s", finish(read), buffer);
    me.say("%s", receive_text(me.fd, 5).c_str());
    aiocb write = request(me.fd, buffer, 6);
    write.aio_lio_opcode = LIO_WRITE;
    aiocb *list[] = {nullptr, &write};
    send_text(me.fd, "first");
    me.show("lio_listio", ::lio_listio(LIO_WAIT, list, 2, nullptr));
    me.step();
}

SCENARIO(eight_bytes)
{
    eventfd_t value = 0;
    if (me.server) {
        send_text(me.fd, "<");
        me.show("eventfd_write", ::eventfd_write(me.fd, 0x6867666564636261));
        send_text(me.fd, "12345678>");
        me.step();
        return;
    }
    me.say("%s", receive_text(me.fd, 9).c_str());
    await_readable(me.fd, 9);
    me.show("eventfd_read", ::eventfd_read(me.fd, &value));
    me.say("%.8s", reinterpret_cast<char *>(&value));
    me.say("%s", receive_text(me.fd, 1).c_str());
    me.step();
}

SCENARIO(symbols_of_a_backtrace)
{
    if (me.server) {
        void *const frame[] = {reinterpret_cast<void *>(0x11)}; // in no object: its text is the same everywhere
        send_text(me.fd, "<");
        ::backtrace_symbols_fd(frame, 1, me.fd);
        send_text(me.fd, ">");
        me.step();
        return;
    }
    me.say("%s", receive_text(me.fd, 9).c_str());
    me.step();
}

SCENARIO(terminal_over_the_socket)
{
    const int saved = must(::fcntl(STDERR_FILENO, F_DUPFD, 100), "F_DUPFD");
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        int first = -1;
        int second = -1;
        must(::openpty(&first, &second, nullptr, nullptr, nullptr), "openpty");
        must(::dup2(me.fd, STDOUT_FILENO), "dup2");
        must(::login_tty(second), "login_tty");
        char text[8] = {};
        const bool written = ::write(STDOUT_FILENO, "tty", 3) == 3;
        const bool read = ::read(first, text, 3) == 3 && std::memcmp(text, "tty", 3) == 0;
        ::_exit(written && read ? 0 : 1);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: %#x", static_cast<unsigned>(status));
    ::close(saved);
    me.step();
}

SCENARIO(system_calls_by_number)
{
    char block[] = "abcd";
    iovec part{block, 4};
    mmsghdr message{};
    message.msg_hdr.msg_iov = &part;
    message.msg_hdr.msg_iovlen = 1;
    if (me.server) {
        me.show("sendmmsg", ::syscall(SYS_sendmmsg, me.fd, &message, 1, 0));
        me.show("pwritev2", ::syscall(SYS_pwritev2, me.fd, &part, 1, -1L, -1L, 0));
        me.step();
        return;
    }
    int count = 0;
    epoll_event event{EPOLLIN, {.u64 = 17}};
    await_readable(me.fd, 8);
    me.show("ioctl", ::syscall(SYS_ioctl, me.fd, FIONREAD, &count));
    me.say("%d", count);
    pollfd p{me.fd, POLLIN, 0};
    timespec soon{5, 0};
    me.show("ppoll", ::syscall(SYS_ppoll, &p, 1, &soon, nullptr, 8));
    fd_set input;
    FD_ZERO(&input);
    FD_SET(me.fd, &input);
    sigset_t none;
    ::sigemptyset(&none);
    const struct {
        const sigset_t *set;
        std::size_t bytes;
    } mask = {&none, 8};
    me.show("pselect6", ::syscall(SYS_pselect6, me.fd + 1, &input, nullptr, nullptr, &soon, &mask));
    me.say("%d", FD_ISSET(me.fd, &input) != 0);
    const int set = must(::epoll_create1(0), "epoll_create1");
    me.show("epoll_ctl", ::syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, me.fd, &event));
    event = {};
    me.show("epoll_pwait", ::syscall(SYS_epoll_pwait, set, &event, 1, 5000, nullptr, 8));
    me.say("%u %d", event.events, static_cast<int>(event.data.u64));
    ::close(set);
    me.show("recvmmsg", ::syscall(SYS_recvmmsg, me.fd, &message, 1, 0, nullptr));
    me.say("%.4s", block);
    me.show("preadv2", ::syscall(SYS_preadv2, me.fd, &part, 1, -1L, -1L, 0));
    me.say("%.4s", block);
    const long child = must(static_cast<int>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)), "clone");
    if (child == 0)
        ::syscall(SYS_exit_group, 5);
    int status = -1;
    must(::waitpid(static_cast<pid_t>(child), &status, 0), "waitpid");
    me.say("child: %#x", static_cast<unsigned>(status));
    me.step();
}
