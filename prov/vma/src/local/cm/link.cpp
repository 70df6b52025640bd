// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/cm/manager.hpp"

namespace vma::local {
namespace {

constexpr std::size_t kMaxWaiting = 8192; // messages: a peer that asks and asks and never reads is cut off
constexpr int kMessagesAtOnce = 64;       // before other links get their turn

LinkMessage hello(const std::uint64_t &nonce) noexcept
{
    LinkMessage message{};
    message.type = MessageType::hello;
    message.probe_address = reinterpret_cast<std::uintptr_t>(&nonce);
    message.probe_nonce = nonce;
    return message;
}

// Descriptors of a received packet. More than an offer's are closed and make the count wrong.
unsigned take_fds(msghdr &header, LinkFds &fds) noexcept
{
    unsigned count = 0;
    for (cmsghdr *control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t carried = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < carried; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
            if (count < kLinkFdCount)
                fds[count] = core::adopt_fd(fd);
            else
                core::kernel::close(fd);
            ++count;
        }
    }
    return count;
}

} // namespace

Link::Link(ConnectionManager &manager, core::UniqueFd socket, bool initiator, std::uint16_t port) noexcept
    : manager_(manager), socket_(std::move(socket)), own_end_(inode_of(socket_.get())), port_(port),
      initiator_(initiator)
{
}

Link::~Link()
{
    if (watched_ != 0)
        manager_.unwatch(socket_.get());
}

bool Link::start() noexcept
{
    if (!check_peer())
        return false;
    if (!manager_.watch(*this, socket_.get(), EPOLLIN, true)) {
        VMA_WARN(ep_ctrl, "cannot watch a link: %s", std::strerror(errno));
        return false;
    }
    watched_ = EPOLLIN;
    return send(hello(manager_.nonce()), nullptr);
}

// The kernel's word on who made the other end. The directory keeps others out; this is the second lock.
bool Link::check_peer() noexcept
{
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (core::kernel::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        VMA_WARN(ep_ctrl, "cannot tell who is behind a link: %s", std::strerror(errno));
        return false;
    }
    if (peer.uid != ::geteuid()) {
        VMA_WARN(ep_ctrl, "process %d of user %u is refused: only user %u may connect", static_cast<int>(peer.pid),
                 peer.uid, ::geteuid());
        return false;
    }
    peer_pid_ = peer.pid;
    return true;
}

SocketInode Link::peers_end(SockDiag &kernel) noexcept
{
    if (peers_end_ == 0 && kernel.other_end_of_unix(socket_.get(), peers_end_) != 0)
        peers_end_ = 0;
    return peers_end_;
}

void Link::watch(std::uint32_t events) noexcept
{
    if (events != watched_ && manager_.watch(*this, socket_.get(), events, false))
        watched_ = events;
}

Link::Sent Link::send_now(const LinkMessage &message, const int *fds) noexcept
{
    iovec payload{const_cast<LinkMessage *>(&message), sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kLinkFdCount)] = {};
    const unsigned count = descriptors_of(message);
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    if (count != 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
        std::memcpy(CMSG_DATA(rights), fds, sizeof(int) * count);
    }
    ssize_t sent;
    do {
        sent = core::kernel::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(sizeof(message)))
        return Sent::yes;
    // Too many descriptors of this user are on their way: as transient as a full socket.
    return errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM ? Sent::later : Sent::never;
}

bool Link::enqueue(const LinkMessage &message, const int *fds) noexcept
{
    if (waiting_.size() >= kMaxWaiting) {
        VMA_WARN(ep_ctrl, "process %d does not read its link: given up", static_cast<int>(peer_pid_));
        broken_ = true;
        return false;
    }
    Waiting &entry = waiting_.emplace_back();
    entry.message = message;
    const unsigned count = fds != nullptr ? descriptors_of(message) : 0;
    for (unsigned i = 0; i < count; ++i) {
        entry.fds[i] = core::duplicate_fd(fds[i]);
        if (!entry.fds[i]) {
            VMA_WARN(ep_ctrl, "cannot keep a descriptor for sending: %s", std::strerror(errno));
            waiting_.pop_back();
            return false;
        }
    }
    return true;
}

bool Link::send(const LinkMessage &message, const int *fds) noexcept
{
    if (broken_)
        return false;
    LinkMessage stamped = message;
    stamped.magic = kMessageMagic;
    stamped.version = kMessageVersion;
    if (waiting_.empty()) {
        const Sent sent = send_now(stamped, fds);
        if (sent == Sent::yes)
            return true;
        if (sent == Sent::never) {
            VMA_DEBUG(ep_ctrl, "link to process %d: %s", static_cast<int>(peer_pid_), std::strerror(errno));
            broken_ = true; // its end will be read
            return false;
        }
        if (errno != EAGAIN)
            manager_.retry_later(*this);
    }
    if (!enqueue(stamped, fds))
        return false;
    watch(EPOLLIN | EPOLLOUT);
    return true;
}

void Link::flush() noexcept
{
    while (!waiting_.empty() && !broken_) {
        Waiting &head = waiting_.front();
        int fds[kLinkFdCount];
        std::transform(head.fds.begin(), head.fds.end(), fds, [](const core::UniqueFd &fd) { return fd.get(); });
        const Sent sent = send_now(head.message, fds);
        if (sent == Sent::later) {
            // A socket that has room but a limit that hasn't would ring for ever: that one waits for the timer.
            const bool full = errno == EAGAIN;
            watch(full ? EPOLLIN | EPOLLOUT : EPOLLIN);
            if (!full)
                manager_.retry_later(*this);
            return;
        }
        broken_ = sent == Sent::never;
        waiting_.pop_front();
    }
    watch(EPOLLIN);
}

bool Link::is_well_formed(const LinkMessage &message, std::size_t length, int flags, unsigned fd_count,
                          bool &fds_lost) noexcept
{
    if (length != sizeof(message) || (flags & MSG_TRUNC) != 0 || message.magic != kMessageMagic ||
        message.version != kMessageVersion || message.data_length > sizeof(message.data))
        return false;
    if (message.type < MessageType::hello || message.type > MessageType::shutdown)
        return false;
    if (message.vouched > 1 || (message.vouched != 0 && !carries_offer(message.type)))
        return false;
    const unsigned expected = descriptors_of(message);
    fds_lost = (flags & MSG_CTRUNC) != 0 && fd_count < expected; // our own limit
    return fds_lost || fd_count == expected;
}

Link::Received Link::receive(LinkMessage &message, LinkFds &fds, bool &fds_lost) noexcept
{
    iovec payload{&message, sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kLinkFdCount)];
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    ssize_t length;
    unsigned fd_count;
    {
        const core::ForkGuard guard; // nor may a child be born with descriptors that nobody knows yet
        do {
            length = core::kernel::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            // Told once, before what the peer sent earlier, when it closed with something of ours unread.
        } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
        if (length < 0)
            return errno == EAGAIN ? Received::nothing : Received::end;
        fd_count = take_fds(header, fds);
    }
    if (length == 0)
        return Received::end;
    return is_well_formed(message, static_cast<std::size_t>(length), header.msg_flags, fd_count, fds_lost)
               ? Received::message
               : Received::violation;
}

// The first message. Reading the peer's nonce out of its memory shows that single copy works, and with whom.
bool Link::take_hello(const LinkMessage &message) noexcept
{
    if (message.type != MessageType::hello)
        return false;
    hello_received_ = true;
    std::uint64_t nonce = 0;
    const iovec mine{&nonce, sizeof(nonce)};
    const iovec theirs{reinterpret_cast<void *>(static_cast<std::uintptr_t>(message.probe_address)), sizeof(nonce)};
    const ssize_t copied = peer_pid_ > 0 ? ::process_vm_readv(peer_pid_, &mine, 1, &theirs, 1, 0) : -1;
    cma_ok_ = copied == static_cast<ssize_t>(sizeof(nonce)) && nonce == message.probe_nonce;
    VMA_DEBUG(ep_ctrl, "link to process %d is up, single copy %s", static_cast<int>(peer_pid_),
              cma_ok_ ? "works" : "is not allowed");
    return true;
}

void Link::on_ready(std::uint32_t events) noexcept
{
    if ((events & EPOLLOUT) != 0)
        flush();
    for (int i = 0; i < kMessagesAtOnce; ++i) {
        LinkMessage message;
        LinkFds fds;
        bool fds_lost = false;
        Received received = receive(message, fds, fds_lost);
        if (received == Received::nothing)
            return;
        if (received == Received::message && !hello_received_) {
            if (take_hello(message))
                continue;
            received = Received::violation;
        }
        if (received == Received::violation)
            VMA_WARN(ep_ctrl, "process %d sent a malformed message: its link is closed", static_cast<int>(peer_pid_));
        if (received != Received::message || !manager_.on_message(*this, message, fds, fds_lost)) {
            manager_.on_link_end(*this); // destroys this
            return;
        }
    }
}

} // namespace vma::local
