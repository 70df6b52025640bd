// SPDX-License-Identifier: BSD-2-Clause
#include "discards.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/clock.hpp"
#include "util/vmad/log.hpp"
#include "vma/strangers.hpp"

namespace vma::guard {

namespace {

#ifndef P_PIDFD
constexpr idtype_t P_PIDFD = static_cast<idtype_t>(3);
#endif

int option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

constexpr StrangersCalls kCalls = {getsockopt, setsockopt, ::shutdown, recvmsg};

// Shares the table of descriptors with vmad, and has a copy of its memory: no more than system calls.
int close_in_child(void *fds) // of which -1 is the last
{
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (const int *fd = static_cast<const int *>(fds); *fd >= 0; ++fd)
        syscall(SYS_close, *fd);
    return 0;
}

void set_timer(suseconds_t interval)
{
    const itimerval times{{0, interval}, {0, interval}};
    setitimer(ITIMER_REAL, &times, nullptr);
}

} // namespace

bool is_inet(int fd)
{
    const int family = option(fd, SO_DOMAIN);
    if (family != AF_INET && family != AF_INET6)
        return false;
    const int protocol = option(fd, SO_PROTOCOL);
    return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

void Discards::open(int set, std::uint64_t number)
{
    set_ = set;
    number_ = number;
}

void Discards::close(core::UniqueFd given, uid_t user)
{
    if (given && !is_inet(given.get()))
        add({given.release(), user, true});
}

void Discards::hang_up(core::UniqueFd end, uid_t user)
{
    if (!end)
        return;
    if (!is_safe_to_close(end.get(), kCalls))
        add({end.release(), user, false});
}

bool Discards::is_full(uid_t user) const
{
    const auto found = users_.find(user);
    return found != users_.end() && found->second.given >= kMostOfUser;
}

void Discards::add(const Job &job)
{
    Count &count = users_[job.user];
    count.given += job.given ? 1 : 0;
    if (start(job))
        return;
    ++count.waiting;
    waiting_.push_back(job);
}

// The child's number and vmad's are the same file, and it is the child that lets go of it: the kernel waits for a
// file's server there. A thread would do that too, and keep vmad from ending.
bool Discards::start(const Job &job)
{
    Count &count = users_[job.user];
    if (count.children >= kMostOfUser || children_.size() >= kMostChildren)
        return false;
    alignas(16) char stack[4096];
    int process = -1;
    int fds[] = {job.fd, -1};
    if (clone(close_in_child, stack + sizeof stack, CLONE_FILES | CLONE_PIDFD, fds, &process) < 0) {
        try_again();
        return false;
    }
    ++count.children;
    children_.push_back({core::UniqueFd(process), job});
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = number_;
    if (epoll_ctl(set_, EPOLL_CTL_ADD, process, &interest) != 0)
        try_again();
    return true;
}

// Without the end of a child nobody would come to it.
void Discards::try_again()
{
    due_ = core::monotonic_ns() + 100 * inet::kMillisecond;
}

void Discards::reap()
{
    std::erase_if(children_, [this](const Child &child) {
        siginfo_t end{};
        if (waitid(P_PIDFD, static_cast<id_t>(child.process.get()), &end, WEXITED | WNOHANG | __WALL) == 0 &&
            end.si_pid == 0)
            return false;
        Count &count = users_[child.job.user];
        --count.children;
        count.given -= child.job.given ? 1 : 0;
        return true;
    });
}

void Discards::work()
{
    due_ = inet::kNever;
    reap();
    std::erase_if(waiting_, [this](const Job &job) {
        if (!start(job))
            return false;
        --users_[job.user].waiting;
        return true;
    });
    std::erase_if(users_, [](const auto &user) { return user.second.children == 0 && user.second.waiting == 0; });
}

// Who is the last to have a file waits for it, which is not to be vmad's own end.
Discards::~Discards()
{
    if (waiting_.empty())
        return;
    std::vector<int> fds;
    for (const Job &job : waiting_)
        fds.push_back(job.fd);
    fds.push_back(-1);
    alignas(16) char stack[4096];
    clone(close_in_child, stack + sizeof stack, CLONE_FILES, fds.data());
}

void CloseWatch::prepare()
{
    struct sigaction action = {};
    action.sa_handler = [](int) {}; // without SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
}

CloseWatch::CloseWatch()
{
    set_timer(10000);
}

CloseWatch::~CloseWatch()
{
    set_timer(0);
}

bool has_come(int fd, short events)
{
    pollfd state{fd, events, 0};
    int count = 0;
    do {
        count = poll(&state, 1, 0);
    } while (count < 0 && errno == EINTR);
    return count != 0;
}

} // namespace vma::guard
