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

BrokerClient::BrokerClient(core::UniqueFd socket, Person person, Account &account)
    : socket_(std::move(socket)), person_(std::move(person)), account_(account)
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
    for (const Queued &queued : queue_)
        account_.held -= queued.passed ? 1 : 0;
    queue_.clear();
    socket_.reset();
}

// More descriptors than there is room for the kernel closes.
BrokerClient::Received BrokerClient::receive(Packet &packet)
{
    PassedRoom<2> room;
    iovec part{packet.bytes.data(), packet.bytes.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    expect_passed(header, room);
    const ssize_t size = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kOver;
    packet.size = static_cast<std::size_t>(size);
    packet.count = (header.msg_flags & MSG_CTRUNC) != 0 ? 3 : 0;
    each_passed(header, [&packet, given = std::size_t{0}](int fd) mutable {
        core::UniqueFd owned(fd);
        if (given < std::size(packet.descriptors))
            packet.descriptors[given++] = std::move(owned);
        ++packet.count;
    });
    return size == 0 ? Received::kOver : Received::kRequest;
}

BrokerClient::Sent BrokerClient::send_now(const broker::Answer &answer, int passed)
{
    PassedRoom<1> room;
    iovec part{const_cast<broker::Answer *>(&answer), answer.header.length};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    pass(header, room, {&passed, passed >= 0 ? std::size_t{1} : 0});
    if (sendmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return Sent::kSent;
    if (errno == ETOOMANYREFS && passed >= 0)
        return send_now(refusal(answer.header.id, broker::Result::kBusy), -1);
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? Sent::kLater : Sent::kFailed;
}

bool BrokerClient::send(const broker::Answer &answer, core::UniqueFd passed)
{
    const Sent sent = is_behind() ? Sent::kLater : send_now(answer, passed.get());
    if (sent != Sent::kLater)
        return sent == Sent::kSent;
    if (queue_.size() == kMostQueued)
        return false;
    account_.held += passed ? 1 : 0;
    queue_.push_back({answer, std::move(passed)});
    return true;
}

bool BrokerClient::send_more()
{
    while (is_behind()) {
        const Queued &next = queue_.front();
        const Sent sent = send_now(next.answer, next.passed.get());
        if (sent != Sent::kSent)
            return sent == Sent::kLater;
        account_.held -= next.passed ? 1 : 0;
        queue_.pop_front();
    }
    return true;
}

} // namespace vma::guard
