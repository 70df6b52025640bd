// SPDX-License-Identifier: BSD-2-Clause
// A SOCK_SEQPACKET connection between the fabrics of two processes. It carries messages and descriptors,
// knows who the peer is, and tells by its end that the peer is gone. What messages mean is the manager's business.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>

#include <sys/types.h>

#include "core/fd.hpp"
#include "local/cm/event_source.hpp"
#include "local/cm/link_bells.hpp"
#include "local/cm/link_peer.hpp"
#include "local/cm/link_segments.hpp"
#include "local/cm/message.hpp"
#include "local/cm/secret.hpp"
#include "local/cm/sock_diag.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::local {

class ConnectionManager;
class PassiveEndpoint;
struct Connection;

using LinkFds = std::array<core::UniqueFd, kLinkFdCount>;

// What FI_OPT_VMA_LINK is given: a SOCK_SEQPACKET socket of the UNIX domain, or `none`, also where its flags or its id
// are wrong.
enum class LinkSocket { none, connected, listening };
LinkSocket kind_of_link(const fi_vma_link &link) noexcept;
core::UniqueFd take_link_socket(int fd) noexcept; // it is ours from here on

class Link final : public EventSource
{
public:
    // Who made it, and for what.
    struct Origin {
        bool initiator;                 // this process has connected
        std::uint16_t port = 0;         // of an initiator: the listener's
        std::uint64_t guest = 0;        // not by the directory: a number, as the peer may be another user's
        std::uint64_t order = 0;        // of guests' links: who came first
        bool introduced = false;        // somebody knows that the guest holds the other end of the TCP connection
        uid_t user = 0;                 // of one that was introduced: as who has introduced it counts users
        PassiveEndpoint *pep = nullptr; // of a guest's, which may ask for this one and for no other
    };
    // Takes a connected socket. False of start(): the peer is another user's and no guest, or the set is full; a line
    // was logged.
    Link(ConnectionManager &manager, core::UniqueFd socket, const Origin &origin) noexcept;
    ~Link();
    [[nodiscard]] bool start() noexcept;

    // Queued where the socket is full. `fds`: an offer's, borrowed, of which go those that the peer doesn't have yet;
    // nullptr where there is none.
    // False: the link is going to end.
    bool send(const LinkMessage &message, const int *fds) noexcept;
    // What is no more than a word about a connection, which the link may have forgotten.
    void tell(MessageType type, std::uint32_t connection, RejectReason reason = RejectReason::none) noexcept;
    // What waits, now that the socket or the limits have room.
    void flush() noexcept;
    void peer_has_lost_parts() noexcept; // all are sent again

    void on_ready(std::uint32_t events) noexcept override;

    bool is_idle() const noexcept { return connections.empty() && waiting_.empty(); }
    bool is_initiator() const noexcept { return origin_.initiator; }
    bool is_broken() const noexcept { return broken_; }            // its end is still to be read
    std::uint64_t guest() const noexcept { return origin_.guest; } // of its process; 0: the peer is this user's
    bool was_introduced() const noexcept { return origin_.introduced; }
    std::uint64_t order() const noexcept { return origin_.order; }
    PassiveEndpoint *asked_for() const noexcept { return origin_.pep; }
    void ask_for_nobody() noexcept { origin_.pep = nullptr; } // it is closed
    LinkPeer peer() const noexcept { return {peer_pid_, cma_ok_, origin_.guest, mark_}; }
    bool is_up() const noexcept { return hello_received_; }      // the peer has looked at it
    std::uint16_t port() const noexcept { return origin_.port; } // initiator: the listener's
    uid_t peer_uid() const noexcept { return peer_uid_; }
    // To tell users apart: a number of who introduces is another's than the same number here, in a user namespace.
    std::uint64_t peer_user() const noexcept { return std::uint64_t{was_introduced()} << 32 | peer_uid_; }
    pid_t peer_pid() const noexcept { return peer_pid_; }
    SocketInode own_end() const noexcept { return own_end_; }
    SocketInode peers_end(SockDiag &kernel) noexcept; // 0: the kernel doesn't tell
    // Puts in a word on who has that TCP socket. False: a voucher is needed, as the peer's secret can't be read, or not
    // now, or the peer hasn't said where it is.
    bool give_word(LinkMessage &message, SocketInode tcp_socket) noexcept;
    // The TCP socket that the peer has shown to have by a word. 0: none.
    std::uint64_t hear_word(const LinkMessage &message, const Secret &secret, SockDiag &kernel) noexcept;

    // What it keeps for later connections; nullptr where the peer is a guest.
    const std::shared_ptr<LinkSegments> &segments() const noexcept { return segments_; }

    std::unordered_map<std::uint32_t, Connection *> connections;
    std::uint32_t next_connection = 1;

private:
    struct Waiting {
        LinkMessage message;
        LinkFds fds;
    };
    enum class Received { message, nothing, end, violation };
    enum class Sent { yes, later, never };

    void pack(LinkMessage &message, const int *fds, int *packed) noexcept;
    bool take_parts(const LinkMessage &message, LinkFds &fds, PeerParts &parts) noexcept;
    void lose_parts(const LinkMessage &message) noexcept;
    void take_offer(const LinkMessage &message, LinkFds &fds, PeerParts &parts, bool &lost) noexcept;
    bool take_segment(std::uint64_t number, core::UniqueFd *fd, SegmentUse &segment) noexcept;
    bool take_doorbell(std::uint64_t number, core::UniqueFd *fds, std::shared_ptr<PeerDoorbell> &bell) noexcept;
    Received receive_of_guest(LinkMessage &message, LinkFds &fds) noexcept;
    Received receive(LinkMessage &message, LinkFds &fds, bool &fds_lost) noexcept;
    bool is_well_formed(const LinkMessage &message, std::size_t length, int flags, unsigned fd_count,
                        bool &fds_lost) noexcept;
    bool take_hello(const LinkMessage &message) noexcept;
    Sent send_now(const LinkMessage &message, const int *fds) noexcept;
    bool is_nudged_already(const LinkMessage &message) const noexcept;
    bool enqueue(const LinkMessage &message, const int *fds) noexcept;
    void break_off() noexcept;
    bool check_peer() noexcept;
    void watch(std::uint32_t events) noexcept;

    ConnectionManager &manager_;
    core::UniqueFd socket_;
    std::deque<Waiting> waiting_;
    SentBells sent_bells_;
    KnownBells known_bells_;
    const std::shared_ptr<LinkSegments> segments_;
    pid_t peer_pid_ = 0;
    uid_t peer_uid_ = 0;
    SocketInode own_end_ = 0;
    SocketInode peers_end_ = 0; // once it was asked for
    std::uint32_t watched_ = 0;
    Origin origin_;
    bool is_this_users_ = false; // who made the other end, which no guest is to us
    bool was_refused_ = false;   // a message that stays in the socket
    bool hello_received_ = false;
    bool cma_ok_ = false;
    bool gives_words_ = false; // the peer's secret can be read, for all that is known
    CmaMark mark_{};
    bool broken_ = false; // nothing can be sent any more; what the peer sent before is still read
};

} // namespace vma::local
