// SPDX-License-Identifier: BSD-2-Clause
#include "client.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "log.hpp"
#include "vma/passed.hpp"

namespace vma::guard {

namespace {

// From the death on. The kernel's answers to such segments are rate-limited (Linux: one in 500 ms a connection), and
// segments are lost.
constexpr Nanos kRounds[] = {0, 600 * inet::kMillisecond, 1200 * inet::kMillisecond, 3000 * inet::kMillisecond};

constexpr Nanos kDying =
    100 * inet::kMillisecond; // a process that has closed the socket, and lives on, is not waited for longer
constexpr Nanos kFull = 5 * inet::kMillisecond; // pause when the network takes no more
constexpr unsigned kMessagesATurn = 256;
constexpr unsigned kProbesATurn = 256;

core::UniqueFd open_process(pid_t pid)
{
    return core::UniqueFd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
}

struct Received {
    ether::GuardianMessage message;
    int fds[2] = {-1, -1};
};

// Bytes of the message, as long as it was sent; 0: there will be none any more; negative errno. Descriptors that come
// with it belong to the caller; more than two, and any where none are wanted, the kernel has closed.
ssize_t receive(int socket, bool descriptors, Received &received)
{
    PassedRoom<2> room;
    iovec part{&received.message, sizeof received.message};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptors)
        expect_passed(header, room);
    const ssize_t n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    each_passed(header, [&received, given = std::size_t{0}](int fd) mutable { // no more than there was room for
        if (given < std::size(received.fds))
            received.fds[given++] = fd;
    });
    return n;
}

int option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

} // namespace

Client::Client(core::UniqueFd socket, pid_t pid, Totals &totals)
    : socket_(std::move(socket)), process_(open_process(pid)), pid_(pid), totals_(totals)
{
}

Client::~Client()
{
    clear();
    if (socket_)
        shutdown(socket_.get(), SHUT_RDWR); // it hears of our end, though a child of the broker's may still have this
}

void Client::clear()
{
    totals_.flows -= flows_.size();
    flows_.clear();
}

int Client::watched() const
{
    if (socket_)
        return socket_.get();
    return state_ == State::kDying ? process_.get() : -1;
}

// ---- what it says --------------------------------------------------------------------------------------------------

Client::Outcome Client::on_readable(Nanos now)
{
    if (socket_)
        return take_messages(now);
    begin(now);
    return Outcome::kGoesOn;
}

Client::Outcome Client::take_messages(Nanos now)
{
    for (unsigned i = 0; i < kMessagesATurn; ++i) {
        Received received;
        const bool strange = state_ == State::kStrange;
        const ssize_t n = receive(socket_.get(), strange, received);
        if (n == -EAGAIN || n == -EINTR)
            return Outcome::kGoesOn;
        if (n <= 0)
            return on_hangup(now);
        const ether::GuardianMessage &message = received.message;
        const bool sound = n == sizeof message && message.magic == ether::kGuardianMagic && message.timestamps <= 1 &&
                           message.reserved == 0;
        if (strange) { // takes the descriptors in any case
            const bool greeted =
                take_greeting(message, core::UniqueFd(received.fds[0]), core::UniqueFd(received.fds[1]));
            if (!sound || !greeted)
                return refuse("its greeting is not that of this version");
        } else if (!sound || !take(message, now)) {
            return refuse("a message is malformed");
        }
    }
    return Outcome::kGoesOn;
}

bool Client::take_greeting(const ether::GuardianMessage &message, core::UniqueFd first, core::UniqueFd second)
{
    if ((first && !keep_raw(std::move(first))) || (second && !keep_raw(std::move(second))))
        return false;
    state_ = State::kAlive;
    return message.call == ether::GuardianCall::kHello && (raw4_ || raw6_);
}

// Only what can do no more than send packets, and doesn't take any.
bool Client::keep_raw(core::UniqueFd given)
{
    const int fd = given.get();
    if (option(fd, SO_TYPE) != SOCK_RAW || option(fd, SO_PROTOCOL) != IPPROTO_RAW)
        return false;
    const int family = option(fd, SO_DOMAIN);
    if (family != AF_INET && family != AF_INET6)
        return false;
    (family == AF_INET ? raw4_ : raw6_) = std::move(given);
    return true;
}

bool Client::take(const ether::GuardianMessage &message, Nanos now)
{
    switch (message.call) {
    case ether::GuardianCall::kForget:
        clear();
        return true;
    case ether::GuardianCall::kRemove:
        totals_.flows -= flows_.erase(key_of(message));
        say(Level::kDebug, "process %d: %s is over", pid_, text_of(key_of(message)).c_str());
        return true;
    case ether::GuardianCall::kAdd:
        if (!is_plausible(key_of(message)))
            return false;
        add(message, now);
        return true;
    default:
        return false;
    }
}

void Client::add(const ether::GuardianMessage &message, Nanos now)
{
    const FlowKey key = key_of(message);
    const auto place = flows_.find(key);
    if (place != flows_.end()) {
        place->second = state_of(message, now);
    } else if (flows_.size() < ether::kMostGuarded && totals_.flows < kMostFlows) {
        flows_.emplace(key, state_of(message, now));
        ++totals_.flows;
    } else {
        if (!std::exchange(full_told_, true))
            say(Level::kWarning, "process %d has more connections than are guarded", pid_);
        return;
    }
    if (says(Level::kDebug))
        say(Level::kDebug, "process %d: %s", pid_, text_of(key).c_str());
}

Client::Outcome Client::refuse(const char *why)
{
    say(Level::kWarning, "process %d is not guarded any more: %s", pid_, why);
    return Outcome::kOver;
}

// ---- its death ------------------------------------------------------------------------------------------------------

// Descriptors are closed one after another, the steering program and the sockets that the connections were offloaded
// from perhaps after this one: when the process has ended all of them are.
Client::Outcome Client::on_hangup(Nanos now)
{
    socket_.reset();
    if (flows_.empty()) {
        say(Level::kDebug, "process %d has left", pid_);
        return Outcome::kOver;
    }
    state_ = State::kDying;
    due_ = process_ ? now + kDying : now;
    return Outcome::kGoesOn;
}

void Client::begin(Nanos now)
{
    state_ = State::kDead;
    process_.reset();
    say(Level::kInformation, "process %d has died: resets %zu connections", pid_, flows_.size());
    round_ = 0;
    began_ = now;
    next_ = flows_.cbegin();
    due_ = now;
}

Client::Outcome Client::on_time(Nanos now)
{
    if (state_ == State::kDying)
        begin(now);
    for (unsigned i = 0; i < kProbesATurn && next_ != flows_.cend(); ++i, ++next_) {
        if (!send_probe(next_->first, next_->second, now)) {
            due_ = now + kFull;
            return Outcome::kGoesOn;
        }
    }
    if (next_ != flows_.cend()) {
        due_ = now;
        return Outcome::kGoesOn;
    }
    if (++round_ == std::size(kRounds)) {
        say(Level::kDebug, "process %d: that was all", pid_);
        return Outcome::kOver;
    }
    due_ = std::max(now, began_ + kRounds[round_]);
    next_ = flows_.cbegin();
    return Outcome::kGoesOn;
}

// False: the network takes no more now. What fails in another way has no route any more, or a firewall.
bool Client::send_probe(const FlowKey &key, const FlowState &state, Nanos now) const
{
    Probe probe;
    const std::size_t length = write_probe(key, state, round_, now, probe);
    sockaddr_storage target{};
    socklen_t target_length = 0;
    const bool v4 = key.remote.is_v4();
    if (v4) {
        auto &in = reinterpret_cast<sockaddr_in &>(target);
        in.sin_family = AF_INET;
        std::memcpy(&in.sin_addr, key.remote.v4_bytes(), sizeof in.sin_addr);
        target_length = sizeof in;
    } else {
        auto &in = reinterpret_cast<sockaddr_in6 &>(target);
        in.sin6_family = AF_INET6;
        std::memcpy(&in.sin6_addr, key.remote.bytes.data(), sizeof in.sin6_addr);
        target_length = sizeof in;
    }
    const int raw = (v4 ? raw4_ : raw6_).get();
    const ssize_t sent = sendto(raw, probe.data(), length, MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr *>(&target), target_length);
    return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

} // namespace vma::guard
