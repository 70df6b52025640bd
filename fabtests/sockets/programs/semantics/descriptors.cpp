// SPDX-License-Identifier: BSD-2-Clause
// One connection behind several descriptors, processes and programs: dup, fork, exec, spawn, descriptor passing, stdio.
// The peer keeps data in flight both ways while it happens: "streaming" scenarios write 3 MB each way.
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fabtests/sockets/programs/semantics/scenario.hpp"

extern "C" char **environ;

namespace {

using namespace fabtest;

constexpr std::uint64_t kBytes = 3000000;
const Pattern kUp(21), kDown(22);

// The other side of a streaming scenario: writes all it has while it reads all that comes, to the end.
void stream_with(const Side &me)
{
    std::thread writer([&] { write_pattern(me.fd, me.server ? kDown : kUp, 0, kBytes); });
    read_pattern(me.fd, me.server ? kUp : kDown, 0, kBytes);
    writer.join();
    me.say("all came");
    me.show("shutdown", ::shutdown(me.fd, SHUT_WR));
    char byte;
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

// The near side's part of both streams.
struct Near {
    const Side &me;
    const Pattern &out = me.server ? kDown : kUp;
    const Pattern &in = me.server ? kUp : kDown;
    void part(int fd, std::uint64_t from, std::uint64_t to) const
    {
        std::thread writer([&] { write_pattern(fd, out, from, to); });
        read_pattern(fd, in, from, to);
        writer.join();
    }
    void end(int fd) const
    {
        must(::shutdown(fd, SHUT_WR), "shutdown");
        char byte;
        me.show("at the end", ::recv(fd, &byte, 1, 0));
    }
};

void reap(const Side &me, pid_t child)
{
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("child: %s %d", WIFEXITED(status) ? "exit" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

void fork_child_goes_on(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    int said[2];
    must(::pipe(said), "pipe");
    char byte = 0;
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        near.part(me.fd, kBytes / 3, kBytes);
        must(static_cast<int>(::read(said[0], &byte, 1)), "read"); // two processes say in turn what they have done
        near.end(me.fd);
        ::_exit(0);
    }
    me.show("close", ::close(me.fd));
    must(static_cast<int>(::write(said[1], &byte, 1)), "write");
    reap(me, child);
}

void fork_parent_goes_on(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    const pid_t child = must(::fork(), "fork");
    if (child == 0)
        ::_exit(::close(me.fd) == 0 ? 7 : 8);
    near.part(me.fd, kBytes / 3, 2 * kBytes / 3);
    reap(me, child);
    near.part(me.fd, 2 * kBytes / 3, kBytes);
    near.end(me.fd);
}

void fork_both_go_on(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        near.part(me.fd, kBytes / 3, kBytes / 2);
        ::_exit(0);
    }
    reap(me, child);
    near.part(me.fd, kBytes / 2, kBytes);
    near.end(me.fd);
}

// Eight generations, each does its part while the former waits.
void fork_in_a_chain(Side &me)
{
    const Near near{me};
    constexpr int kGenerations = 8;
    for (int i = 0; i < kGenerations; ++i) {
        near.part(me.fd, kBytes / kGenerations * static_cast<unsigned>(i),
                  kBytes / kGenerations * static_cast<unsigned>(i + 1));
        if (i == kGenerations - 1)
            break;
        const pid_t child = must(::fork(), "fork");
        if (child != 0) {
            ::close(me.fd);
            int status = -1;
            must(::waitpid(child, &status, 0), "waitpid");
            if (status != 0)
                die("generation %d: status %#x", i, static_cast<unsigned>(status));
            if (i > 0)
                ::_exit(0);
            me.say("all generations did their part");
            return;
        }
    }
    near.end(me.fd);
    ::_exit(0);
}

void fork_while_threads_stream(Side &me)
{
    const Near near{me};
    std::thread forker([&] {
        for (int i = 0; i < 5; ++i) {
            const pid_t child = must(::fork(), "fork");
            if (child == 0)
                ::_exit(0); // the socket was inherited and is closed by the end
            int status = -1;
            must(::waitpid(child, &status, 0), "waitpid");
        }
    });
    near.part(me.fd, 0, kBytes);
    forker.join();
    near.end(me.fd);
}

void dup_in_mid_stream(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 8);
    const int second = must(::dup(me.fd), "dup");
    near.part(second, kBytes / 8, 2 * kBytes / 8);
    near.part(me.fd, 2 * kBytes / 8, 3 * kBytes / 8);
    const int third = must(::dup2(second, 200), "dup2");
    me.say("dup2 = %d", third);
    me.show("close the first", ::close(me.fd));
    near.part(third, 3 * kBytes / 8, 4 * kBytes / 8);
    const int fourth = must(::dup3(third, 201, O_CLOEXEC), "dup3");
    const int fifth = must(::fcntl(fourth, F_DUPFD, 300), "F_DUPFD");
    const int sixth = must(::fcntl(fourth, F_DUPFD_CLOEXEC, 300), "F_DUPFD_CLOEXEC");
    me.say("%d %d %d, close-on-exec %d %d %d", fourth, fifth, sixth, ::fcntl(fourth, F_GETFD), ::fcntl(fifth, F_GETFD),
           ::fcntl(sixth, F_GETFD));
    near.part(fifth, 4 * kBytes / 8, 5 * kBytes / 8);
    me.show("dup2 on itself", ::dup2(fifth, fifth));
    me.show("dup3 on itself", ::dup3(fifth, fifth, 0));
    std::thread writer([&] { write_pattern(sixth, near.out, 5 * kBytes / 8, 6 * kBytes / 8); });
    read_pattern(second, near.in, 5 * kBytes / 8, 6 * kBytes / 8);
    writer.join();
    set_nonblocking(second, true); // a property of the socket, not of the descriptor
    me.say("non-blocking: %d", (::fcntl(sixth, F_GETFL) & O_NONBLOCK) != 0);
    set_nonblocking(third, false);
    ::close(second);
    ::close(third);
    ::close(fourth);
    ::close(fifth);
    near.part(sixth, 6 * kBytes / 8, kBytes);
    near.end(sixth);
}

// This program again, as a stranger to the connection: see inherited_socket().
int start_stranger(const Side &me, int fd, std::uint64_t from, std::uint64_t to, bool by_exec)
{
    const std::string number = std::to_string(fd), begin = std::to_string(from), end = std::to_string(to);
    const char *argv[] = {"semantics",   "--inherited", number.c_str(),
                          begin.c_str(), end.c_str(),   me.server ? "server" : "client",
                          nullptr};
    if (by_exec) {
        ::execve("/proc/self/exe", const_cast<char **>(argv), environ);
        die("execve: %s", strerrorname_np(errno));
    }
    pid_t child = -1;
    if (const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char **>(argv), environ))
        die("posix_spawn: %s", strerrorname_np(error));
    return child;
}

void fork_and_exec(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    const pid_t child = must(::fork(), "fork");
    if (child == 0)
        start_stranger(me, me.fd, kBytes / 3, 2 * kBytes / 3, true);
    reap(me, child);
    near.part(me.fd, 2 * kBytes / 3, kBytes);
    near.end(me.fd);
}

void vfork_and_exec(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    const std::string number = std::to_string(me.fd), begin = std::to_string(kBytes / 3),
                      end = std::to_string(2 * kBytes / 3);
    const char *argv[] = {"semantics",   "--inherited", number.c_str(),
                          begin.c_str(), end.c_str(),   me.server ? "server" : "client",
                          nullptr};
    const pid_t child = must(::vfork(), "vfork");
    if (child == 0) {
        ::execve("/proc/self/exe", const_cast<char **>(argv), environ);
        ::_exit(9);
    }
    reap(me, child);
    near.part(me.fd, 2 * kBytes / 3, kBytes);
    near.end(me.fd);
}

void spawn(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    const pid_t child = start_stranger(me, me.fd, kBytes / 3, 2 * kBytes / 3, false);
    reap(me, child);
    near.part(me.fd, 2 * kBytes / 3, kBytes);
    near.end(me.fd);
}

void exec_in_place(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 3);
    start_stranger(me, me.fd, kBytes / 3, kBytes, true);
}

void system_and_popen(Side &me)
{
    const Near near{me};
    near.part(me.fd, 0, kBytes / 4);
    me.show("system", ::system("exit 3") >> 8);
    near.part(me.fd, kBytes / 4, 2 * kBytes / 4);
    std::FILE *out = ::popen("echo from the shell", "r");
    char line[64] = {};
    me.say("popen: %s", out != nullptr && std::fgets(line, sizeof line, out) != nullptr ? "read" : "nothing");
    me.say("%.19s", line);
    near.part(me.fd, 2 * kBytes / 4, 3 * kBytes / 4);
    me.show("pclose", ::pclose(out));
    near.part(me.fd, 3 * kBytes / 4, kBytes);
    near.end(me.fd);
}

// The descriptor goes to another process over a UNIX socket; the sender closes its own, or goes on afterwards.
void pass(Side &me, bool sender_goes_on)
{
    const Near near{me};
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
    near.part(me.fd, 0, kBytes / 6);
    const int late = ::dup(me.fd); // what the child must not inherit is what it is passed
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::close(me.fd);
        ::close(late);
        ::close(ends[0]);
        char byte;
        iovec part{&byte, 1};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        msghdr msg{};
        msg.msg_iov = &part;
        msg.msg_iovlen = 1;
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        must(static_cast<int>(::recvmsg(ends[1], &msg, 0)), "recvmsg");
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
        near.part(fd, 2 * kBytes / 6, 4 * kBytes / 6);
        if (!sender_goes_on) {
            near.part(fd, 4 * kBytes / 6, kBytes);
            near.end(fd);
        }
        ::_exit(0);
    }
    ::close(late);
    near.part(me.fd, kBytes / 6, 2 * kBytes / 6);
    iovec part{const_cast<char *>("x"), 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr msg{};
    msg.msg_iov = &part;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&msg);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &me.fd, sizeof me.fd);
    me.show("sendmsg", ::sendmsg(ends[0], &msg, 0));
    if (!sender_goes_on)
        me.show("close", ::close(me.fd));
    reap(me, child);
    if (sender_goes_on) {
        near.part(me.fd, 4 * kBytes / 6, kBytes);
        near.end(me.fd);
    }
}

void pass_and_close(Side &me)
{
    pass(me, false);
}
void pass_and_go_on(Side &me)
{
    pass(me, true);
}

} // namespace

// The two sides of a streaming scenario, whichever of them does the unusual thing.
#define STREAMING(name)                                                                                                \
    SCENARIO(name##_by_client)                                                                                         \
    {                                                                                                                  \
        me.server ? stream_with(me) : name(me);                                                                        \
    }                                                                                                                  \
    SCENARIO(name##_by_server)                                                                                         \
    {                                                                                                                  \
        me.server ? name(me) : stream_with(me);                                                                        \
    }

STREAMING(fork_child_goes_on)
STREAMING(fork_parent_goes_on)
STREAMING(fork_both_go_on)
STREAMING(fork_in_a_chain)
STREAMING(fork_while_threads_stream)
STREAMING(dup_in_mid_stream)
STREAMING(fork_and_exec)
STREAMING(vfork_and_exec)
STREAMING(spawn)
STREAMING(exec_in_place)
STREAMING(system_and_popen)
STREAMING(pass_and_close)
STREAMING(pass_and_go_on)

namespace fabtest {

// semantics --inherited FD FROM TO server|client: a program that was started with a connection it did not make.
int inherited_socket(char **argv)
{
    Side me;
    me.fd = std::atoi(argv[2]);
    const std::uint64_t from = std::strtoull(argv[3], nullptr, 10), to = std::strtoull(argv[4], nullptr, 10);
    me.server = std::strcmp(argv[5], "server") == 0;
    const Near near{me};
    near.part(me.fd, from, to);
    me.say("the new program did its part");
    if (to == kBytes) {
        near.end(me.fd);
        me.say("done");
    }
    return 0;
}

} // namespace fabtest

// The last descriptor of several ends the connection, wherever it is.
SCENARIO(last_close_counts)
{
    char buf[8];
    if (me.server) {
        me.step();
        me.show("recv DONTWAIT", ::recv(me.fd, buf, sizeof buf, MSG_DONTWAIT));
        me.step();
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        return;
    }
    const int second = ::dup(me.fd);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    me.show("close", ::close(me.fd));
    me.show("close", ::close(second));
    me.step();
    me.step();
    must(::kill(child, SIGKILL), "kill");
    reap(me, child);
}

// shutdown() ends the stream for every process that holds the connection.
SCENARIO(shutdown_in_the_child)
{
    char buf[8];
    if (me.server) {
        me.show("recv", ::recv(me.fd, buf, sizeof buf, 0));
        me.step();
        return;
    }
    const pid_t child = must(::fork(), "fork");
    if (child == 0)
        ::_exit(::shutdown(me.fd, SHUT_WR));
    reap(me, child);
    me.show("send", ::send(me.fd, "x", 1, MSG_NOSIGNAL));
    me.step();
}

// stdio writes and reads descriptors behind the back of a preload library.
SCENARIO(stdio)
{
    if (me.server) {
        std::FILE *file = must(::fcntl(me.fd, F_GETFD), "F_GETFD") >= 0 ? ::fdopen(me.fd, "r+") : nullptr;
        char line[100];
        for (int i = 0; i < 200; ++i) {
            if (std::fgets(line, sizeof line, file) == nullptr)
                die("fgets at %d", i);
            std::fseek(file, 0, SEEK_CUR);
            std::fprintf(file, "answer to %s", line);
            std::fflush(file);
        }
        me.say("last: %.8s", line);
        std::fclose(file);
        return;
    }
    std::string all;
    for (int i = 0; i < 200; ++i) {
        const std::string line = "line " + std::to_string(i) + "\n", wanted = "answer to " + line;
        send_text(me.fd, line.c_str());
        if (receive_text(me.fd, wanted.size()) != wanted)
            die("wrong answer at %d", i);
    }
    char byte;
    me.show("at the end", ::recv(me.fd, &byte, 1, 0));
}

SCENARIO(dprintf_between_sends)
{
    if (me.server) {
        std::string text;
        char block[100];
        for (ssize_t n; (n = ::recv(me.fd, block, sizeof block, 0)) > 0;)
            text.append(block, static_cast<std::size_t>(n));
        std::string wanted;
        for (int i = 0; i < 100; ++i)
            wanted += "a" + std::to_string(i) + "b";
        me.say("in order: %s", text == wanted ? "yes" : text.c_str());
        return;
    }
    for (int i = 0; i < 100; ++i) {
        send_text(me.fd, "a");
        ::dprintf(me.fd, "%d", i);
        send_text(me.fd, "b");
    }
    ::close(me.fd);
}

// The socket becomes standard output, as a server does that serves one connection by printf().
SCENARIO(standard_output)
{
    if (me.server) {
        std::string wanted;
        for (int i = 0; i < 50; ++i)
            wanted += "number " + std::to_string(i) + "\n";
        me.say("in order: %s", receive_text(me.fd, wanted.size()) == wanted ? "yes" : "no");
        char byte;
        me.show("at the end", ::recv(me.fd, &byte, 1, 0));
        return;
    }
    must(::dup2(me.fd, STDOUT_FILENO), "dup2");
    ::close(me.fd);
    for (int i = 0; i < 50; ++i) {
        std::printf("number %d\n", i);
        std::fflush(stdout);
    }
    std::fclose(stdout);
}
