// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo of the provider, in its three steps: which addresses are meant (getinfo.cpp), which devices reach them
// (each device's own), and do the hints fit what those offer (hints.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <rdma/fabric.h>

#include "core/config_file.hpp"
#include "core/filters.hpp"
#include "ofi/address.hpp"
#include "ofi/info/info.hpp"

namespace vma::ofi {

struct Offer;

struct AddressPair {
    Address source;
    Address destination; // empty without a peer
};

// What a call asks for.
struct Query {
    std::uint32_t version;
    const fi_info *hints;           // or nullptr
    const core::Filters &filters;   // of the user
    const core::ConfigFile *file;   // likewise; nullptr: there is none
    bool attributes_only;           // FI_PROV_ATTR_ONLY: addresses don't matter
    std::vector<AddressPair> pairs; // either may be empty; none at all: any address of the host will do

    bool takes(const Offer &offer) const noexcept;     // where the hints don't fit, a debug line names the one
    bool takes(const Address &address) const noexcept; // its family
    int family() const noexcept;                       // of the addresses that the hints take; AF_UNSPEC: any
    // What InfoList::add() is told of a device of this kind, over an interface and an address. Nothing: the user's file
    // has no section that admits it.
    std::optional<unsigned> priority_of(core::DeviceKind kind, std::string_view device, std::string_view interface = {},
                                        const in6_addr &address = {}) const noexcept;
};

// The answer: by the user's priorities, the highest first, and of one priority in the order of the devices.
class InfoList
{
public:
    void add(const Query &query, const Offer &offer, const AddressPair &pair,
             unsigned priority = core::kUsualPriority) noexcept;
    int take(fi_info **info) noexcept;
    // Of what was added last; nullptr before.
    fi_info *last() const noexcept { return entries_.empty() ? nullptr : entries_.back().info.get(); }

private:
    struct Entry {
        unsigned priority;
        InfoPtr info;
    };
    std::vector<Entry> entries_;
    bool out_of_memory_ = false;
};

int getinfo(std::uint32_t version, const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
            fi_info **info);

// Whether an endpoint type of a device can do what the hints ask. Where it can't, a debug line names the hint.
bool hints_fit(std::uint32_t version, const Offer &offer, const fi_info &hints) noexcept;

// Puts what the hints chose among the offered into an info that make_info() filled.
void apply_hints(std::uint32_t version, const Offer &offer, const fi_info &hints, fi_info &info) noexcept;

} // namespace vma::ofi
