// SPDX-License-Identifier: BSD-2-Clause
// Connections as this side's program wants them: asked for, accepted, refused, closed.
#include <cerrno>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "local/cm/pep.hpp"
#include "local/cm/possession.hpp"
#include "local/msg/endpoint.hpp"

namespace vma::local {
namespace {

LinkMessage message_for(const Connection &connection, MessageType type) noexcept
{
    LinkMessage message{};
    message.type = type;
    message.connection = connection.id;
    return message;
}

void put_data(LinkMessage &message, const void *data, std::size_t length) noexcept
{
    message.data_length = static_cast<std::uint32_t>(length);
    if (length > 0)
        std::memcpy(message.data, data, length);
}

} // namespace

Connection *ConnectionManager::add_connection() noexcept
{
    std::unique_ptr<Connection> connection(new (std::nothrow) Connection);
    Connection *raw = connection.get();
    if (raw != nullptr)
        connections_.emplace(raw, std::move(connection));
    return raw;
}

void ConnectionManager::forget(Connection &connection) noexcept
{
    if (connection.link != nullptr)
        connection.link->connections.erase(connection.id);
    if (connection.endpoint != nullptr)
        connection.endpoint->cm.connection = nullptr;
    if (connection.pep != nullptr)
        --connection.pep->waiting;
    retries_.remove(connection);
    connections_.erase(&connection);
}

Connection *ConnectionManager::pending(fid_t handle) noexcept
{
    if (handle == nullptr)
        return nullptr;
    const auto found = connections_.find(reinterpret_cast<Connection *>(handle));
    if (found == connections_.end() || found->first->state != Connection::State::pending)
        return nullptr;
    return found->first;
}

void ConnectionManager::leave_requests(PassiveEndpoint &pep) noexcept
{
    for (auto &[connection, owner] : connections_) {
        if (connection->pep == &pep)
            connection->pep = nullptr;
    }
}

int ConnectionManager::request(Endpoint &endpoint, std::unique_ptr<LinkMessage> message) noexcept
{
    Connection *connection = add_connection();
    if (connection == nullptr)
        return -FI_ENOMEM;
    connection->endpoint = &endpoint;
    connection->local = endpoint.cm.local;
    connection->peer = endpoint.cm.peer;
    connection->request = std::move(message);
    endpoint.cm.connection = connection;
    endpoint.cm.phase = CmState::Phase::connecting;
    const int error = send_request(*connection);
    if (error == -FI_ECONNREFUSED) {
        fail_request(*connection, FI_ECONNREFUSED, nullptr, 0);
        return 0;
    }
    if (error != 0) {
        if (endpoint.cm.by_guest_link) // whoever has brought the link tries again, or does without
            VMA_DEBUG(ep_ctrl, "cannot ask a guest for a connection: %s", std::strerror(-error));
        else
            VMA_WARN(ep_ctrl, "cannot ask for a connection to %s: %s", ofi::AddressText(connection->peer).c_str(),
                     std::strerror(-error));
        endpoint.cm.phase = CmState::Phase::idle;
        forget(*connection);
    }
    return error;
}

// What tells the peer that the TCP socket which this endpoint stands beside is ours: a word where that is enough. Not
// where the peer has refused what came with the request, which may be that word.
int ConnectionManager::vouch(const Connection &connection, Link &link, LinkMessage &message,
                             core::UniqueFd &voucher) noexcept
{
    const TcpEnd *const tcp = connection.endpoint->cm.tcp.get();
    message.brings = 0;
    message.word = message.tcp_socket = 0;
    if (tcp == nullptr || link.was_introduced())
        return 0;
    if (!connection.asked_again && link.give_word(message, tcp->own_end))
        return 0;
    const int socket = tcp->socket;
    voucher = link.guest() != 0 ? make_token(socket) : make_voucher(socket, link.own_end());
    if (!voucher)
        return -errno;
    message.brings = kBringsVoucher;
    return 0;
}

// 0, or why what has come doesn't show it.
int ConnectionManager::check_proof(const TcpEnd &tcp, Link &link, PeerParts &parts) noexcept
{
    const core::UniqueFd voucher = std::move(parts.voucher);
    if (link.guest() != 0)
        return check_token(voucher.get(), tcp, link.peer_uid());
    if (parts.tcp_socket != 0)
        return parts.tcp_socket == tcp.other_end ? 0 : -FI_EACCES;
    return check_voucher(voucher.get(), tcp, link.peers_end(sock_diag));
}

int ConnectionManager::check_holder(Endpoint &endpoint, Link &link, PeerParts &parts) noexcept
{
    if (link.was_introduced())
        return 0;
    if (!endpoint.cm.tcp)
        return link.guest() != 0 ? -FI_EACCES : 0; // a guest comes beside a connection, or not at all
    const int error = check_proof(*endpoint.cm.tcp, link, parts);
    if (error == -FI_ENOTCONN) // it may be over already: many are short
        VMA_DEBUG(ep_ctrl, "process %d does not hold the other end of the TCP connection any more",
                  static_cast<int>(link.peer_pid()));
    else if (error != 0)
        VMA_WARN(ep_ctrl, "process %d does not show that it holds the other end of the TCP connection: refused",
                 static_cast<int>(link.peer_pid()));
    return error;
}

// 0 also when the listener has no room now: it is tried again.
int ConnectionManager::send_request(Connection &connection) noexcept
{
    int error = 0;
    CmState &cm = connection.endpoint->cm;
    Link *link = cm.by_guest_link ? guest_link(std::move(cm.link), true, nullptr, cm.link_number)
                                  : link_to(connection.peer.port(), &connection.cached_link, &error);
    if (link == nullptr && cm.by_guest_link)
        return -FI_ECONNREFUSED;
    if (link == nullptr) {
        if (error != -FI_EAGAIN)
            return error;
        retries_.add(connection);
        return 0;
    }
    LinkMessage &message = *connection.request;
    int fds[kLinkFdCount];
    core::UniqueFd voucher;
    message.connection = link->next_connection;
    if (cm.tcp)
        secret.renew_if_old(); // so the answer can have a word
    error = connection.endpoint->make_offer(message.offer, fds, link->guest(), link->peer_uid(), link->segments());
    if (error == 0)
        error = vouch(connection, *link, message, voucher);
    fds[kFdVoucher] = voucher.get();
    if (error != 0)
        return error;
    connection.id = link->next_connection++;
    connection.link = link;
    link->connections[connection.id] = &connection;
    connection.endpoint->receiver.segment.offered();
    link->send(message, fds); // where it fails, the link's end answers
    return 0;
}

int ConnectionManager::retry_now(Connection &connection) noexcept
{
    const int error = send_request(connection);
    if (error != 0)
        fail_request(connection, -error, nullptr, 0);
    return error;
}

void ConnectionManager::fail_request(Connection &connection, int error, const void *data, std::size_t length) noexcept
{
    Endpoint &endpoint = *connection.endpoint;
    VMA_DEBUG(ep_ctrl, "no connection to %s: %s", ofi::AddressText(connection.peer).c_str(), std::strerror(error));
    endpoint.cm.phase = CmState::Phase::idle;
    forget(connection);
    endpoint.cm.eq->post_error(&endpoint.fid.fid, error, error, data, length);
}

int ConnectionManager::accept(Connection &connection, const void *data, std::size_t length) noexcept
{
    Endpoint &endpoint = *connection.endpoint;
    if (connection.link == nullptr)
        return -FI_ECONNABORTED; // the peer is gone or has withdrawn
    LinkMessage message = message_for(connection, MessageType::accept);
    put_data(message, data, length);
    int fds[kLinkFdCount];
    core::UniqueFd voucher;
    Link &link = *connection.link;
    int error = endpoint.make_offer(message.offer, fds, link.guest(), link.peer_uid(), link.segments());
    if (error == 0)
        error = vouch(connection, link, message, voucher);
    if (error != 0)
        return error;
    fds[kFdVoucher] = voucher.get();
    error = check_holder(endpoint, link, connection.parts);
    if (error != 0) {
        endpoint.cm.phase = CmState::Phase::closed;
        reject(connection, RejectReason::protocol, nullptr, 0);
        return error;
    }
    error = endpoint.attach(connection.offer, std::move(connection.parts), link.peer());
    if (error != 0) {
        VMA_WARN(ep_ctrl, "process %d offers an endpoint that cannot be used: %s", static_cast<int>(link.peer_pid()),
                 std::strerror(-error));
        endpoint.cm.phase = CmState::Phase::closed;
        reject(connection, RejectReason::protocol, nullptr, 0);
        return error;
    }
    if (connection.pep != nullptr)
        --std::exchange(connection.pep, nullptr)->waiting;
    connection.state = Connection::State::connected;
    endpoint.cm.phase = CmState::Phase::connected;
    endpoint.receiver.segment.offered();
    if (!connection.link->send(message, fds))
        VMA_DEBUG(ep_ctrl, "the peer is gone while its connection is accepted"); // FI_SHUTDOWN follows
    endpoint.release_offer();
    return endpoint.cm.eq->post_cm(FI_CONNECTED, &endpoint.fid.fid, nullptr, nullptr, 0);
}

void ConnectionManager::reject(Connection &connection, RejectReason reason, const void *data,
                               std::size_t length) noexcept
{
    if (connection.link != nullptr) {
        LinkMessage message = message_for(connection, MessageType::reject);
        message.reason = reason;
        put_data(message, data, length);
        connection.link->send(message, nullptr);
    }
    forget(connection);
}

void ConnectionManager::nudge(Connection &connection) noexcept
{
    if (connection.link != nullptr)
        connection.link->tell(MessageType::nudge, connection.id);
}

void ConnectionManager::drop(Connection &connection) noexcept
{
    if (connection.state == Connection::State::pending) {
        reject(connection, RejectReason::program, nullptr, 0);
        return;
    }
    if (connection.link != nullptr)
        connection.link->tell(MessageType::shutdown, connection.id);
    forget(connection);
}

} // namespace vma::local
