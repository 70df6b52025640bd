// SPDX-License-Identifier: BSD-2-Clause
// begin PARENT PRELOAD NETNS PROGRAM [ARGUMENT...]: what a test's process does before it is the program: it ends with
// the process PARENT, takes what a shell's background job ignores, enters the network namespace of the file NETNS, and
// has PRELOAD for LD_PRELOAD ("" for either: none). Python could do so between fork() and exec(), but a copy of
// Python's memory takes 25 ms, and this 2.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace {

constexpr int kNotStarted = 127; // as shells say it

[[noreturn]] void fail(const char *what)
{
    ::fprintf(stderr, "begin: %s: %s\n", what, ::strerror(errno));
    ::_exit(kNotStarted);
}

void enter(const char *name)
{
    const int fd = ::open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0)
        fail(name);
    ::close(fd);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 5) {
        ::fprintf(stderr, "usage: begin PARENT PRELOAD NETNS PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != ::atoi(argv[1])) // it has ended before it could be watched
        ::_exit(kNotStarted);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGQUIT, SIG_DFL);
    if (*argv[3] != '\0')
        enter(argv[3]);
    if (*argv[2] != '\0')
        ::setenv("LD_PRELOAD", argv[2], 1);
    ::execvp(argv[4], argv + 4);
    fail(argv[4]);
}
