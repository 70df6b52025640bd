// SPDX-License-Identifier: BSD-2-Clause
// The calls on a passive endpoint, the same for each device: `Pep` is the device's object. It has
//   fid, eq, info     public, fid first
//   fabric()          which it is of
//   lock()            a guard: what the device's progress may touch at the same time is under it
//   prepare()         once it has its info: 0 or an error
//   set_address()     what it listens at, with the lock held, as all that follow
//   own_address()     empty without one
//   get_option()      of FI_OPT_ENDPOINT; set_option() where any can be set
//   set_backlog()
//   listen()          its EQ is bound
//   reject()          a request, with at most kMostData bytes for the peer
//   close()           a static function of the table: how one ends is the device's own affair
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "ofi/address.hpp"
#include "ofi/address_format.hpp"
#include "ofi/eq.hpp"
#include "ofi/fabric.hpp"
#include "ofi/info/info.hpp"
#include "ofi/ops.hpp"

namespace vma::ofi {

template <typename Pep> struct PassiveCalls {
    static Pep &self(fid_t fid) noexcept { return *reinterpret_cast<Pep *>(fid); }
    static Pep &self(fid_pep *fid) noexcept { return *reinterpret_cast<Pep *>(fid); }

    static int bind(fid_t fid, fid_t other, std::uint64_t)
    {
        Pep &pep = self(fid);
        if (other == nullptr || other->fclass != FI_CLASS_EQ)
            return -FI_EINVAL;
        Eq &eq = eq_of(reinterpret_cast<fid_eq *>(other));
        const auto guard = pep.lock();
        if (pep.eq != nullptr || &eq.fabric != &pep.fabric())
            return -FI_EINVAL;
        eq.refs.fetch_add(1, std::memory_order_relaxed);
        pep.eq = &eq;
        return 0;
    }

    static int control(fid_t fid, int command, void *arg)
    {
        Pep &pep = self(fid);
        if (command != FI_BACKLOG)
            return -FI_ENOSYS;
        if (arg == nullptr || *static_cast<int *>(arg) < 0)
            return -FI_EINVAL;
        const auto guard = pep.lock();
        pep.set_backlog(*static_cast<int *>(arg));
        return 0;
    }

    static int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
    {
        return level == FI_OPT_ENDPOINT ? self(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
    }

    static int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
    {
        return level == FI_OPT_ENDPOINT ? self(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
    }

    static int setname(fid_t fid, void *addr, std::size_t length)
    {
        Pep &pep = self(fid);
        Address wanted;
        if (!AddressFormat(pep.info.get()).read(addr, length, wanted))
            return -FI_EINVAL;
        if (pep.fabric().orphaned())
            return -FI_EOPBADSTATE;
        const auto guard = pep.lock();
        return pep.set_address(wanted);
    }

    static int getname(fid_t fid, void *addr, std::size_t *length)
    {
        Pep &pep = self(fid);
        const auto guard = pep.lock();
        const Address own = pep.own_address();
        return own.empty() ? -FI_EOPBADSTATE : AddressFormat(pep.info.get()).copy(own, addr, length);
    }

    static int listen(fid_pep *fid)
    {
        Pep &pep = self(fid);
        if (pep.fabric().orphaned())
            return -FI_EOPBADSTATE;
        const auto guard = pep.lock();
        return pep.eq != nullptr ? pep.listen() : -FI_ENOEQ;
    }

    static int reject(fid_pep *fid, fid_t handle, const void *param, std::size_t length)
    {
        Pep &pep = self(fid);
        if (length > Pep::kMostData || (param == nullptr && length > 0))
            return -FI_EINVAL;
        if (pep.fabric().orphaned())
            return -FI_EOPBADSTATE;
        const auto guard = pep.lock();
        return pep.reject(handle, param, length);
    }

    static constexpr EpOps ep_ops() noexcept
    {
        if constexpr (requires { &Pep::set_option; })
            return {.getopt = getopt, .setopt = setopt};
        else
            return {.getopt = getopt};
    }

    static constinit inline fi_ops fid_table = FidOps{.close = Pep::close, .bind = bind, .control = control};
    static constinit inline fi_ops_ep ep_table = ep_ops();
    static constinit inline fi_ops_cm cm_table =
        CmOps{.setname = setname, .getname = getname, .listen = listen, .reject = reject};
};

template <typename Pep, typename Owner>
int open_passive(Owner &owner, fi_info *info, fid_pep **pep, void *context) noexcept
{
    if (info == nullptr || pep == nullptr)
        return -FI_EINVAL;
    std::unique_ptr<Pep> opened(new (std::nothrow) Pep(owner));
    if (!opened || !(opened->info = copy_info(*info)))
        return -FI_ENOMEM;
    if (const int error = opened->prepare())
        return error;
    const auto guard = opened->lock();
    if (info->src_addr != nullptr) {
        Address wanted;
        if (!AddressFormat(info).read(info->src_addr, info->src_addrlen, wanted))
            return -FI_EINVAL;
        if (const int error = opened->set_address(wanted))
            return error;
    }
    using Calls = PassiveCalls<Pep>;
    opened->fid.fid = {FI_CLASS_PEP, context, &Calls::fid_table};
    opened->fid.ops = &Calls::ep_table;
    opened->fid.cm = &Calls::cm_table;
    opened->fabric().refs.fetch_add(1, std::memory_order_relaxed);
    *pep = &opened.release()->fid;
    return 0;
}

} // namespace vma::ofi
