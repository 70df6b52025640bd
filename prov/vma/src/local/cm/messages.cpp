// SPDX-License-Identifier: BSD-2-Clause
// Connections as the other side's messages change them. A message for a connection that is not known any more is no
// fault: it crossed ours on the way. One that its sender can't have meant ends the link.
#include <cerrno>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "local/cm/manager.hpp"
#include "local/cm/pep.hpp"
#include "local/msg/endpoint.hpp"

namespace vma::local {
namespace {

bool violation(const Link &link, const char *what) noexcept
{
    VMA_WARN(ep_ctrl, "process %d %s: its link is closed", static_cast<int>(link.peer_pid()), what);
    return false;
}

} // namespace

bool ConnectionManager::on_message(Link &link, const LinkMessage &message, PeerParts &parts, bool fds_lost) noexcept
{
    const bool from_responder = message.type == MessageType::accept || message.type == MessageType::reject;
    if (message.type == MessageType::hello)
        return violation(link, "sent a second greeting");
    const bool from_either = message.type == MessageType::shutdown || message.type == MessageType::nudge;
    if (!from_either && from_responder != link.is_initiator())
        return violation(link, "answers what nobody asked, or asks on the wrong link");
    if (message.type == MessageType::request)
        return on_request(link, message, parts, fds_lost);
    if (message.reason == RejectReason::resources)
        link.peer_has_lost_parts();
    const auto found = link.connections.find(message.connection);
    if (found == link.connections.end()) {
        if (fds_lost)
            link.tell(MessageType::shutdown, message.connection, RejectReason::resources);
        return true;
    }
    Connection &connection = *found->second;
    reading_ = &link;
    bool valid = true;
    switch (message.type) {
    case MessageType::accept:
        valid = on_accept(connection, message, parts, fds_lost);
        break;
    case MessageType::reject:
        valid = on_reject(connection, message);
        break;
    case MessageType::nudge:
        if (connection.state == Connection::State::connected)
            connection.endpoint->cm.eq->nudge();
        break;
    default:
        on_over(connection, FI_ECONNRESET);
        break;
    }
    reading_ = nullptr;
    return valid;
}

// A guest has no say in whom it asks.
PassiveEndpoint *ConnectionManager::asked_for(const Link &link, const ofi::Address &own) noexcept
{
    if (link.guest() != 0)
        return link.is_initiator() ? nullptr : link.asked_for();
    const auto found = listening.find(own.port());
    return found != listening.end() && found->second->accepts(own) ? found->second : nullptr;
}

// A word is heard when it comes, as it counts for a short time; which socket it has to speak of the program says later.
// False: it is not believed, and there is nothing else.
bool ConnectionManager::takes_word(Link &link, const LinkMessage &message, PeerParts &parts) noexcept
{
    parts.tcp_socket = link.hear_word(message, secret, sock_diag);
    return parts.tcp_socket != 0 || message.tcp_socket == 0 || parts.voucher;
}

bool ConnectionManager::on_request(Link &link, const LinkMessage &message, PeerParts &parts, bool fds_lost) noexcept
{
    ofi::Address peer;
    ofi::Address own;
    if (!peer.assign(&message.source, sizeof(message.source)) ||
        !own.assign(&message.destination, sizeof(message.destination)))
        return violation(link, "sent a request without addresses");
    if (link.connections.contains(message.connection))
        return violation(link, "used the number of a connection twice");
    if (fds_lost && link.guest() != 0) // he may have left one out, as often as he likes, and fill the log
        return violation(link, "named a doorbell that has not come, or for which there was no room");
    if (fds_lost) {
        VMA_WARN(ep_ctrl, "no descriptors left for a connection from process %d", static_cast<int>(link.peer_pid()));
        link.tell(MessageType::reject, message.connection, RejectReason::resources);
        return true;
    }
    const bool believed = takes_word(link, message, parts);
    if (message.tcp_socket != 0 || parts.voucher)
        secret.renew_if_old(); // so the next request can have one
    if (!believed) {
        VMA_DEBUG(ep_ctrl, "process %d has given a word that does not count (any more): it is asked for a voucher",
                  static_cast<int>(link.peer_pid()));
        link.tell(MessageType::reject, message.connection, RejectReason::resources);
        return true;
    }
    PassiveEndpoint *const asked = asked_for(link, own);
    if (asked == nullptr) {
        link.tell(MessageType::reject, message.connection, RejectReason::no_listener);
        return true;
    }
    PassiveEndpoint &pep = *asked;
    if (pep.waiting >= pep.backlog) {
        link.tell(MessageType::reject, message.connection, RejectReason::busy);
        return true;
    }
    Connection *connection = add_connection();
    ofi::InfoPtr info = connection != nullptr ? pep.request_info(own, peer, &connection->handle) : nullptr;
    if (!info) {
        link.tell(MessageType::reject, message.connection, RejectReason::resources);
        if (connection != nullptr)
            forget(*connection);
        return true;
    }
    connection->handle.fclass = FI_CLASS_CONNREQ;
    connection->state = Connection::State::pending;
    connection->id = message.connection;
    connection->link = &link;
    connection->local = own;
    connection->peer = peer;
    connection->offer = message.offer;
    connection->parts = std::move(parts);
    connection->pep = &pep;
    ++pep.waiting;
    link.connections[connection->id] = connection;
    pep.eq->post_cm(FI_CONNREQ, &pep.fid.fid, std::move(info), message.data, message.data_length);
    return true;
}

bool ConnectionManager::on_accept(Connection &connection, const LinkMessage &message, PeerParts &parts,
                                  bool fds_lost) noexcept
{
    Link &link = *connection.link;
    if (connection.state != Connection::State::requesting)
        return violation(link, "accepted a connection twice");
    Endpoint &endpoint = *connection.endpoint;
    if (!fds_lost && !takes_word(link, message, parts)) {
        VMA_DEBUG(ep_ctrl, "process %d has answered with a word that does not count (any more)",
                  static_cast<int>(link.peer_pid())); // this process was stopped, perhaps
        link.tell(MessageType::shutdown, connection.id, RejectReason::none);
        fail_request(connection, FI_ECONNREFUSED, nullptr, 0);
        return true;
    }
    const int unproved = fds_lost ? 0 : check_holder(endpoint, link, parts); // which says so
    int error = fds_lost ? -FI_EMFILE : unproved;
    if (error == 0)
        error = endpoint.attach(message.offer, std::move(parts), link.peer());
    if (error != 0 && unproved == 0)
        VMA_WARN(ep_ctrl, "cannot use the endpoint that process %d offers: %s", static_cast<int>(link.peer_pid()),
                 std::strerror(-error));
    if (error != 0) {
        link.tell(MessageType::shutdown, connection.id, fds_lost ? RejectReason::resources : RejectReason::none);
        fail_request(connection, -error, nullptr, 0);
        return true;
    }
    endpoint.release_offer();
    connection.state = Connection::State::connected;
    connection.request.reset();
    endpoint.cm.phase = CmState::Phase::connected;
    endpoint.cm.eq->post_cm(FI_CONNECTED, &endpoint.fid.fid, nullptr, message.data, message.data_length);
    return true;
}

bool ConnectionManager::on_reject(Connection &connection, const LinkMessage &message) noexcept
{
    Link &link = *connection.link;
    if (connection.state != Connection::State::requesting)
        return violation(link, "refused a connection that it had accepted");
    link.connections.erase(connection.id);
    connection.link = nullptr;
    switch (message.reason) {
    case RejectReason::busy:
        retries_.add(connection);
        break;
    case RejectReason::resources: // what it lacks comes with another request; once, as it may lack more
        if (link.guest() != 0 || std::exchange(connection.asked_again, true))
            fail_request(connection, FI_ECONNREFUSED, message.data, message.data_length);
        else
            retry_now(connection);
        break;
    case RejectReason::no_listener:
        // Over an older link the answer may be out of date: another process may listen there now.
        if (connection.cached_link) {
            link_by_port_.erase(connection.peer.port());
            retry_now(connection);
            break;
        }
        [[fallthrough]];
    default:
        fail_request(connection, FI_ECONNREFUSED, message.data, message.data_length);
        break;
    }
    return true;
}

// The peer is gone, or wants no more of this connection. `request_error` is what a request that waits is told.
void ConnectionManager::on_over(Connection &connection, int request_error) noexcept
{
    switch (connection.state) {
    case Connection::State::requesting:
        fail_request(connection, request_error, nullptr, 0);
        break;
    case Connection::State::pending:
        // The program holds the handle: fi_accept will tell it.
        connection.link->connections.erase(connection.id);
        connection.link = nullptr;
        connection.parts = {};
        break;
    case Connection::State::connected: {
        Endpoint &endpoint = *connection.endpoint;
        endpoint.cm.phase = CmState::Phase::closed;
        endpoint.on_peer_shutdown();
        forget(connection);
        endpoint.cm.eq->post_shutdown(&endpoint.fid.fid, endpoint.receiver.queue);
        break;
    }
    }
}

} // namespace vma::local
