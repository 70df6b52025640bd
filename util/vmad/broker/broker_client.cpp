// SPDX-License-Identifier: BSD-2-Clause
#include "broker_client.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include "vma/passed.hpp"

namespace vma::guard {

namespace {

constexpr std::size_t kMostQueued = 1024; // answers

} // namespace

BrokerClient::BrokerClient(core::UniqueFd socket, Person person, Account &account, Discards &discards)
    : socket_(std::move(socket)), person_(std::move(person)), account_(account), discards_(discards)
{
    ++account_.connections;
}

BrokerClient::~BrokerClient()
{
    close();
    --account_.connections;
}

void BrokerClient::close()
{
    for (Queued &queued : queue_) {
        account_.held -= queued.passed ? 1 : 0;
        let_go(queued.passed);
    }
    queue_.clear();
    let_go(socket_);
}

// Also of a pair that he isn't given: the other may have its end, and have sent something.
void BrokerClient::let_go(core::UniqueFd &end)
{
    discards_.hang_up(std::exchange(end, {}), person_.user);
}

// Descriptors that there is no room for the kernel would close right here, which is why the message is looked at first,
// and taken when we have what it brings.
BrokerClient::Received BrokerClient::receive(Packet &packet)
{
    PassedRoom<2> room;
    iovec part{packet.bytes.data(), packet.bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    expect_passed(header, room);
    const ssize_t size = recvmsg(socket_.get(), &header, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kOver;
    packet.size = static_cast<std::size_t>(size);
    packet.count = 0;
    each_passed(header, [&packet, given = std::size_t{0}](int fd) mutable {
        core::UniqueFd owned(fd);
        if (given < std::size(packet.descriptors))
            packet.descriptors[given++] = std::move(owned);
        ++packet.count;
    });
    if ((header.msg_flags & MSG_CTRUNC) != 0)
        return Received::kTooMuch;
    return size != 0 && recv(socket_.get(), nullptr, 0, MSG_DONTWAIT) >= 0 ? Received::kRequest : Received::kOver;
}

BrokerClient::Sent BrokerClient::send_now(broker::Answer &answer, core::UniqueFd &passed)
{
    const int fd = passed.get();
    PassedRoom<1> room;
    iovec part{&answer, answer.header.length};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    pass(header, room, {&fd, passed ? std::size_t{1} : 0});
    if (sendmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return Sent::kSent;
    if (errno == ETOOMANYREFS && passed) {
        let_go(passed);
        answer = refusal(answer.header.id, broker::Result::kBusy);
        return send_now(answer, passed);
    }
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? Sent::kLater : Sent::kFailed;
}

bool BrokerClient::send(broker::Answer answer, core::UniqueFd passed)
{
    const Sent sent = is_behind() ? Sent::kLater : send_now(answer, passed);
    if (sent == Sent::kSent)
        return true;
    if (sent == Sent::kFailed || queue_.size() == kMostQueued) {
        let_go(passed);
        return false;
    }
    account_.held += passed ? 1 : 0;
    queue_.push_back({answer, std::move(passed)});
    return true;
}

bool BrokerClient::send_more()
{
    while (is_behind()) {
        Queued &next = queue_.front();
        const bool held = bool{next.passed};
        const Sent sent = send_now(next.answer, next.passed);
        account_.held -= held && (sent == Sent::kSent || !next.passed) ? 1 : 0;
        if (sent != Sent::kSent)
            return sent == Sent::kLater;
        queue_.pop_front();
    }
    return true;
}

} // namespace vma::guard
