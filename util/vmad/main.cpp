// SPDX-License-Identifier: BSD-2-Clause
// vmad: when a process dies, the peers of its TCP connections over Ethernet ports hear a reset. Two ways to tell it of
// them: the guardian's socket of this project's libraries, and VMA's agent protocol. And processes at the two ends of a
// connection within this host are introduced to each other. See man/vmad.8.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "daemon.hpp"
#include "log.hpp"
#include "options.hpp"

namespace {

using namespace vma::guard;

constexpr int kFine = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

void leave_console()
{
    use_syslog();
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        dup2(nowhere, fd);
    if (nowhere > STDERR_FILENO)
        close(nowhere);
}

// `started`: hears when it runs; -1: nobody waits.
int serve(const Options &options, int started)
{
    Daemon daemon(options.agent, options.broker);
    if (const std::string error = daemon.open(options.guardian.c_str()); !error.empty()) {
        say(Level::kFatal, "%s", error.c_str());
        return kFailed;
    }
    if (started >= 0) {
        leave_console();
        const char fine = kFine;
        static_cast<void>(!write(started, &fine, 1));
        close(started);
    }
    if (!options.guardian.empty())
        say(Level::kInformation, "vmad listens at %s", options.guardian.c_str());
    if (!options.agent.socket.empty())
        say(Level::kInformation, "vmad listens at %s, files are in %s", options.agent.socket.c_str(),
            options.agent.folder.c_str());
    if (daemon.has_broker())
        say(Level::kInformation, "vmad introduces at %s", options.broker.socket.c_str());
    std::fflush(stdout);
    daemon.run();
    return kFine;
}

// The caller returns when the daemon runs, or has said why it doesn't.
int serve_in_background(const Options &options)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        std::fprintf(stderr, "vmad: pipe: %s\n", std::strerror(errno));
        return kFailed;
    }
    const pid_t child = fork();
    if (child < 0) {
        std::fprintf(stderr, "vmad: fork: %s\n", std::strerror(errno));
        return kFailed;
    }
    if (child == 0) {
        close(ends[0]);
        setsid();
        static_cast<void>(!chdir("/"));
        return serve(options, ends[1]);
    }
    close(ends[1]);
    char fine = kFailed;
    return read(ends[0], &fine, 1) == 1 ? fine : kFailed;
}

} // namespace

int main(int argc, char **argv)
{
    Options options;
    const auto run = [&options] {
        set_level(options.verbose);
        return options.console ? serve(options, -1) : serve_in_background(options);
    };
    return vma::tool::run_if_asked(parse_options(argc, argv, options), run, kUsage);
}
