// SPDX-License-Identifier: BSD-2-Clause
// The owner of a shared receive context that a reliable-datagram endpoint matches by (fi_peer(3)), whichever libfabric
// it comes from. It knows of no endpoint, message or lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ofi/peer/abi.hpp"

namespace vma::rdm {

// How an owner's calls and entries are laid out, by the first version that has it.
enum class SrxLayout : std::uint8_t { v1_17, v1_19, v2_0, v2_3 };

// `size` is that of the owner's table of calls: of the first two it decides alone.
SrxLayout srx_layout(std::size_t size, std::uint32_t version) noexcept;

constexpr std::size_t entry_head(SrxLayout layout) noexcept
{
    return layout == SrxLayout::v2_3 ? 0 : 2 * sizeof(void *);
}
constexpr std::size_t entry_tail(SrxLayout layout) noexcept
{
    const std::size_t data = layout == SrxLayout::v1_17 ? 0 : sizeof(std::uint64_t);
    return entry_head(layout) + sizeof(ofi::peer::EntryHead) + data;
}

class SrxOwner
{
public:
    using Entry = ofi::peer::RxEntry;

    // For a libfabric of this version. False: it is not complete.
    bool attach(ofi::peer::Srx &srx, std::uint32_t version) noexcept;
    SrxLayout layout() const noexcept { return layout_; }
    const ofi::peer::Srx *srx() const noexcept { return srx_; }

    // The owner's answer: 0, where `entry` has a receive's buffers; -FI_ENOENT, where it is to be queued; or why there
    // is none.
    int get(bool tagged, const ofi::peer::MatchAttr &attr, Entry *&entry) const noexcept;
    int queue(bool tagged, Entry *entry) const noexcept;
    void free(Entry *entry) const noexcept;
    // Asks for each entry without a source; not of an owner that has no call for it.
    void for_each_unknown(fi_addr_t (*source_of)(Entry *entry)) const noexcept;

    ofi::peer::EntryHead &head(Entry *entry) const noexcept
    {
        return *reinterpret_cast<ofi::peer::EntryHead *>(reinterpret_cast<std::byte *>(entry) + entry_head(layout_));
    }
    ofi::peer::EntryTail &tail(Entry *entry) const noexcept
    {
        return *reinterpret_cast<ofi::peer::EntryTail *>(reinterpret_cast<std::byte *>(entry) + entry_tail(layout_));
    }
    // Remote data of a message; an owner of 1.17 hears of it with the completion only.
    void give_data(Entry *entry, std::uint64_t data) const noexcept;

private:
    ofi::peer::Srx *srx_ = nullptr;
    union {
        const ofi::peer::SrxOwnerOps17 *ops17_ = nullptr;
        const ofi::peer::SrxOwnerOps19 *ops19_;
        const ofi::peer::SrxOwnerOps20 *ops20_;
    };
    SrxLayout layout_ = SrxLayout::v1_17;
};

} // namespace vma::rdm
