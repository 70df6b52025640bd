// SPDX-License-Identifier: BSD-2-Clause
// A soak's processes and descriptors: duplicating, forking, starting programs with and without the library, threads,
// passing descriptors to other workers.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "fabtests/posix/programs/soak/worker.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace soak {

using fabtest::must;
using fabtest::Random;

namespace {

constexpr std::size_t kChildrenMost = 2;

// The sanitizer's allocator keeps in a child the locks that another thread of its parent held.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// What goes with a passed descriptor.
struct Letter {
    unsigned stream, side;
};

sockaddr_un mailbox_of(unsigned worker, socklen_t *len)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // abstract: in the run's own network namespace, and gone with its socket
    *len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path)) + 1 +
           static_cast<socklen_t>(std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "soak-%llu-%llu-%u",
                                                static_cast<unsigned long long>(g_ledger->began_us),
                                                static_cast<unsigned long long>(g_ledger->seed), worker));
    return address;
}

void check_status(pid_t child, int status)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(-1, "child %d ended with status %#x", child, static_cast<unsigned>(status));
}

int drop_in_place(Worker &w, std::size_t keep)
{
    while (w.held.size() > keep)
        close_held(w, w.below(w.held.size()));
    return 0;
}

std::string list_of(const std::vector<Held> &held)
{
    std::string list;
    for (const Held &h : held)
        list += std::to_string(h.fd) + ":" + std::to_string(h.stream) + ":" + std::to_string(h.side) + ",";
    return list;
}

// Arguments and environment of this program as a child of `w`, which takes over what is held. `kind`: --heir or
// --spawned.
class Start
{
public:
    Start(Worker &w, bool vma, const char *kind, const std::vector<Held> &held)
        : list_(list_of(held)), seed_(std::to_string(w.random.next())), index_(std::to_string(w.index)),
          preload_(std::string("LD_PRELOAD=") + w.preload), argv_{w.program,      kind,          w.ledger_path,
                                                                  index_.c_str(), seed_.c_str(), list_.c_str(),
                                                                  w.preload,      nullptr}
    {
        for (char **entry = environ; *entry != nullptr; ++entry)
            if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0)
                environment_.push_back(*entry);
        if (vma)
            environment_.push_back(preload_.c_str());
        environment_.push_back(nullptr);
    }

    char **argv() { return const_cast<char **>(argv_); }
    char **environment() { return const_cast<char **>(environment_.data()); }

private:
    std::string list_, seed_, index_, preload_;
    const char *argv_[8];
    std::vector<const char *> environment_;
};

// What a child does not need, and the sets that it must not share.
void leave_to_parent(Worker &w)
{
    ::close(w.mailbox);
    w.mailbox = -1;
    if (w.epoll >= 0)
        ::close(w.epoll);
    w.epoll = -1;
    w.left_in_epoll.clear();
    w.children.clear();
    for (Held &h : w.held) {
        h.watched = false;
        hold(h.mine());
    }
    ++w.depth;
    settle_in(w);
}

pid_t make_child(Worker &w)
{
    doing(w, "fork");
    const std::uint64_t seed = w.random.next();
    const pid_t child = must(::fork(), "fork");
    if (child != 0) {
        w.children.push_back(child);
        ++g_ledger->totals.forks;
        return child;
    }
    w.random = Random(seed);
    leave_to_parent(w);
    return 0;
}

bool may_have_children(const Worker &w)
{
    return w.depth < 2 && w.children.size() < kChildrenMost && g_ledger->phase == kGoing;
}

} // namespace

void duplicate(Worker &w)
{
    const Held *const found = w.any();
    if (found == nullptr)
        return;
    Held h = *found;
    doing(w, "dup", h.stream);
    const int fd = h.fd;
    switch (w.below(4)) {
    case 0:
        h.fd = ::dup(fd);
        break;
    case 1:
        h.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 100);
        break;
    case 2:
        h.fd = ::dup2(fd, 300 + static_cast<int>(w.below(1000)) * 2 + 1); // may be one that is held: see below
        break;
    default:
        h.fd = ::fcntl(fd, F_DUPFD, 1100); // above FD_SETSIZE
        break;
    }
    if (h.fd < 0 && errno == EBUSY)
        return; // dup2 of a number that the library has: libvma(7)
    must(h.fd, "dup");
    h.watched = false;
    for (std::size_t i = 0; i < w.held.size(); ++i)
        if (w.held[i].fd == h.fd) { // dup2 has closed it
            h.watched = w.held[i].watched && w.held[i].same_entry(h);
            if (w.held[i].watched && !h.watched)
                w.left_in_epoll.push_back(w.held[i]);
            let_go(w.held[i].mine());
            w.held.erase(w.held.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    hold(h.mine());
    h.mine().history.add("dup", 0, static_cast<std::uint32_t>(fd), h.fd);
    w.held.push_back(h);
}

void fork_child(Worker &w)
{
    if (may_have_children(w) && make_child(w) == 0)
        work_as_child(w);
}

void exec_child(Worker &w)
{
    if (!may_have_children(w) || make_child(w) != 0)
        return;
    ++g_ledger->totals.execs;
    drop_in_place(w, w.below(6) + 1);
    for (const Held &h : w.held)
        must(::fcntl(h.fd, F_SETFD, 0), "F_SETFD");
    for (const int fd : {w.listeners[0], w.listeners[1], w.datagrams[0], w.datagrams[1]})
        if (fd >= 0)
            must(::fcntl(fd, F_SETFD, FD_CLOEXEC), "F_SETFD");
    Start start(w, w.library || w.one_in(2), "--heir", w.held);
    ::execve(w.program, start.argv(), start.environment());
    fail(-1, "execve of %s: %s", w.program, strerrorname_np(errno));
}

// A program that has nothing to do with the streams, in each of the ways that there are.
void start_program(Worker &w)
{
    doing(w, "start of a program");
    char name[] = "true";
    char *const argv[] = {name, nullptr};
    int status = 0;
    if (const std::size_t choice = w.below(4); choice == 0) {
        status = ::system("true");
    } else if (choice == 1) {
        std::FILE *const out = ::popen("echo said", "r");
        char line[8] = {};
        if (out == nullptr || std::fgets(line, sizeof line, out) == nullptr || std::strcmp(line, "said\n") != 0)
            fail(-1, "popen: \"%s\"", line);
        status = ::pclose(out);
    } else if (choice == 2) {
        const pid_t child = must(::vfork(), "vfork"); // NOLINT: that is what is tried
        if (child == 0) {
            ::execvp(name, argv);
            ::_exit(1);
        }
        must(::waitpid(child, &status, 0), "waitpid");
    } else {
        pid_t child = -1;
        if (const int error = ::posix_spawnp(&child, name, nullptr, nullptr, argv, environ))
            fail(-1, "posix_spawnp: %s", strerrorname_np(error));
        must(::waitpid(child, &status, 0), "waitpid");
    }
    if (status != 0)
        fail(-1, "a started program ended with status %#x", static_cast<unsigned>(status));
}

namespace {

constexpr int kHandedFrom = 700; // numbers of descriptors in the program

// Everything closes on exec, but what is duplicated between fork and exec.
void set_close_on_exec(const Worker &w, int flag)
{
    for (const Held &h : w.held)
        must(::fcntl(h.fd, F_SETFD, flag), "F_SETFD");
    for (const int fd : {w.listeners[0], w.listeners[1], w.datagrams[0], w.datagrams[1]})
        if (fd >= 0)
            must(::fcntl(fd, F_SETFD, flag), "F_SETFD");
}

pid_t spawn_with_actions(const char *program, Start &start, const std::vector<Held> &from, const std::vector<Held> &to)
{
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (std::size_t i = 0; i < from.size(); ++i)
        ::posix_spawn_file_actions_adddup2(&actions, from[i].fd, to[i].fd);
    pid_t child = -1;
    if (const int error = ::posix_spawn(&child, program, &actions, nullptr, start.argv(), start.environment()))
        fail(-1, "posix_spawn of %s: %s", program, strerrorname_np(error));
    ::posix_spawn_file_actions_destroy(&actions);
    return child;
}

pid_t spawn_by_vfork(const char *program, Start &start, const std::vector<Held> &from, const std::vector<Held> &to)
{
    char **const argv = start.argv(), **const environment = start.environment();
    const pid_t child = must(::vfork(), "vfork"); // NOLINT: that is what is tried
    if (child == 0) {
        for (std::size_t i = 0; i < from.size(); ++i)
            ::dup2(from[i].fd, to[i].fd);
        ::execve(program, argv, environment);
        ::_exit(1);
    }
    return child;
}

} // namespace

// A program gets some sockets by what happens between fork and exec, and this process goes on with them.
void hand_to_program(Worker &w)
{
    if (!may_have_children(w) || w.held.empty())
        return;
    doing(w, "hand to a program");
    std::vector<Held> from, to;
    for (std::size_t number = w.below(3) + 1; number > 0; --number) {
        from.push_back(*w.any());
        to.push_back(from.back());
        to.back().fd = kHandedFrom + 2 * static_cast<int>(to.size()); // duplicate() takes odd numbers
        to.back().watched = false;
    }
    Start start(w, w.library || w.one_in(2), "--spawned", to);
    set_close_on_exec(w, FD_CLOEXEC);
    const pid_t child =
        w.one_in(2) ? spawn_by_vfork(w.program, start, from, to) : spawn_with_actions(w.program, start, from, to);
    set_close_on_exec(w, 0);
    w.children.push_back(child);
    ++g_ledger->totals.spawns;
    for (const Held &h : from)
        h.mine().history.add("hand to a program", 0, static_cast<std::uint32_t>(child), 0);
}

// One thread receives, this one sends and may fork meanwhile.
void work_in_threads(Worker &w)
{
    if (w.held.empty())
        return;
    const std::vector<Held> mine = w.held;
    const std::uint64_t seed = w.random.next();
    doing(w, "work in threads");
    std::thread receiver([&mine, seed] {
        Random random(seed);
        for (int i = 0; i < 60; ++i)
            receive_on(random, mine[random.below(mine.size())], random.size(16) + 1, Must::kWait);
    });
    for (int i = 0; i < 40; ++i)
        send_on(w, w.random, mine[w.below(mine.size())], w.random.size(12), Wait::kUntilSent);
    if (may_have_children(w) && w.one_in(3) && !left_out("fork") && !kSanitized) {
        if (make_child(w) == 0) {
            receiver.detach(); // there is none here
            work_as_child(w);
        }
    }
    receiver.join();
}

void open_mailbox(Worker &w)
{
    socklen_t len = 0;
    const sockaddr_un address = mailbox_of(w.index, &len);
    w.mailbox = must(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
    while (::bind(w.mailbox, reinterpret_cast<const sockaddr *>(&address), len) != 0) {
        if (errno != EADDRINUSE) // a child of the one before, which was killed, has just been forked
            fail(-1, "bind of the mailbox: %s", strerrorname_np(errno));
        ::usleep(1000);
    }
}

void pass_one(Worker &w)
{
    const Held *const found = w.any();
    const auto to = static_cast<unsigned>(w.below(kWorkers));
    if (found == nullptr || w.depth > 0 || to == w.index || g_ledger->phase != kGoing)
        return;
    if (w.library && !g_ledger->workers[to].library)
        return; // see Worker::library
    const Held h = *found;
    unsigned nobody = 0;
    if (!h.mine().on_the_way_to.compare_exchange_strong(nobody, to + 1))
        return; // another one is
    doing(w, "pass", h.stream);
    Letter letter{h.stream, h.side};
    socklen_t len = 0;
    sockaddr_un address = mailbox_of(to, &len);
    iovec part{&letter, sizeof letter};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = len;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &h.fd, sizeof h.fd);
    const int result = ::sendmsg(w.mailbox, &message, 0) >= 0 ? 0 : -errno;
    h.mine().history.add("pass", 0, to, result);
    if (result != 0)
        h.mine().on_the_way_to = 0; // the worker is just being killed, or its mailbox is full
    if (result != 0 && result != -ECONNREFUSED && result != -EAGAIN && result != -ENOENT && result != -ETOOMANYREFS)
        fail(h.stream, "passing a descriptor: %s", strerrorname_np(-result));
    if (result == 0)
        ++g_ledger->totals.passes;
    if (result == 0 && w.one_in(2))
        close_held(w, static_cast<std::size_t>(found - w.held.data()));
}

void take_passed(Worker &w)
{
    if (w.mailbox < 0)
        return;
    doing(w, "take what was passed");
    Letter letter{};
    iovec part{&letter, sizeof letter};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    while (::recvmsg(w.mailbox, &message, MSG_CMSG_CLOEXEC) == sizeof letter) {
        Held h{-1, letter.stream, letter.side, false};
        if (CMSG_FIRSTHDR(&message) == nullptr)
            fail(h.stream, "a passed descriptor did not come");
        std::memcpy(&h.fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof h.fd);
        hold(h.mine());
        h.mine().on_the_way_to = 0;
        w.held.push_back(h);
        message.msg_controllen = sizeof control;
    }
}

void reap_children(Worker &w, bool wait)
{
    doing(w, "reap children");
    for (std::size_t i = 0; i < w.children.size();) {
        int status = 0;
        const pid_t child = ::waitpid(w.children[i], &status, wait ? 0 : WNOHANG);
        if (child < 0)
            fail(-1, "waitpid: %s", strerrorname_np(errno));
        if (child == 0) {
            ++i;
            continue;
        }
        check_status(child, status);
        w.children.erase(w.children.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void adopt(Worker &w, const char *list, bool spawned)
{
    for (const char *at = list; *at != '\0'; ++at) {
        Held h{};
        char *end = nullptr;
        h.fd = static_cast<int>(std::strtol(at, &end, 10));
        h.stream = static_cast<unsigned>(std::strtoul(end + 1, &end, 10));
        h.side = static_cast<unsigned>(std::strtoul(end + 1, &end, 10));
        if (spawned)
            hold(h.mine());
        w.held.push_back(h);
        at = end;
    }
}

} // namespace soak
