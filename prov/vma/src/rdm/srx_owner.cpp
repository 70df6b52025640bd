// SPDX-License-Identifier: BSD-2-Clause
#include "rdm/srx_owner.hpp"

#include <cstring>

namespace vma::rdm {

namespace peer = ofi::peer;

namespace {

template <typename Ops> bool is_complete(const Ops &ops) noexcept
{
    return ops.get_msg != nullptr && ops.get_tag != nullptr && ops.queue_msg != nullptr && ops.queue_tag != nullptr &&
           ops.free_entry != nullptr;
}

} // namespace

SrxLayout srx_layout(std::size_t size, std::uint32_t version) noexcept
{
    if (size < sizeof(peer::SrxOwnerOps19))
        return SrxLayout::v1_17;
    if (FI_VERSION_LT(version, FI_VERSION(2, 0)))
        return SrxLayout::v1_19;
    return FI_VERSION_LT(version, FI_VERSION(2, 3)) ? SrxLayout::v2_0 : SrxLayout::v2_3;
}

bool SrxOwner::attach(peer::Srx &srx, std::uint32_t version) noexcept
{
    if (srx.owner_ops == nullptr)
        return false;
    std::size_t size;
    std::memcpy(&size, srx.owner_ops, sizeof size);
    if (size < sizeof(peer::SrxOwnerOps17))
        return false;
    layout_ = srx_layout(size, version);
    srx_ = &srx;
    switch (layout_) {
    case SrxLayout::v1_17:
        ops17_ = static_cast<const peer::SrxOwnerOps17 *>(srx.owner_ops);
        return is_complete(*ops17_);
    case SrxLayout::v1_19:
        ops19_ = static_cast<const peer::SrxOwnerOps19 *>(srx.owner_ops);
        return is_complete(*ops19_);
    default:
        ops20_ = static_cast<const peer::SrxOwnerOps20 *>(srx.owner_ops);
        return is_complete(*ops20_);
    }
}

int SrxOwner::get(bool tagged, const peer::MatchAttr &attr, Entry *&entry) const noexcept
{
    peer::MatchAttr given = attr;
    switch (layout_) {
    case SrxLayout::v1_17:
        return tagged ? ops17_->get_tag(srx_, attr.addr, attr.tag, &entry)
                      : ops17_->get_msg(srx_, attr.addr, attr.msg_size, &entry);
    case SrxLayout::v1_19:
        return tagged ? ops19_->get_tag(srx_, attr.addr, attr.tag, &entry)
                      : ops19_->get_msg(srx_, attr.addr, attr.msg_size, &entry);
    default:
        return tagged ? ops20_->get_tag(srx_, &given, &entry) : ops20_->get_msg(srx_, &given, &entry);
    }
}

int SrxOwner::queue(bool tagged, Entry *entry) const noexcept
{
    switch (layout_) {
    case SrxLayout::v1_17:
        return tagged ? ops17_->queue_tag(entry) : ops17_->queue_msg(entry);
    case SrxLayout::v1_19:
        return tagged ? ops19_->queue_tag(entry) : ops19_->queue_msg(entry);
    default:
        return tagged ? ops20_->queue_tag(entry) : ops20_->queue_msg(entry);
    }
}

void SrxOwner::free(Entry *entry) const noexcept
{
    switch (layout_) {
    case SrxLayout::v1_17:
        return ops17_->free_entry(entry);
    case SrxLayout::v1_19:
        return ops19_->free_entry(entry);
    default:
        return ops20_->free_entry(entry);
    }
}

void SrxOwner::for_each_unknown(fi_addr_t (*source_of)(Entry *entry)) const noexcept
{
    if (layout_ == SrxLayout::v1_17)
        return;
    const auto each = layout_ == SrxLayout::v1_19 ? ops19_->foreach_unspec_addr : ops20_->foreach_unspec_addr;
    if (each != nullptr)
        each(srx_, source_of);
}

void SrxOwner::give_data(Entry *entry, std::uint64_t data) const noexcept
{
    if (layout_ == SrxLayout::v1_17)
        return;
    std::memcpy(reinterpret_cast<std::byte *>(&head(entry)) + sizeof(peer::EntryHead), &data, sizeof data);
    tail(entry).flags |= FI_REMOTE_CQ_DATA;
}

} // namespace vma::rdm
