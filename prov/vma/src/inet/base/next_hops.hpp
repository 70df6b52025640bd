// SPDX-License-Identifier: BSD-2-Clause
// Ways to the peers: link addresses and MTUs, as data from outside. A way that a first packet taught is good for the answer,
// until whoever knows the routes has confirmed or changed it.
#pragma once

#include <memory>

#include "prov/vma/src/inet/base/flow_table.hpp"
#include "prov/vma/src/inet/wire/packet.hpp"

namespace vma::inet {

using PathIndex = std::uint32_t;
inline constexpr PathIndex kNoPath = ~PathIndex{0};

struct Path {
    IpAddress remote;
    Mac mac;
    std::uint16_t vlan = 0; // 0: none
    std::uint16_t mtu = 1500;
    bool ready = false;       // the link address is known
    bool provisional = false; // taught by a packet
    bool wanted = false;      // somebody waits for it, or for its confirmation, and next_wanted() has told
    std::uint32_t users = 0;
};

class Paths
{
public:
    Paths(std::uint32_t most, const HashKey &key)
        : key_(key), paths_(std::make_unique<Path[]>(most)), next_free_(std::make_unique<PathIndex[]>(most)),
          wanted_(std::make_unique<PathIndex[]>(most)), table_(most), most_(most)
    {
    }

    void set_link_mtu(std::uint16_t mtu) { link_mtu_ = mtu; } // of paths that are new from now on
    std::uint16_t link_mtu() const { return link_mtu_; }

    PathIndex find(const IpAddress &remote) const
    {
        return table_.find(hash_of(key_, remote), [&](PathIndex i) { return paths_[i].remote == remote; });
    }

    // The path to `remote`, a new one if there is none yet; with one user more. kNoPath: the table is full.
    PathIndex use(const IpAddress &remote)
    {
        PathIndex index = find(remote);
        if (index == kNoPath) {
            index = take();
            if (index == kNoPath)
                return kNoPath;
            paths_[index] = Path();
            paths_[index].remote = remote;
            paths_[index].mtu = link_mtu_;
            table_.insert(hash_of(key_, remote), index);
        }
        ++paths_[index].users;
        return index;
    }

    void release(PathIndex index) // the last user's release forgets it
    {
        if (--paths_[index].users != 0)
            return;
        table_.erase(hash_of(key_, paths_[index].remote), index);
        next_free_[index] = free_;
        free_ = index;
    }

    // The link address of a packet's sender, for a path that has none yet.
    void teach(PathIndex index, const Packet &packet)
    {
        Path &path = paths_[index];
        if (path.ready)
            return;
        path.mac = packet.source_mac;
        path.vlan = packet.vlan;
        path.ready = path.provisional = true;
        want(index);
    }

    // Its user asks whoever knows routes and neighbours, once until an answer is set().
    void want(PathIndex index)
    {
        if (paths_[index].wanted || wanted_used_ == most_)
            return;
        paths_[index].wanted = true;
        wanted_[(wanted_from_ + wanted_used_++) % most_] = index;
    }

    bool has_wanted() const { return wanted_used_ != 0; } // or had
    // A path that is wanted; kNoPath: there is none more.
    PathIndex next_wanted()
    {
        while (wanted_used_ != 0) {
            const PathIndex index = wanted_[wanted_from_];
            wanted_from_ = (wanted_from_ + 1) % most_;
            --wanted_used_;
            if (paths_[index].users != 0 && paths_[index].wanted)
                return index;
        }
        return kNoPath;
    }

    // The answer. The engines that use the path have to be told (Tcp::path_changed).
    void set(PathIndex index, const Mac &mac, std::uint16_t vlan, std::uint16_t mtu)
    {
        Path &path = paths_[index];
        path.mac = mac;
        path.vlan = vlan;
        path.mtu = mtu;
        path.ready = true;
        path.provisional = path.wanted = false;
    }

    Path &operator[](PathIndex index) { return paths_[index]; }
    const Path &operator[](PathIndex index) const { return paths_[index]; }

private:
    PathIndex take()
    {
        if (free_ != kNoPath) {
            const PathIndex index = free_;
            free_ = next_free_[index];
            return index;
        }
        return fresh_ != most_ ? fresh_++ : kNoPath;
    }

    const HashKey key_;
    std::unique_ptr<Path[]> paths_;
    std::unique_ptr<PathIndex[]> next_free_;
    std::unique_ptr<PathIndex[]> wanted_; // a ring
    std::uint32_t wanted_from_ = 0;
    std::uint32_t wanted_used_ = 0;
    FlowTable table_;
    const std::uint32_t most_;
    std::uint16_t link_mtu_ = 1500;
    PathIndex fresh_ = 0;
    PathIndex free_ = kNoPath;
};

} // namespace vma::inet
