// SPDX-License-Identifier: BSD-2-Clause
// The table of a device's calls that register memory: the two that are short for the third.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

namespace vma::ofi {

// `RegAttr` is the device's own fi_ops_mr::regattr.
template <auto RegAttr> struct MrCalls {
    // FI_MR_DMABUF of libfabric 2.0: the attributes then name such a buffer in the place of the vector.
    static constexpr std::uint64_t kDmabuf = 1ULL << 40;

    static int regattr(fid *fid, const fi_mr_attr *attr, std::uint64_t flags, fid_mr **out)
    {
        return (flags & kDmabuf) != 0 ? -FI_EOPNOTSUPP : RegAttr(fid, attr, flags, out);
    }

    static int regv(fid *fid, const iovec *iov, std::size_t count, std::uint64_t access, std::uint64_t offset,
                    std::uint64_t requested_key, std::uint64_t flags, fid_mr **out, void *context)
    {
        fi_mr_attr attr{};
        attr.mr_iov = iov;
        attr.iov_count = count;
        attr.access = access;
        attr.offset = offset;
        attr.requested_key = requested_key;
        attr.context = context;
        return regattr(fid, &attr, flags, out);
    }

    static int reg(fid *fid, const void *buffer, std::size_t length, std::uint64_t access, std::uint64_t offset,
                   std::uint64_t requested_key, std::uint64_t flags, fid_mr **out, void *context)
    {
        const iovec iov{const_cast<void *>(buffer), length};
        return regv(fid, &iov, 1, access, offset, requested_key, flags, out, context);
    }

    static constexpr fi_ops_mr kOps = {.size = sizeof(fi_ops_mr), .reg = reg, .regv = regv, .regattr = regattr};
};

} // namespace vma::ofi
