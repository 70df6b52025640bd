// SPDX-License-Identifier: BSD-2-Clause
// What travels over a link: one packet a message, all of one size, so that a single comparison checks its length.
// Everything in it is the peer's word until link.cpp and manager.cpp have checked it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <netinet/in.h>

#include "local/cm/offer.hpp"
#include "ofi/info/attr.hpp"

namespace vma::local {

inline constexpr std::uint32_t kMessageMagic = 0x564d4132; // "VMA2"
inline constexpr std::uint16_t kMessageVersion = 6;

enum class MessageType : std::uint16_t {
    hello = 1, // first on a link, both ways
    request,   // initiator: fi_connect, with offer and descriptors
    accept,    // responder: fi_accept, with offer and descriptors
    reject,    // responder
    shutdown,  // either: the connection is over, or its request is withdrawn
    nudge,     // either: the queues are to be looked at now (FI_OPT_VMA_NUDGE)
};

enum class RejectReason : std::uint32_t {
    none = 0,
    program,     // fi_reject, with its data
    no_listener, // nobody listens at the port or the address (any more)
    busy,        // backlog full: try again
    resources,   // descriptors did not arrive, no memory. Of a shutdown too: what was sent once has to come again
    protocol,    // the offer is not one that we can use
};

struct LinkMessage {
    std::uint32_t magic;
    std::uint16_t version;
    MessageType type;
    std::uint32_t connection; // number of the connection, given by the link's initiator, never used twice on a link
    RejectReason reason;
    std::uint64_t probe_address; // hello: where in the sender the next field can be read too, and a secret behind it
    std::uint64_t probe_nonce;
    std::uint64_t word;       // request, accept: in place of a voucher (secret.hpp)
    std::uint64_t tcp_socket; // the inode number of the socket that the word speaks of; 0: there is none
    EndpointOffer offer;      // request, accept
    sockaddr_in6 source;      // request: the connecting endpoint's address (an IPv4 one leaves the rest zero)
    sockaddr_in6 destination;
    SegmentWords segments;     // request, accept
    std::uint32_t brings;      // request, accept: what descriptors come
    std::uint32_t data_length; // private data
    std::uint8_t data[ofi::kCmDataSize];
};
static_assert(std::is_trivially_copyable_v<LinkMessage> && std::has_unique_object_representations_v<LinkMessage>);

constexpr bool carries_offer(MessageType type)
{
    return type == MessageType::request || type == MessageType::accept;
}

// Of LinkMessage::brings, in the order in which the descriptors come.
inline constexpr std::uint32_t kBringsDoorbell = 1;   // two
inline constexpr std::uint32_t kBringsTxDoorbell = 2; // two
inline constexpr std::uint32_t kBringsVoucher = 4;    // one (possession.hpp)
inline constexpr std::uint32_t kBringsSegment = 8;    // one, before the others
inline constexpr std::uint32_t kBringsAll = kBringsSegment | kBringsDoorbell | kBringsTxDoorbell | kBringsVoucher;

// Descriptors that a message can have: an offer's, then its voucher.
inline constexpr unsigned kFdVoucher = kOfferFdCount;
inline constexpr unsigned kLinkFdCount = kOfferFdCount + 1;

constexpr unsigned descriptors_of(const LinkMessage &message)
{
    const auto has = [&message](std::uint32_t what) { return (message.brings & what) != 0; };
    return (has(kBringsSegment) ? 1U : 0U) + (has(kBringsDoorbell) ? 2U : 0U) + (has(kBringsTxDoorbell) ? 2U : 0U) +
           (has(kBringsVoucher) ? 1U : 0U);
}

} // namespace vma::local
