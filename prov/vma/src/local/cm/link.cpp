// SPDX-License-Identifier: BSD-2-Clause
#include "local/cm/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "local/segment.hpp"
#include "local/strangers.hpp"
#include "vma/passed.hpp"

namespace vma::local {
namespace {

constexpr std::size_t kMaxWaiting = 8192; // messages: a peer that asks and asks and never reads is cut off
constexpr int kMessagesAtOnce = 64;       // before other links get their turn

// A guest is not told of any memory of this process.
LinkMessage hello(const CmaMark &mark) noexcept
{
    LinkMessage message{};
    message.type = MessageType::hello;
    message.probe_address = mark.address;
    message.probe_nonce = mark.number;
    return message;
}

Statement statement_of(const LinkMessage &message, SocketInode speakers_end) noexcept
{
    return {.tcp_socket = message.tcp_socket,
            .link_end = speakers_end,
            .connection = message.connection,
            .message = static_cast<std::uint32_t>(message.type)};
}

// Descriptors of a received packet. More than an offer's are closed and make the count wrong.
unsigned take_fds(const msghdr &header, LinkFds &fds) noexcept
{
    unsigned count = 0;
    each_passed(header, [&](int fd) {
        if (count < kLinkFdCount)
            fds[count] = core::adopt_fd(fd);
        else
            core::kernel::close(fd);
        ++count;
    });
    return count;
}

// What a socket that the program gives can be for a link.
LinkSocket kind_of_link_socket(int fd) noexcept
{
    const auto option = [fd](int name) {
        int value = -1;
        socklen_t length = sizeof value;
        return core::kernel::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
    };
    if (!is_unix_socket(fd) || option(SO_TYPE) != SOCK_SEQPACKET)
        return LinkSocket::none;
    return option(SO_ACCEPTCONN) == 1 ? LinkSocket::listening : LinkSocket::connected;
}

} // namespace

LinkSocket kind_of_link(const fi_vma_link &link) noexcept
{
    const bool introduced = (link.flags & FI_VMA_LINK_INTRODUCED) != 0;
    if ((link.flags & ~FI_VMA_LINK_INTRODUCED) != 0 || (introduced && link.id == 0))
        return LinkSocket::none;
    const LinkSocket kind = kind_of_link_socket(link.socket);
    return introduced && kind == LinkSocket::listening ? LinkSocket::none : kind;
}

core::UniqueFd take_link_socket(int fd) noexcept
{
    const core::ForkGuard guard;
    static_cast<void>(core::set_nonblocking(fd)); // each call says for itself that it does not wait
    return core::adopt_fd(fd);
}

Link::Link(ConnectionManager &manager, core::UniqueFd socket, const Origin &origin) noexcept
    : manager_(manager), socket_(std::move(socket)), sent_bells_(origin.guest != 0), known_bells_(origin.guest != 0),
      segments_(origin.guest == 0 ? std::make_shared<LinkSegments>(manager.idle_segments) : nullptr),
      own_end_(inode_of(socket_.get())), origin_(origin)
{
}

Link::~Link()
{
    if (segments_)
        segments_->close();
    if (watched_ != 0)
        manager_.unwatch(socket_.get());
    if (guest() != 0 && !was_introduced() && peer_pid_ != 0)
        manager_.forget_guest(peer_uid_, peer_pid_);
    if (!is_this_users_)
        let_go(std::move(socket_), was_refused_);
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
    if (guest() == 0)
        manager_.secret.renew_if_old(); // a child has another mark than its parent
    return send(hello(guest() == 0 ? manager_.secret.mark() : CmaMark{}), nullptr);
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
    if (guest() == 0 && peer.uid != ::geteuid()) {
        VMA_WARN(ep_ctrl, "process %d of user %u is refused: only user %u may connect", static_cast<int>(peer.pid),
                 peer.uid, ::geteuid());
        return false;
    }
    peer_uid_ = was_introduced() ? origin_.user : peer.uid; // the other end's maker is who introduces
    if (guest() != 0 && manager_.is_banned(peer_user()))
        return false;
    peer_pid_ = peer.pid;
    is_this_users_ = guest() == 0;
    if (guest() != 0 && !was_introduced())
        origin_.guest = manager_.number_of_guest(peer.uid, peer.pid, guest());
    return true;
}

SocketInode Link::peers_end(SockDiag &kernel) noexcept
{
    if (peers_end_ == 0 && kernel.other_end_of_unix(socket_.get(), peers_end_) != 0)
        peers_end_ = 0;
    return peers_end_;
}

// Read anew for each: who could read it once may not be able to any more, and so nobody's secret is kept here. Where
// the kernel refuses it is not tried again.
bool Link::give_word(LinkMessage &message, SocketInode tcp_socket) noexcept
{
    if (!gives_words_ || guest() != 0)
        return false;
    message.tcp_socket = tcp_socket;
    const Said said = say({peer_pid_, mark_}, statement_of(message, own_end_), message.word);
    if (said == Said::yes)
        return true;
    gives_words_ = said != Said::never;
    message.tcp_socket = 0;
    return false;
}

std::uint64_t Link::hear_word(const LinkMessage &message, const Secret &secret, SockDiag &kernel) noexcept
{
    if (message.tcp_socket == 0 || guest() != 0 || peers_end(kernel) == 0)
        return 0;
    return secret.was_said(statement_of(message, peers_end_), message.word) ? message.tcp_socket : 0;
}

void Link::watch(std::uint32_t events) noexcept
{
    if (events != watched_ && manager_.watch(*this, socket_.get(), events, false))
        watched_ = events;
}

Link::Sent Link::send_now(const LinkMessage &message, const int *fds) noexcept
{
    iovec payload{const_cast<LinkMessage *>(&message), sizeof(message)};
    PassedRoom<kLinkFdCount> room;
    const unsigned count = descriptors_of(message);
    msghdr header{};
    header.msg_iov = &payload;
    header.msg_iovlen = 1;
    pass(header, room, {fds, count});
    ssize_t sent;
    do {
        sent = core::kernel::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(sizeof(message)))
        return Sent::yes;
    // Too many descriptors of this user are on their way: as transient as a full socket.
    return errno == EAGAIN || errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM ? Sent::later : Sent::never;
}

// A nudge asks for a look at all that was written before: one that waits is as good as many, which a program that goes
// on nudging a peer that is stopped would fill the list with.
bool Link::is_nudged_already(const LinkMessage &message) const noexcept
{
    return message.type == MessageType::nudge &&
           std::any_of(waiting_.begin(), waiting_.end(), [&message](const Waiting &one) {
               return one.message.type == MessageType::nudge && one.message.connection == message.connection;
           });
}

// Whoever sends may go on with the link, so it doesn't end here: its end is read, behind what the peer sent before.
void Link::break_off() noexcept
{
    broken_ = true;
    core::kernel::shutdown(socket_.get(), SHUT_RDWR);
}

bool Link::enqueue(const LinkMessage &message, const int *fds) noexcept
{
    if (is_nudged_already(message))
        return true;
    if (waiting_.size() >= kMaxWaiting) {
        VMA_WARN(ep_ctrl, "process %d does not read its link: given up", static_cast<int>(peer_pid_));
        break_off();
        return false;
    }
    const unsigned count = descriptors_of(message);
    if (guest() != 0 && count != 0) { // what is on its way to a guest counts against this user
        break_off();
        return false;
    }
    Waiting &entry = waiting_.emplace_back();
    entry.message = message;
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
    std::array<int, kLinkFdCount> packed;
    packed.fill(-1);
    if (fds != nullptr)
        pack(stamped, fds, packed.data());
    if (waiting_.empty()) {
        const Sent sent = send_now(stamped, packed.data());
        if (sent == Sent::yes)
            return true;
        if (sent == Sent::never) {
            VMA_DEBUG(ep_ctrl, "link to process %d: %s", static_cast<int>(peer_pid_), std::strerror(errno));
            break_off();
            return false;
        }
        if (errno != EAGAIN)
            manager_.retry_later(*this);
    }
    if (!enqueue(stamped, packed.data())) {
        sent_bells_.forget();
        return false;
    }
    watch(EPOLLIN | EPOLLOUT);
    return true;
}

void Link::tell(MessageType type, std::uint32_t connection, RejectReason reason) noexcept
{
    LinkMessage message{};
    message.type = type;
    message.connection = connection;
    message.reason = reason;
    send(message, nullptr);
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
        if (sent == Sent::never)
            break_off();
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
    if (message.type < MessageType::hello || message.type > MessageType::nudge)
        return false;
    if ((message.brings & ~kBringsAll) != 0 || (message.brings != 0 && !carries_offer(message.type)))
        return false;
    const unsigned expected = descriptors_of(message);
    fds_lost = (flags & MSG_CTRUNC) != 0 && fd_count < expected; // our own limit
    return fds_lost || fd_count == expected;
}

Link::Received Link::receive_of_guest(LinkMessage &message, LinkFds &fds) noexcept
{
    if (manager_.was_banned(peer_user())) // by another link of his
        return Received::end;
    StrangersMessage got;
    switch (take_from_stranger(socket_.get(), std::as_writable_bytes(std::span(&message, 1)), fds, got)) {
    case Taken::nothing:
        return Received::nothing;
    case Taken::refused: // which happens once for a user
        was_refused_ = true;
        manager_.ban(peer_user());
        return Received::violation;
    case Taken::message: {
        bool none_is_lost = false;
        return is_well_formed(message, got.length, got.flags, got.fd_count, none_is_lost) ? Received::message
                                                                                          : Received::violation;
    }
    case Taken::lost:
        VMA_WARN(ep_ctrl, "no descriptors left for what process %d of user %u sends: its link is closed",
                 static_cast<int>(peer_pid_), peer_uid_);
        [[fallthrough]];
    default:
        return Received::end;
    }
}

Link::Received Link::receive(LinkMessage &message, LinkFds &fds, bool &fds_lost) noexcept
{
    if (guest() != 0)
        return receive_of_guest(message, fds);
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
    if (guest() != 0)
        return true;
    mark_ = {message.probe_address, message.probe_nonce};
    cma_ok_ = cma_finds({peer_pid_, mark_});
    gives_words_ = cma_ok_ && own_end_ != 0;
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
        if (received == Received::violation && guest() != 0)
            VMA_WARN(ep_ctrl, "a guest, process %d of user %u, sent a malformed message: its link is closed",
                     static_cast<int>(peer_pid_), peer_uid_);
        else if (received == Received::violation)
            VMA_WARN(ep_ctrl, "process %d sent a malformed message: its link is closed", static_cast<int>(peer_pid_));
        PeerParts parts;
        if (received == Received::message && carries_offer(message.type))
            take_offer(message, fds, parts, fds_lost);
        if (received != Received::message || !manager_.on_message(*this, message, parts, fds_lost)) {
            manager_.on_link_end(*this); // destroys this
            return;
        }
    }
}

} // namespace vma::local
