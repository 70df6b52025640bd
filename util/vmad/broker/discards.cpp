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

#include "util/vmad/log.hpp"

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

// Of a socket that takes no more: whether a message is in its queue, which stays there. Each has its sender's
// credentials then, so that an empty one is none too few; the place of descriptors is left to the queue.
bool has_unread(int socket)
{
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    for (int tries = 0; tries < 2; ++tries) { // the first may tell that the other has left answers unread
        msghdr header{};
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        const ssize_t size = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
        if (size >= 0)
            return size > 0 || header.msg_controllen != 0;
    }
    return true;
}

// Shares the table of descriptors with vmad, and has a copy of its memory: no more than system calls.
int close_in_child(void *fd)
{
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    syscall(SYS_close, *static_cast<const int *>(fd));
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
    shutdown(end.get(), SHUT_RDWR);
    if (has_unread(end.get()))
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
    int fd = job.fd;
    if (clone(close_in_child, stack + sizeof stack, CLONE_FILES | CLONE_PIDFD, &fd, &process) < 0)
        return false;
    ++count.children;
    children_.push_back({core::UniqueFd(process), job});
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = number_;
    epoll_ctl(set_, EPOLL_CTL_ADD, process, &interest);
    return true;
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
    reap();
    std::erase_if(waiting_, [this](const Job &job) {
        if (!start(job))
            return false;
        --users_[job.user].waiting;
        return true;
    });
    std::erase_if(users_, [](const auto &user) { return user.second.children == 0 && user.second.waiting == 0; });
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
