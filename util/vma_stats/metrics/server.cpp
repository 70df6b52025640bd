// SPDX-License-Identifier: BSD-2-Clause
// One poll() over the listener and its clients. While there are as many clients as may be, the next ones wait in the
// kernel's queue, at most until a time-out of one of these.
#include "util/vma_stats/metrics/server.hpp"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "util/vma_stats/metrics/http.hpp"

namespace vma_stats {

namespace {

constexpr std::size_t kMostClients = 16;
constexpr std::int64_t kToAskMs = 3000;   // for the whole request
constexpr std::int64_t kToReadMs = 10000; // the whole answer
constexpr std::int64_t kToCloseMs = 5000;
constexpr int kNoDescriptorMs = 100; // until the next try where accept() finds none

std::int64_t now_ms()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

bool is_for_later(int error)
{
    return error == EAGAIN || error == EINTR;
}

} // namespace

Server::Server(int listener, std::function<std::string()> page) : listener_(listener), page_(std::move(page)) {}

Server::~Server()
{
    for (const Client &client : clients_)
        ::close(client.fd);
    ::close(listener_);
}

int Server::milliseconds_left() const
{
    std::int64_t first = INT64_MAX;
    for (const Client &client : clients_)
        first = std::min(first, client.until_ms);
    return first == INT64_MAX ? -1 : static_cast<int>(std::max<std::int64_t>(first - now_ms(), 0));
}

void Server::accept_clients()
{
    while (clients_.size() < kMostClients) {
        const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            clients_.push_back({fd, State::kReads, {}, {}, 0, now_ms() + kToAskMs});
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            ::poll(nullptr, 0, kNoDescriptorMs); // the listener stays readable: no spinning on it
        if (errno != ECONNABORTED)
            return;
    }
}

void Server::answer(Client &client, std::string &&text)
{
    client.out = std::move(text);
    client.in.clear();
    client.state = State::kWrites;
    client.until_ms = now_ms() + kToReadMs;
}

bool Server::read(Client &client)
{
    char bytes[2048];
    const ssize_t n = ::recv(client.fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return n < 0 && is_for_later(errno);
    client.in.append(bytes, static_cast<std::size_t>(n));
    http::Request request;
    switch (http::read_request(client.in, request)) {
    case http::Reading::kMore:
        return true;
    case http::Reading::kWhole:
        answer(client, http::answer(request, page_));
        break;
    case http::Reading::kBad:
        answer(client, http::answer_error(http::Status::kBadRequest));
        break;
    case http::Reading::kTooLarge:
        answer(client, http::answer_error(http::Status::kTooLarge));
        break;
    }
    return write(client);
}

bool Server::write(Client &client)
{
    while (client.written < client.out.size()) {
        const ssize_t n =
            ::send(client.fd, client.out.data() + client.written, client.out.size() - client.written, MSG_NOSIGNAL);
        if (n < 0)
            return is_for_later(errno);
        client.written += static_cast<std::size_t>(n);
    }
    client.out = {};
    client.state = State::kEnds;
    client.until_ms = now_ms() + kToCloseMs;
    return ::shutdown(client.fd, SHUT_WR) == 0;
}

bool Server::drain(const Client &client) const
{
    char bytes[4096];
    const ssize_t n = ::recv(client.fd, bytes, sizeof bytes, 0);
    return n > 0 || (n < 0 && is_for_later(errno));
}

bool Server::go_on(Client &client)
{
    switch (client.state) {
    case State::kReads:
        return read(client);
    case State::kWrites:
        return write(client);
    case State::kEnds:
        return drain(client);
    }
    return false;
}

// Tells who has not asked in time, as far as it is heard: nobody waits for him any more.
void Server::time_out(const Client &client) const
{
    if (client.state != State::kReads)
        return;
    const std::string text = http::answer_error(http::Status::kTimeout);
    [[maybe_unused]] const ssize_t n = ::send(client.fd, text.data(), text.size(), MSG_NOSIGNAL);
}

void Server::run(int stop)
{
    std::vector<pollfd> waits;
    for (;;) {
        waits.assign({{stop, POLLIN, 0}, {clients_.size() < kMostClients ? listener_ : -1, POLLIN, 0}});
        for (const Client &client : clients_)
            waits.push_back({client.fd, static_cast<short>(client.state == State::kWrites ? POLLOUT : POLLIN), 0});
        if (::poll(waits.data(), waits.size(), milliseconds_left()) < 0 && errno != EINTR)
            return;
        if (waits[0].revents != 0)
            return;
        const std::int64_t now = now_ms();
        std::size_t kept = 0;
        for (std::size_t i = 0; i < clients_.size(); ++i) {
            Client &client = clients_[i];
            bool goes_on = waits[i + 2].revents == 0 || go_on(client);
            if (goes_on && client.until_ms <= now) {
                time_out(client);
                goes_on = false;
            }
            if (!goes_on)
                ::close(client.fd);
            else if (kept++ != i)
                clients_[kept - 1] = std::move(client);
        }
        clients_.resize(kept);
        if (waits[1].revents != 0)
            accept_clients();
    }
}

} // namespace vma_stats
