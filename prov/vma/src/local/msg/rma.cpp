// SPDX-License-Identifier: BSD-2-Clause
// The fi_ops_rma table of an endpoint: the straight way into the peer's region, and everything else through post_rma().
#include "local/msg/endpoint.hpp"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "rdma/fi_ext_vma.h"

namespace vma::local {

namespace {

constexpr std::uint64_t kDelivery = FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE | FI_MATCH_COMPLETE;

struct Access {
    TxKind kind;
    const iovec *iov;
    std::size_t count;
    const fi_rma_iov *rma;
    std::size_t rma_count;
    const std::uint64_t *data;
    void *context;
    std::uint64_t flags;
    bool completion;
};

// The remote side without its empty parts. False: the lists don't fit each other.
bool copy_remote(TxOp &op, const Access &access) noexcept
{
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < access.rma_count; ++i) {
        if (__builtin_add_overflow(length, access.rma[i].len, &length))
            return false;
        if (access.rma[i].len || (i + 1 == access.rma_count && op.rma_count == 0))
            op.rma[op.rma_count++] = access.rma[i];
    }
    return length == op.length;
}

ssize_t post_rma(Endpoint &endpoint, const Access &access) noexcept
{
    if (access.count > kIovLimit || (access.count && !access.iov) || access.rma_count == 0 ||
        access.rma_count > kIovLimit || !access.rma)
        return -FI_EINVAL;
    TxOp op;
    op.kind = access.kind;
    for (std::size_t i = 0; i < access.count; ++i) {
        if (__builtin_add_overflow(op.length, access.iov[i].iov_len, &op.length))
            return -FI_EINVAL;
        op.iov[i] = access.iov[i];
    }
    op.iov_count = static_cast<std::uint8_t>(access.count);
    if (!copy_remote(op, access))
        return -FI_EINVAL;
    const bool region = op.rma_count == 1 && op.rma[0].key == FI_VMA_REGION_KEY;
    op.inject = (access.flags & FI_INJECT) != 0;
    if (op.inject && (op.kind != TxKind::write || (op.length > endpoint.inject_size && !region)))
        return -FI_EINVAL;
    op.completion = access.completion;
    op.has_data = access.data != nullptr;
    op.data = access.data ? *access.data : 0;
    op.delivery = (access.flags & kDelivery) != 0;
    op.fence = (access.flags & FI_FENCE) != 0;
    op.context = access.context;
    return endpoint.sender.post(op);
}

ssize_t one(Endpoint &endpoint, TxKind kind, const void *buffer, std::size_t length, const std::uint64_t *data,
            std::uint64_t addr, std::uint64_t key, void *context, std::uint64_t flags, bool completion) noexcept
{
    const iovec iov{const_cast<void *>(buffer), length};
    const fi_rma_iov rma{addr, length, key};
    return post_rma(endpoint, {kind, &iov, 1, &rma, 1, data, context, flags, completion});
}

ssize_t read(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t, std::uint64_t addr, std::uint64_t key,
             void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags & ~FI_INJECT;
    return one(endpoint, TxKind::read, buffer, length, nullptr, addr, key, context, flags,
               endpoint.wants_tx_completion(flags));
}

ssize_t vector(fid_ep *ep, TxKind kind, const iovec *iov, std::size_t count, std::uint64_t addr, std::uint64_t key,
               void *context) noexcept
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = kind == TxKind::read ? endpoint.tx_flags & ~FI_INJECT : endpoint.tx_flags;
    fi_rma_iov rma{addr, 0, key};
    for (std::size_t i = 0; i < count && i < kIovLimit; ++i)
        rma.len += iov[i].iov_len;
    return post_rma(endpoint,
                    {kind, iov, count, &rma, 1, nullptr, context, flags, endpoint.wants_tx_completion(flags)});
}

ssize_t readv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, std::uint64_t addr,
              std::uint64_t key, void *context)
{
    return vector(ep, TxKind::read, iov, count, addr, key, context);
}

ssize_t writev(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t, std::uint64_t addr,
               std::uint64_t key, void *context)
{
    return vector(ep, TxKind::write, iov, count, addr, key, context);
}

ssize_t readmsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(ep);
    return post_rma(endpoint,
                    {TxKind::read, message->msg_iov, message->iov_count, message->rma_iov, message->rma_iov_count,
                     nullptr, message->context, flags, endpoint.wants_tx_completion(flags)});
}

ssize_t writemsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const bool completion = endpoint.wants_tx_completion(flags);
    const std::uint64_t *data = (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    if (!completion && message->iov_count == 1 && message->rma_iov_count == 1 &&
        message->rma_iov[0].key == FI_VMA_REGION_KEY && message->rma_iov[0].len == message->msg_iov[0].iov_len &&
        !(flags & (kDelivery | FI_FENCE)))
        return endpoint.sender.write_region(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, data,
                                            message->rma_iov[0].addr);
    return post_rma(endpoint, {TxKind::write, message->msg_iov, message->iov_count, message->rma_iov,
                               message->rma_iov_count, data, message->context, flags, completion});
}

ssize_t write(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t, std::uint64_t addr,
              std::uint64_t key, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return one(endpoint, TxKind::write, buffer, length, nullptr, addr, key, context, flags,
               endpoint.wants_tx_completion(flags));
}

ssize_t writedata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t,
                  std::uint64_t addr, std::uint64_t key, void *context)
{
    Endpoint &endpoint = Endpoint::from(ep);
    const std::uint64_t flags = endpoint.tx_flags;
    return one(endpoint, TxKind::write, buffer, length, &data, addr, key, context, flags,
               endpoint.wants_tx_completion(flags));
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t, std::uint64_t addr, std::uint64_t key)
{
    Endpoint &endpoint = Endpoint::from(ep);
    if (key == FI_VMA_REGION_KEY)
        return endpoint.sender.write_region(buffer, length, nullptr, addr);
    return one(endpoint, TxKind::write, buffer, length, nullptr, addr, key, nullptr, FI_INJECT, false);
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t,
                   std::uint64_t addr, std::uint64_t key)
{
    Endpoint &endpoint = Endpoint::from(ep);
    if (key == FI_VMA_REGION_KEY) [[likely]]
        return endpoint.sender.write_region(buffer, length, &data, addr);
    return one(endpoint, TxKind::write, buffer, length, &data, addr, key, nullptr, FI_INJECT, false);
}

} // namespace

constinit fi_ops_rma endpoint_rma_ops = {.size = sizeof(fi_ops_rma),
                                         .read = read,
                                         .readv = readv,
                                         .readmsg = readmsg,
                                         .write = write,
                                         .writev = writev,
                                         .writemsg = writemsg,
                                         .inject = inject,
                                         .writedata = writedata,
                                         .injectdata = injectdata};

} // namespace vma::local
