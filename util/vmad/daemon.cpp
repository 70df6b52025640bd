// SPDX-License-Identifier: BSD-2-Clause
#include "daemon.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "log.hpp"

namespace vma::guard {

namespace {

constexpr std::size_t kMostClients = 1024;
constexpr rlim_t kDescriptors = 16384;             // four a client at most, and the broker's
constexpr Nanos kPause = 100 * inet::kMillisecond; // of the listener, when there is no descriptor left

void raise_limit()
{
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kDescriptors));
    setrlimit(RLIMIT_NOFILE, &limit);
}

core::UniqueFd open_signals()
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0)
        return {};
    return core::UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

} // namespace

std::string Daemon::open(const char *path)
{
    raise_limit();
    signal(SIGPIPE, SIG_IGN); // of who read what we print
    if (std::string error = *path != 0 ? listener_.open(path) : ""; !error.empty())
        return error;
    signals_ = open_signals();
    set_ = core::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!signals_ || !set_ || !watch(signals_.get(), &signals_) || (*path != 0 && !watch(listener_.fd(), &listener_)))
        return std::string("epoll: ") + std::strerror(errno);
    if (std::string error = agent_.open(); !error.empty())
        return error;
    if (agent_.fd() >= 0 && !watch(agent_.fd(), &agent_))
        return std::string("epoll: ") + std::strerror(errno);
    if (std::string error = broker_.open(); !error.empty())
        say(Level::kWarning, "there is no broker: %s", error.c_str()); // all else goes on
    if (broker_.fd() >= 0 && !watch(broker_.fd(), &broker_))
        return std::string("epoll: ") + std::strerror(errno);
    return "";
}

bool Daemon::watch(int fd, void *what)
{
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.ptr = what;
    return epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &interest) == 0;
}

void Daemon::run()
{
    while (turn()) {
    }
}

// SIGHUP is for the broker's rules.
bool Daemon::is_to_end()
{
    signalfd_siginfo told{};
    while (read(signals_.get(), &told, sizeof told) == ssize_t{sizeof told}) {
        if (told.ssi_signo != SIGHUP)
            return true;
        broker_.read_rules();
    }
    return false;
}

int Daemon::timeout(Nanos now) const
{
    Nanos first = std::min({paused_until_, agent_.due(), broker_.due()});
    for (const Client &client : clients_)
        first = std::min(first, client.due());
    if (first == inet::kNever)
        return -1;
    return first <= now ? 0 : static_cast<int>((first - now) / inet::kMillisecond) + 1;
}

// A client has at most one event a turn, as it has one descriptor in the set: whoever is removed by its own event has
// none left.
bool Daemon::turn()
{
    epoll_event events[64];
    const int count = epoll_wait(set_.get(), events, std::size(events), timeout(core::monotonic_ns()));
    const Nanos now = core::monotonic_ns();
    for (int i = 0; i < count; ++i) {
        void *const what = events[i].data.ptr;
        if (what == &signals_) {
            if (is_to_end())
                return false;
            continue;
        }
        if (what == &listener_) {
            accept_waiting(now);
            continue;
        }
        if (what == &agent_) {
            agent_.on_readable(now);
            continue;
        }
        if (what == &broker_) {
            broker_.on_readable(now);
            continue;
        }
        const auto client = std::find_if(clients_.begin(), clients_.end(), [&](const Client &c) { return &c == what; });
        if (client == clients_.end())
            continue;
        const int watched = client->watched();
        on_client(client, client->on_readable(now), watched);
    }
    on_time(now);
    std::fflush(stdout);
    return true;
}

void Daemon::on_time(Nanos now)
{
    agent_.on_time(now);
    broker_.on_time(now);
    if (paused_until_ <= now)
        paused_until_ = watch(listener_.fd(), &listener_) ? inet::kNever : now + kPause;
    for (auto client = clients_.begin(); client != clients_.end();) {
        const auto next = std::next(client);
        if (client->due() <= now) {
            const int watched = client->watched();
            on_client(client, client->on_time(now), watched);
        }
        client = next;
    }
}

// A descriptor that was closed has left the set by itself.
void Daemon::on_client(Clients::iterator client, Client::Outcome outcome, int watched_before)
{
    if (outcome == Client::Outcome::kOver) {
        clients_.erase(client);
        return;
    }
    const int watched = client->watched();
    if (watched != watched_before && watched >= 0)
        static_cast<void>(watch(watched, &*client)); // its time comes in any case
}

// ---- who comes -----------------------------------------------------------------------------------------------------

void Daemon::accept_waiting(Nanos now)
{
    const int shortage = accept_all(listener_, [this](core::UniqueFd socket) { admit(std::move(socket)); });
    if (shortage != 0)
        pause(now, shortage);
}

void Daemon::pause(Nanos now, int error)
{
    say(Level::kError, "can't accept: %s", std::strerror(error));
    epoll_ctl(set_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
    paused_until_ = now + kPause;
}

// Those of this user, and root's.
void Daemon::admit(core::UniqueFd socket)
{
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return;
    if (peer.uid != 0 && peer.uid != geteuid()) {
        say(Level::kWarning, "process %d is user %u's: not guarded", peer.pid, peer.uid);
        return;
    }
    if (clients_.size() >= kMostClients) {
        say(Level::kWarning, "process %d is one too many: not guarded", peer.pid);
        return;
    }
    const int fd = socket.get();
    Client &client = clients_.emplace_back(std::move(socket), peer.pid, totals_);
    if (!watch(fd, &client))
        clients_.pop_back();
}

} // namespace vma::guard
