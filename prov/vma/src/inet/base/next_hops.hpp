// SPDX-License-Identifier: BSD-2-Clause
// Next hops towards the peers: link addresses and MTUs, as data from outside. One that was learnt from a first packet
// is good for the answer, until whoever knows the routes has confirmed or changed it.
#pragma once

#include <memory>

#include "prov/vma/src/inet/base/flow_table.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

using NextHopIndex = std::uint32_t;
inline constexpr NextHopIndex kNoNextHop = ~NextHopIndex{0};

struct NextHop {
    IpAddress remote;
    Mac mac;
    std::uint16_t vlan = 0; // 0: none
    std::uint16_t mtu = 1500;
    bool ready = false;       // the link address is known
    bool provisional = false; // learnt from a packet
    bool wanted = false;      // somebody waits for it, or for its confirmation, and next_wanted() has told
    std::uint32_t users = 0;
};

class NextHops
{
public:
    NextHops(std::uint32_t most, const HashKey &key)
        : key_(key), next_hops_(std::make_unique<NextHop[]>(most)), next_free_(std::make_unique<NextHopIndex[]>(most)),
          wanted_(std::make_unique<NextHopIndex[]>(most)), table_(most), most_(most)
    {
    }

    void set_link_mtu(std::uint16_t mtu) { link_mtu_ = mtu; } // of those that are new from now on
    std::uint16_t link_mtu() const { return link_mtu_; }

    NextHopIndex find(const IpAddress &remote) const
    {
        return table_.find(hash_of(key_, remote), [&](NextHopIndex i) { return next_hops_[i].remote == remote; });
    }

    // The next hop to `remote`, a new one if there is none yet; with one user more. kNoNextHop: the table is full.
    NextHopIndex use(const IpAddress &remote)
    {
        NextHopIndex index = find(remote);
        if (index == kNoNextHop) {
            index = take();
            if (index == kNoNextHop)
                return kNoNextHop;
            next_hops_[index] = NextHop();
            next_hops_[index].remote = remote;
            next_hops_[index].mtu = link_mtu_;
            table_.insert(hash_of(key_, remote), index);
        }
        ++next_hops_[index].users;
        return index;
    }

    void release(NextHopIndex index) // the last user's release forgets it
    {
        if (--next_hops_[index].users != 0)
            return;
        table_.erase(hash_of(key_, next_hops_[index].remote), index);
        next_free_[index] = free_;
        free_ = index;
    }

    // The link address of a packet's sender, for a next hop that has none yet.
    void learn_neighbour(NextHopIndex index, const Packet &packet)
    {
        NextHop &next_hop = next_hops_[index];
        if (next_hop.ready)
            return;
        next_hop.mac = packet.source_mac;
        next_hop.vlan = packet.vlan;
        next_hop.ready = next_hop.provisional = true;
        want(index);
    }

    // Its user asks whoever knows routes and neighbours, once until an answer is set().
    void want(NextHopIndex index)
    {
        if (next_hops_[index].wanted || wanted_used_ == most_)
            return;
        next_hops_[index].wanted = true;
        wanted_[(wanted_from_ + wanted_used_++) % most_] = index;
    }

    bool has_wanted() const { return wanted_used_ != 0; } // or had
    // One that is wanted; kNoNextHop: there is none more.
    NextHopIndex next_wanted()
    {
        while (wanted_used_ != 0) {
            const NextHopIndex index = wanted_[wanted_from_];
            wanted_from_ = (wanted_from_ + 1) % most_;
            --wanted_used_;
            if (next_hops_[index].users != 0 && next_hops_[index].wanted)
                return index;
        }
        return kNoNextHop;
    }

    // The answer. The engines that use the next hop have to be told (Tcp::next_hop_changed).
    void set(NextHopIndex index, const Mac &mac, std::uint16_t vlan, std::uint16_t mtu)
    {
        NextHop &next_hop = next_hops_[index];
        next_hop.mac = mac;
        next_hop.vlan = vlan;
        next_hop.mtu = mtu;
        next_hop.ready = true;
        next_hop.provisional = next_hop.wanted = false;
    }

    NextHop &operator[](NextHopIndex index) { return next_hops_[index]; }
    const NextHop &operator[](NextHopIndex index) const { return next_hops_[index]; }

private:
    NextHopIndex take()
    {
        if (free_ != kNoNextHop) {
            const NextHopIndex index = free_;
            free_ = next_free_[index];
            return index;
        }
        return fresh_ != most_ ? fresh_++ : kNoNextHop;
    }

    const HashKey key_;
    std::unique_ptr<NextHop[]> next_hops_;
    std::unique_ptr<NextHopIndex[]> next_free_;
    std::unique_ptr<NextHopIndex[]> wanted_; // a ring
    std::uint32_t wanted_from_ = 0;
    std::uint32_t wanted_used_ = 0;
    FlowTable table_;
    const std::uint32_t most_;
    std::uint16_t link_mtu_ = 1500;
    NextHopIndex fresh_ = 0;
    NextHopIndex free_ = kNoNextHop;
};

} // namespace vma::inet
