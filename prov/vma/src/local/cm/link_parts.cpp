// SPDX-License-Identifier: BSD-2-Clause
// What goes over a link with an offer: descriptors, or the numbers of what went before.
#include "local/cm/link.hpp"

#include <algorithm>
#include <utility>

#include <rdma/fi_errno.h>

namespace vma::local {

// An offer's descriptors but for what the peer has.
void Link::pack(LinkMessage &message, const int *fds, int *packed) noexcept
{
    if (segments_)
        segments_->tell(message.segments);
    if (fds[kFdSegment] >= 0) {
        message.brings |= kBringsSegment;
        *packed++ = fds[kFdSegment];
    }
    if (!sent_bells_.has(message.offer.doorbell)) {
        message.brings |= kBringsDoorbell;
        packed = std::copy_n(fds + kFdDoorbell, 2, packed);
    }
    if (!sent_bells_.has(message.offer.tx_doorbell)) {
        message.brings |= kBringsTxDoorbell;
        packed = std::copy_n(fds + kFdTxDoorbell, 2, packed);
    }
    if ((message.brings & kBringsVoucher) != 0)
        *packed = fds[kFdVoucher];
}

void Link::peer_has_lost_parts() noexcept
{
    sent_bells_.forget();
    if (segments_)
        segments_->forget();
}

// One whose descriptor came, if `fd` isn't nullptr, or that is kept. False: we have not kept it.
bool Link::take_segment(std::uint64_t number, core::UniqueFd *fd, SegmentUse &segment) noexcept
{
    if (fd == nullptr)
        segment = segments_ ? segments_->find(number) : SegmentUse();
    else if (segments_ && number != 0)
        segment = segments_->keep(number, std::move(*fd));
    else
        segment = SegmentUse(std::move(*fd));
    return static_cast<bool>(segment);
}

// One whose two descriptors came, if `fds` isn't nullptr, or that is known. False: we had no room for it, then or now.
bool Link::take_doorbell(std::uint64_t number, core::UniqueFd *fds, std::shared_ptr<PeerDoorbell> &bell) noexcept
{
    if (fds == nullptr)
        return known_bells_.find(number, bell);
    const int error = open_peer_doorbell({peer_pid_, guest()}, std::move(fds[0]), std::move(fds[1]), bell);
    if (error != 0 && error != -FI_EINVAL) {
        known_bells_.lose(number);
        return false;
    }
    known_bells_.keep(number, bell);
    return true;
}

// In the order in which they were packed, as one may take the other's place.
bool Link::take_parts(const LinkMessage &message, LinkFds &fds, PeerParts &parts) noexcept
{
    core::UniqueFd *next = fds.data();
    const auto brought = [&](std::uint32_t what, std::ptrdiff_t count) {
        core::UniqueFd *const first = (message.brings & what) != 0 ? next : nullptr;
        next += first != nullptr ? count : 0;
        return first;
    };
    const bool has_segment = take_segment(message.offer.segment, brought(kBringsSegment, 1), parts.segment);
    const bool has_doorbell = take_doorbell(message.offer.doorbell, brought(kBringsDoorbell, 2), parts.doorbell);
    const bool has_tx_doorbell =
        take_doorbell(message.offer.tx_doorbell, brought(kBringsTxDoorbell, 2), parts.tx_doorbell);
    if (core::UniqueFd *const voucher = brought(kBringsVoucher, 1))
        parts.voucher = std::move(*voucher);
    return has_segment && has_doorbell && has_tx_doorbell;
}

void Link::lose_parts(const LinkMessage &message) noexcept
{
    if (segments_ && (message.brings & kBringsSegment) != 0)
        segments_->lose(message.offer.segment);
    if ((message.brings & kBringsDoorbell) != 0)
        known_bells_.lose(message.offer.doorbell);
    if ((message.brings & kBringsTxDoorbell) != 0)
        known_bells_.lose(message.offer.tx_doorbell);
}

void Link::take_offer(const LinkMessage &message, LinkFds &fds, PeerParts &parts, bool &lost) noexcept
{
    if (segments_)
        segments_->hear(message.segments);
    if (lost)
        lose_parts(message);
    else
        lost = !take_parts(message, fds, parts);
}

} // namespace vma::local
