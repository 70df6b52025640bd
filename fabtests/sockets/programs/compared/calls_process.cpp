// SPDX-License-Identifier: BSD-2-Clause
// New processes and threads, and what goes from one to the other. See actor.hpp.
#include "fabtests/sockets/programs/compared/actor.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

extern char **environ;

namespace compared {

namespace {

Reply spawn_and_wait()
{
    char name[] = "/bin/true";
    char *const argv[] = {name, nullptr};
    pid_t child = 0;
    const int error = ::posix_spawn(&child, name, nullptr, nullptr, argv, environ);
    int status = -1;
    if (error == 0)
        ::waitpid(child, &status, 0);
    Reply reply;
    reply.error = error;
    reply.value = status;
    return reply;
}

Reply fork_actor(Actor &actor)
{
    const int channel = actor.passed;
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(actor.channel);
        act({channel, -1});
    }
    const Reply reply = outcome(child < 0 ? -1 : 0);
    ::close(channel);
    return reply;
}

Reply start_thread(const Actor &actor)
{
    const int channel = actor.passed;
    std::thread{[channel] { act({channel, -1}); }}.detach();
    return {};
}

// This process image ends here; the next one answers.
Reply exec_actor(const Actor &actor)
{
    ::fcntl(actor.channel, F_SETFD, 0);
    std::vector<std::string> words = {"compared", "--actor", std::to_string(actor.channel)};
    words.reserve(words.size() + g_slots.size());
    for (const int fd : g_slots) {
        // dup() by F_DUPFD_CLOEXEC has made some that stay behind.
        const bool goes = fd >= 0 && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
        words.push_back(std::to_string(goes ? fd : -1));
    }
    std::vector<char *> argv;
    argv.reserve(words.size() + 1);
    for (std::string &word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execve("/proc/self/exe", argv.data(), environ);
    return outcome(-1);
}

Reply take(const Actor &actor, const Command &command)
{
    set_slot(command.other, actor.passed);
    Reply reply;
    reply.result = actor.passed >= 0 ? 0 : -1;
    return reply;
}

} // namespace

Reply do_process(Actor &actor, const Command &command, int *give)
{
    switch (command.op) {
    case Op::kSpawn:
        return spawn_and_wait();
    case Op::kGive:
        *give = fd_of(command.slot);
        return {};
    case Op::kTake:
        return take(actor, command);
    case Op::kThread:
        return start_thread(actor);
    case Op::kFork:
        return fork_actor(actor);
    case Op::kExec:
        return exec_actor(actor);
    case Op::kReap: {
        int status = 0;
        return outcome(::waitpid(-1, &status, 0) > 0 ? status : -1);
    }
    default:
        ::_exit(0);
    }
}

} // namespace compared
