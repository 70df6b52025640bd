// SPDX-License-Identifier: BSD-2-Clause
// A close-on-exec connection is given to a program as its standard input or output by what is done between fork and
// exec, while its owner goes on with it: the bytes that the program moves are bytes of the stream.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabtests/sockets/programs/conserve/conserve.hpp"

namespace conserve {

using fabtest::die;
using fabtest::must;
using fabtest::Peer;

namespace {

constexpr char kLine[] = "hello world\n";
constexpr std::size_t kLineLen = sizeof kLine - 1;
constexpr int kRounds = 400;
constexpr int kRecords = 400;
constexpr std::size_t kRecordLen = 16;

// Programs that move one line.
char *const *program(bool writes)
{
    static char echo[] = "/bin/echo", text[] = "hello world", head[] = "/bin/dd", from[] = "bs=12", count[] = "count=1",
                to[] = "of=/dev/null", quiet[] = "status=none";
    static char *const says[] = {echo, text, nullptr}, *const takes[] = {head, from, count, to, quiet, nullptr};
    return writes ? says : takes;
}

pid_t start_by_file_actions(int fd, bool writes)
{
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, fd, writes ? 1 : 0);
    pid_t child = -1;
    char *const *const argv = program(writes);
    if (const int error = ::posix_spawn(&child, argv[0], &actions, nullptr, argv, environ))
        die("posix_spawn: %s", strerrorname_np(error));
    ::posix_spawn_file_actions_destroy(&actions);
    return child;
}

pid_t start_by_vfork(int fd, bool writes)
{
    char *const *const argv = program(writes);
    const pid_t child = ::vfork(); // NOLINT: that is what is tried
    if (child == 0) {
        ::dup2(fd, writes ? 1 : 0); // NOLINT
        ::execv(argv[0], argv);
        ::_exit(1);
    }
    return must(child, "vfork");
}

pid_t start_by_fork(int fd, bool writes)
{
    char *const *const argv = program(writes);
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        ::dup2(fd, writes ? 1 : 0);
        ::execv(argv[0], argv);
        ::_exit(1);
    }
    return child;
}

void start(const std::string &way, int fd, bool writes)
{
    const pid_t child = way == "vfork"  ? start_by_vfork(fd, writes)
                        : way == "fork" ? start_by_fork(fd, writes)
                                        : start_by_file_actions(fd, writes);
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    if (status != 0)
        die("the program ended with status %#x", static_cast<unsigned>(status));
}

void expect_line(int fd)
{
    char line[kLineLen];
    fabtest::receive_all(fd, line, sizeof line);
    if (std::memcmp(line, kLine, sizeof line) != 0)
        die("\"%.12s\" came in place of the program's line", line);
}

// The connection talks both ways before and after.
void talks(const Peer &me, int fd, const std::string &way, bool writes)
{
    for (int times = 0; times < 3; ++times) {
        talk(me, fd, kRounds);
        if (me.server) {
            start(way, fd, writes);
        } else if (writes) {
            expect_line(fd);
        } else {
            fabtest::send_all(fd, kLine, kLineLen);
        }
        me.step();
    }
    talk(me, fd, kRounds);
}

void record(int number, char (&text)[kRecordLen + 1])
{
    std::snprintf(text, sizeof text, "record %08d\n", number);
}

// The owner only sends afterwards, and the other side reads late.
void streams(const Peer &me, int fd, const std::string &way)
{
    char text[kRecordLen + 1], got[kRecordLen + 1] = {};
    talk(me, fd, kRounds);
    if (me.server) {
        start(way, fd, true);
        for (int i = 0; i < kRecords / 4; ++i) {
            record(i, text);
            fabtest::send_all(fd, text, kRecordLen);
        }
    }
    me.step();
    if (!me.server) // one way for a while, so that this side may have an endpoint too; nobody reads
        for (int i = 0; i < kRecords / 4; ++i)
            fabtest::send_all(fd, got, kRecordLen);
    me.step();
    if (me.server) {
        for (int i = kRecords / 4; i < kRecords; ++i) {
            record(i, text);
            fabtest::send_all(fd, text, kRecordLen);
        }
        me.step();
        return;
    }
    me.step();
    expect_line(fd);
    for (int i = 0; i < kRecords; ++i) {
        record(i, text);
        fabtest::receive_all(fd, got, kRecordLen);
        if (std::memcmp(text, got, kRecordLen) != 0)
            die("\"%.15s\" came in place of record %d", got, i);
    }
}

} // namespace

int handed(Peer &me, char **argv)
{
    const std::string way = argv[0], role = argv[1];
    me.open_listener();
    const int fd = me.connect_plain();
    must(::fcntl(fd, F_SETFD, FD_CLOEXEC), "FD_CLOEXEC");
    if (role == "streams")
        streams(me, fd, way);
    else
        talks(me, fd, way, role == "writes");
    me.step();
    return 0;
}

} // namespace conserve
