// SPDX-License-Identifier: BSD-2-Clause
// Groups: fi_join(), and who is in one when a datagram is sent to it.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <new>

#include <rdma/fi_errno.h>

#include "local/cm/manager.hpp"
#include "local/dgram/endpoint.hpp"
#include "ofi/ops.hpp"

namespace vma::local {
namespace {

constexpr fi_addr_t kGroupBit = fi_addr_t{1} << 62;
constexpr std::int64_t kSettled = 50'000'000; // ns: above what the file system's clock may stand still

// As it is in the directory: the address in hexadecimal digits, a dot, the port.
std::string key_of(const ofi::Address &group)
{
    const bool v4 = group.sa.sa_family == AF_INET;
    const auto *bytes = v4 ? reinterpret_cast<const unsigned char *>(&group.v4.sin_addr) : group.v6.sin6_addr.s6_addr;
    std::string key;
    for (std::size_t i = 0; i < (v4 ? sizeof(in_addr) : sizeof(in6_addr)); ++i) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", unsigned{bytes[i]});
        key += digits;
    }
    return key + "." + std::to_string(group.port());
}

bool is_group(const ofi::Address &address)
{
    if (address.sa.sa_family == AF_INET)
        return IN_MULTICAST(ntohl(address.v4.sin_addr.s_addr));
    return address.sa.sa_family == AF_INET6 && IN6_IS_ADDR_MULTICAST(&address.v6.sin6_addr);
}

bool same(const ofi::Address &a, const ofi::Address &b)
{
    return a.sa.sa_family == b.sa.sa_family && a.port() == b.port() && a.same_host(b);
}

int close_membership(fid_t fid)
{
    auto *membership = reinterpret_cast<Membership *>(fid);
    if (membership->endpoint->domain().fabric.orphaned())
        return 0;
    membership->endpoint->leave(*membership);
    return 0;
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close_membership};

// Of the clock that stamps files.
std::int64_t file_time() noexcept
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

} // namespace

int DatagramEndpoint::join(const ofi::Address &group, std::uint64_t flags, fid_mc **mc, void *context) noexcept
{
    if ((flags & ~(FI_SEND | FI_RECV)) != 0)
        return -FI_EBADFLAGS;
    if (mc == nullptr || !is_group(group))
        return -FI_EINVAL;
    const bool receives = flags == 0 || (flags & FI_RECV) != 0;
    std::unique_ptr<Membership> membership(new (std::nothrow) Membership);
    if (!membership)
        return -FI_ENOMEM;
    const std::lock_guard guard(manager_.mutex());
    if (!enabled_)
        return -FI_EOPBADSTATE;
    if (receives) {
        if (is_member(group))
            return -FI_EADDRINUSE;
        if (const int error = directory_->join(key_of(group), name_))
            return error;
    }
    membership->endpoint = this;
    membership->group = group;
    membership->receives = receives;
    const core::SpinGuard sending(lock_);
    auto place = std::find(groups_.begin(), groups_.end(), nullptr);
    if (place == groups_.end())
        place = groups_.emplace(place);
    membership->fid.fid = {FI_CLASS_MC, context, &g_fid_ops};
    membership->fid.fi_addr = kGroupBit | static_cast<fi_addr_t>(place - groups_.begin());
    *mc = &membership->fid;
    *place = std::move(membership);
    return 0;
}

void DatagramEndpoint::leave(Membership &membership) noexcept
{
    const std::lock_guard guard(manager_.mutex());
    if (membership.receives) {
        directory_->leave(key_of(membership.group), name_);
        // What comes to those that still think us in the group is not for us.
        const core::SpinGuard receiving(rx_queue_->lock);
        for (Inlet *inlet = inlets_; inlet;) {
            Inlet *const following = inlet->next;
            if (same(inlet->group(), membership.group))
                retire(*inlet);
            inlet = following;
        }
    }
    const core::SpinGuard sending(lock_);
    for (std::unique_ptr<Membership> &one : groups_) {
        if (one.get() == &membership)
            one.reset();
    }
}

bool DatagramEndpoint::is_member(const ofi::Address &group) const noexcept
{
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const auto &one) { return one && one->receives && same(one->group, group); });
}

bool DatagramEndpoint::in_groups() const noexcept
{
    return std::any_of(groups_.begin(), groups_.end(), [](const auto &one) { return one != nullptr; });
}

Membership *DatagramEndpoint::membership_of(fi_addr_t to) const noexcept
{
    if ((to & kGroupBit) == 0) [[likely]]
        return nullptr;
    const fi_addr_t place = to & ~kGroupBit;
    return place < groups_.size() ? groups_[place].get() : nullptr;
}

// Looks at the directory once a tick of the coarse clock, and reads it where it has changed.
void DatagramEndpoint::find_members(Membership &group) noexcept
{
    const std::int64_t now = coarse_now();
    if (now == group.looked_at) [[likely]]
        return;
    group.looked_at = now;
    const std::int64_t changed = directory_->changed_at();
    if (changed == group.changed && group.settled)
        return;
    group.changed = changed;
    group.settled = file_time() - changed > kSettled;
    std::vector<Outlet *> found;
    for (const std::string &name : directory_->members(key_of(group.group))) {
        std::unique_ptr<Outlet> &outlet = outlets_[name];
        if (!outlet)
            outlet.reset(new (std::nothrow)
                             Outlet(manager_, *directory_, local_, group.group, name, true, met_, nullptr));
        if (outlet)
            found.push_back(outlet.get());
    }
    for (Outlet *member : group.members) {
        if (std::find(found.begin(), found.end(), member) == found.end())
            member->disconnect();
    }
    group.members = std::move(found);
}

} // namespace vma::local
