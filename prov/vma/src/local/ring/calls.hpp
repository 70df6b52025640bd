// SPDX-License-Identifier: BSD-2-Clause
// The calls of fi_ops, fi_ops_ep and fi_ops_cm that datagram and reliable-datagram endpoints have alike, and the way
// both are opened. What they call of an `Endpoint`, which is a RingEndpoint, is its own function of that name.
#pragma once

#include <memory>
#include <new>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "local/ring/endpoint.hpp"
#include "ofi/op_flags.hpp"

namespace vma::local {

template <typename Endpoint> struct RingCalls {
    static int close(fid *fid)
    {
        Endpoint &endpoint = Endpoint::from(fid);
        ofi::Domain &domain = endpoint.domain();
        if (domain.fabric.orphaned())
            return 0; // its memory is not mapped in a forked child
        delete &endpoint;
        domain.refs.fetch_sub(1, std::memory_order_relaxed);
        return 0;
    }
    static int bind(fid *fid, struct fid *what, std::uint64_t flags)
    {
        return what ? Endpoint::from(fid).bind(what, flags) : -FI_EINVAL;
    }
    static int control(fid *fid, int command, void *argument)
    {
        Endpoint &endpoint = Endpoint::from(fid);
        return ofi::control_endpoint(endpoint, endpoint.domain().fabric.orphaned(), command, argument);
    }
    static ssize_t cancel(fid_t fid, void *context) { return Endpoint::from(fid).cancel(context); }
    static int getopt(fid_t fid, int level, int name, void *value, std::size_t *length)
    {
        return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).get_option(name, value, length) : -FI_ENOPROTOOPT;
    }
    static int setopt(fid_t fid, int level, int name, const void *value, std::size_t length)
    {
        return level == FI_OPT_ENDPOINT ? Endpoint::from(fid).set_option(name, value, length) : -FI_ENOPROTOOPT;
    }
    static int setname(fid_t fid, void *addr, std::size_t length)
    {
        Endpoint &endpoint = Endpoint::from(fid);
        ofi::Address wanted;
        if (!endpoint.format().read(addr, length, wanted))
            return -FI_EINVAL;
        return endpoint.domain().fabric.orphaned() ? -FI_EOPBADSTATE : endpoint.set_name(wanted);
    }
    static int getname(fid_t fid, void *addr, std::size_t *length)
    {
        return Endpoint::from(fid).get_name(addr, length);
    }

    // `give_tables(fid_ep &)` fills in its tables of operations. 0 or a negative fi_errno.
    template <typename Tables>
    static int open(ofi::Domain &domain, const fi_info &info, fid_ep **ep, void *context, Tables &&give_tables) noexcept
    {
        std::unique_ptr<Endpoint> endpoint(new (std::nothrow) Endpoint(domain, info));
        if (!endpoint)
            return -FI_ENOMEM;
        if (info.src_addr) {
            ofi::Address wanted;
            if (!endpoint->format().read(info.src_addr, info.src_addrlen, wanted))
                return -FI_EINVAL;
            if (const int error = endpoint->propose_name(wanted))
                return error;
        }
        fid_ep &fid = endpoint->handle.fid;
        fid.fid.fclass = FI_CLASS_EP;
        fid.fid.context = context;
        give_tables(fid);
        domain.refs.fetch_add(1, std::memory_order_relaxed);
        *ep = &endpoint.release()->handle.fid;
        return 0;
    }
};

} // namespace vma::local
