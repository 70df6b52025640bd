// SPDX-License-Identifier: BSD-2-Clause
// The local device's part of a fabric: links to other processes, passive endpoints, connections on their way up and
// down. It has no thread. Whoever reads an event queue (or, rarely, a completion queue) makes it progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "core/fd.hpp"
#include "core/mutex.hpp"
#include "local/cm/connection.hpp"
#include "local/cm/directory.hpp"
#include "local/cm/event_source.hpp"
#include "local/cm/link.hpp"
#include "local/cm/retry.hpp"
#include "local/cm/secret.hpp"
#include "local/cm/sock_diag.hpp"
#include "ofi/fabric.hpp"

namespace vma::local {

class Listener;
struct TcpEnd;

class ConnectionManager final : public ofi::DeviceFabric
{
public:
    explicit ConnectionManager(ofi::Fabric &fabric) noexcept;
    ~ConnectionManager() override;
    static std::unique_ptr<ofi::DeviceFabric> open(ofi::Fabric &fabric, int *error) noexcept;

    void progress(bool wait) noexcept override;
    int wait_fd() const noexcept override { return epoll_.get(); }
    int domain(ofi::Domain &domain, const fi_info &info) noexcept override;
    int passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept override;
    int endpoint(ofi::Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept override;
    int shared_receive(ofi::Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept override;
    int completion_queue(ofi::Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept override;

    ofi::Fabric &fabric() const noexcept { return fabric_; }
    core::Mutex &mutex() noexcept { return mutex_; }

    // All that follows is called with the mutex held.

    // What an endpoint asks for (connect.cpp). Answered by an event, or now by a negative fi_errno.
    int request(Endpoint &endpoint, std::unique_ptr<LinkMessage> message) noexcept;
    int accept(Connection &connection, const void *data, std::size_t length) noexcept;
    void reject(Connection &connection, RejectReason reason, const void *data, std::size_t length) noexcept;
    // The peer looks at its queues, whatever it is doing.
    void nudge(Connection &connection) noexcept;
    // The connection is over and forgotten; the peer is told.
    void drop(Connection &connection) noexcept;
    // nullptr unless it is the handle of a request that still waits for its answer.
    Connection *pending(fid_t handle) noexcept;
    // A closing passive endpoint: its requests live on without it.
    void leave_requests(PassiveEndpoint &pep) noexcept;

    // What a link has read (messages.cpp). False: the peer broke the rules, a line was logged, the link must end.
    [[nodiscard]] bool on_message(Link &link, const LinkMessage &message, PeerParts &parts, bool fds_lost) noexcept;
    void on_link_end(Link &link) noexcept; // destroys the link

    // For links and listeners.
    bool watch(EventSource &source, int fd, std::uint32_t events, bool first) noexcept;
    void unwatch(int fd) noexcept;
    void adopt_socket(core::UniqueFd socket) noexcept; // a listener accepted it
    // A link that was not made by the directory: the peer may be another user's. `pep`: whom it may ask for, unless
    // this process is who asks. nullptr: there is no memory, or no room in the set, and a line was logged, or nobody is
    // a guest any more (vma/strangers.hpp). The socket is used up.
    // `number`: of an introduced one's process, whose upper half is its user; else 0.
    Link *guest_link(core::UniqueFd socket, bool initiator, PassiveEndpoint *pep, std::uint64_t number = 0) noexcept;
    // Links of one process share a doorbell, so they have one number; a process that can't be told from others (of
    // another pid namespace: 0) has one for each link.
    std::uint64_t number_of_guest(uid_t user, pid_t process, std::uint64_t fresh) noexcept;
    void forget_guest(uid_t user, pid_t process) noexcept;
    // A user who has sent what can't be closed without waiting: his processes are guests no more.
    void ban(std::uint64_t user) noexcept { banned_.insert(user); } // Link::peer_user()
    bool is_banned(std::uint64_t user) const noexcept { return banned_.size() >= kMostBanned || was_banned(user); }
    bool was_banned(std::uint64_t user) const noexcept { return banned_.contains(user); } // for what he did himself
    void leave_guests(PassiveEndpoint &pep) noexcept; // a closing one: links that may ask for it end
    void retry_later(Link &link) noexcept { retries_.add(link); }
    void retry_later(Listener &listener) noexcept { retries_.add(listener); }
    void cancel_retry(Link &link) noexcept { retries_.remove(link); }
    void cancel_retry(Listener &listener) noexcept { retries_.remove(listener); }
    int retry_now(Connection &connection) noexcept; // from the retries: as request()

    std::shared_ptr<Directory> directory(int *error) noexcept;
    std::uint16_t ephemeral_port() noexcept;

    // What links keep; nullptr: the port leads to nobody yet, or the peer may be another user's.
    std::shared_ptr<LinkSegments> segments_of(std::uint16_t port) const noexcept;

    const std::shared_ptr<IdleSegments> idle_segments = std::make_shared<IdleSegments>();
    Secret secret;
    SockDiag sock_diag;
    std::unordered_map<std::uint16_t, PassiveEndpoint *> listening; // passive endpoints that listen, by port

private:
    int open_sets() noexcept;
    Link *add_link(core::UniqueFd socket, const Link::Origin &origin) noexcept;
    PassiveEndpoint *asked_for(const Link &link, const ofi::Address &own) noexcept;
    void drop_idle_guests(bool introduced) noexcept;
    Link *link_to(std::uint16_t port, bool *cached, int *error) noexcept;
    void drop_idle_link() noexcept;
    int vouch(const Connection &connection, Link &link, LinkMessage &message, core::UniqueFd &voucher) noexcept;
    int check_proof(const TcpEnd &tcp, Link &link, PeerParts &parts) noexcept;
    int check_holder(Endpoint &endpoint, Link &link, PeerParts &parts) noexcept;
    int send_request(Connection &connection) noexcept;
    Connection *add_connection() noexcept;
    void forget(Connection &connection) noexcept;
    void fail_request(Connection &connection, int error, const void *data, std::size_t length) noexcept;

    bool on_request(Link &link, const LinkMessage &message, PeerParts &parts, bool fds_lost) noexcept;
    bool takes_word(Link &link, const LinkMessage &message, PeerParts &parts) noexcept;
    bool on_accept(Connection &connection, const LinkMessage &message, PeerParts &parts, bool fds_lost) noexcept;
    bool on_reject(Connection &connection, const LinkMessage &message) noexcept;
    void on_over(Connection &connection, int request_error) noexcept;

    ofi::Fabric &fabric_;
    core::Mutex mutex_;
    core::UniqueFd epoll_;
    std::atomic<unsigned> watches_{0}; // orders watch() before on_ready(), as the kernel does unseen by the language
    Retries retries_{*this};
    std::shared_ptr<Directory> directory_;
    std::unordered_map<std::uint16_t, Link *> link_by_port_; // links that we made, by the port they were made for
    Link *reading_ = nullptr;                                // whose messages are being read
    std::unordered_map<Link *, std::unique_ptr<Link>> links_;
    std::unordered_map<Connection *, std::unique_ptr<Connection>> connections_;
    std::uint64_t guests_ = 0;                    // links to them, ever
    static constexpr std::size_t kMostBanned = 8; // so many, and no guest comes any more
    std::unordered_set<std::uint64_t> banned_;
    struct GuestProcess {
        std::uint64_t number = 0;
        unsigned links = 0;
    };
    std::unordered_map<std::uint64_t, GuestProcess> guest_processes_; // by user and process
    std::uint16_t next_ephemeral_ = 0;
};

inline ConnectionManager &manager_of(ofi::Fabric &fabric) noexcept
{
    return static_cast<ConnectionManager &>(*fabric.device);
}

} // namespace vma::local
