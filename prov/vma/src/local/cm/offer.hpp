// SPDX-License-Identifier: BSD-2-Clause
// What one side of a local connection tells the other about its endpoint, over the link. Connection management carries
// it; the endpoint fills it (make_offer) and checks the peer's (attach). Everything in it is a peer's word until
// checked.
#pragma once

#include <cstdint>
#include <memory>

#include "core/fd.hpp"
#include "local/cm/link_segments.hpp"

namespace vma::local {

class PeerDoorbell;

inline constexpr std::uint32_t kOfferVersion = 4;

struct EndpointOffer {
    std::uint32_t version = kOfferVersion;
    std::uint32_t endpoint_id = 0;   // the sender's own number for the endpoint, names it in later link messages
    std::uint64_t segment_size = 0;  // bytes, all of the segment memfd
    std::uint64_t bounce_offset = 0; // bytes from the segment's start
    std::uint64_t bounce_len = 0;    // bytes
    std::uint64_t region_offset = 0; // bytes from the segment's start
    std::uint64_t region_len = 0;    // bytes, 0 without FI_OPT_VMA_REGION
    std::uint32_t slot_count = 0;
    std::uint32_t doorbell_bit = 0; // which bit of the doorbell bitmap rings for this endpoint
    // Numbers of doorbells, by which a link knows those that came over it before; never used twice by a process. The
    // doorbell is that of the queue that receives; the tx doorbell that of the queue which waits for the peer to
    // consume what was sent. It is the same one where the endpoint has one queue for both.
    std::uint64_t doorbell = 0;
    std::uint64_t tx_doorbell = 0;
    std::uint64_t segment = 0; // its number among those that the link keeps (link_segments.hpp); 0: it is not kept
};

// Descriptors of an offer. A link sends those of a doorbell once, and of a segment that it keeps.
enum OfferFd : unsigned {
    kFdSegment = 0,
    kFdDoorbell = 1,
    kFdWake = 2,
    kFdTxDoorbell = 3,
    kFdTxWake = 4,
    kOfferFdCount = 5,
};

// What a peer's offer has brought, or what was known before by its numbers. Empty: the peer sent what is no doorbell.
struct PeerParts {
    SegmentUse segment;
    std::shared_ptr<PeerDoorbell> doorbell;
    std::shared_ptr<PeerDoorbell> tx_doorbell;
    core::UniqueFd voucher;
    std::uint64_t tcp_socket = 0; // whose holder the peer has shown to be by a word: then it needs no voucher
};

} // namespace vma::local
