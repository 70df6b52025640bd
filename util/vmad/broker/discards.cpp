// SPDX-License-Identifier: BSD-2-Clause
#include "discards.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/vmad/log.hpp"

namespace vma::guard {

namespace {

bool is_socket(int fd)
{
    int type = 0;
    socklen_t length = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 || errno != ENOTSOCK;
}

void set_timer(suseconds_t interval)
{
    const itimerval times{{0, interval}, {0, interval}};
    setitimer(ITIMER_REAL, &times, nullptr);
}

} // namespace

void Discards::close(core::UniqueFd given, uid_t user)
{
    if (!given || is_socket(given.get()))
        return;
    forget_idle();
    std::shared_ptr<Busy> &busy = users_[user];
    if (!busy)
        busy = std::make_shared<Busy>();
    const int fd = given.release();
    if (!start(fd, busy))
        say(Level::kError, "can't close a descriptor of user %u's", user); // rather than wait for whoever serves it
}

bool Discards::is_full(uid_t user) const
{
    const auto found = users_.find(user);
    return found != users_.end() && found->second->count >= kMost;
}

void Discards::forget_idle()
{
    std::erase_if(users_, [](const auto &user) { return user.second->count == 0; });
}

bool Discards::start(int fd, const std::shared_ptr<Busy> &user)
{
    struct Work {
        int fd;
        std::shared_ptr<Busy> user;
        std::shared_ptr<Busy> all;
    };
    if (all_->count >= kMostThreads)
        return false;
    auto *const work = new Work{fd, user, all_};
    const auto run = [](void *given) -> void * {
        const std::unique_ptr<Work> mine(static_cast<Work *>(given));
        ::close(mine->fd);
        --mine->user->count;
        --mine->all->count;
        return nullptr;
    };
    ++user->count;
    ++all_->count;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // the thread has none
    pthread_t thread;
    const bool started = pthread_create(&thread, nullptr, run, work) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) {
        pthread_detach(thread);
        return true;
    }
    --user->count;
    --all_->count;
    delete work;
    return false;
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
