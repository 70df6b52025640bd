// SPDX-License-Identifier: BSD-2-Clause
// The operation tables of a reliable-datagram endpoint for reading, writing and changing a peer's memory (fi_rma(3),
// fi_atomic(3)).
#include "rdm/calls.hpp"

#include <cstdint>

#include <rdma/fi_errno.h>

#include "ofi/memory/atomic_apply.hpp"
#include "rdm/endpoint.hpp"

namespace vma::rdm {

namespace {

using ofi::AtomicKind;

// ---- remote memory --------------------------------------------------------------------------------------------------

ssize_t access_by(fid_ep *ep, bool write, const iovec *iov, std::size_t count, const std::uint64_t *data, fi_addr_t to,
                  std::uint64_t addr, std::uint64_t key, void *context) noexcept
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    // Of the default flags FI_INJECT can only mean what is short enough for it, and is no read.
    const std::uint64_t flags = endpoint.tx_flags & ~FI_INJECT;
    fi_rma_iov remote{addr, 0, key};
    for (std::size_t i = 0; i < count && i < ofi::kIovLimit && iov != nullptr; ++i)
        remote.len += iov[i].iov_len;
    return endpoint.access(
        {write, iov, count, to, &remote, 1, data, context, flags, endpoint.wants_tx_completion(flags)});
}

ssize_t inject_by(fid_ep *ep, const void *buffer, std::size_t length, const std::uint64_t *data, fi_addr_t to,
                  std::uint64_t addr, std::uint64_t key) noexcept
{
    const iovec iov{const_cast<void *>(buffer), length};
    const fi_rma_iov remote{addr, length, key};
    return RdmEndpoint::from(ep).access({true, &iov, 1, to, &remote, 1, data, nullptr, FI_INJECT, false});
}

ssize_t access_msg(fid_ep *ep, bool write, const fi_msg_rma *message, std::uint64_t flags) noexcept
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    const std::uint64_t *data = write && (flags & FI_REMOTE_CQ_DATA) ? &message->data : nullptr;
    return endpoint.access({write, message->msg_iov, message->iov_count, message->addr, message->rma_iov,
                            message->rma_iov_count, data, message->context, flags,
                            endpoint.wants_tx_completion(flags)});
}

ssize_t read(fid_ep *ep, void *buffer, std::size_t length, void *, fi_addr_t to, std::uint64_t addr, std::uint64_t key,
             void *context)
{
    const iovec iov{buffer, length};
    return access_by(ep, false, &iov, 1, nullptr, to, addr, key, context);
}

ssize_t readv(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t to, std::uint64_t addr,
              std::uint64_t key, void *context)
{
    return access_by(ep, false, iov, count, nullptr, to, addr, key, context);
}

ssize_t readmsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    return access_msg(ep, false, message, flags);
}

ssize_t write(fid_ep *ep, const void *buffer, std::size_t length, void *, fi_addr_t to, std::uint64_t addr,
              std::uint64_t key, void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return access_by(ep, true, &iov, 1, nullptr, to, addr, key, context);
}

ssize_t writev(fid_ep *ep, const iovec *iov, void **, std::size_t count, fi_addr_t to, std::uint64_t addr,
               std::uint64_t key, void *context)
{
    return access_by(ep, true, iov, count, nullptr, to, addr, key, context);
}

ssize_t writemsg(fid_ep *ep, const fi_msg_rma *message, std::uint64_t flags)
{
    return access_msg(ep, true, message, flags);
}

ssize_t inject(fid_ep *ep, const void *buffer, std::size_t length, fi_addr_t to, std::uint64_t addr, std::uint64_t key)
{
    return inject_by(ep, buffer, length, nullptr, to, addr, key);
}

ssize_t writedata(fid_ep *ep, const void *buffer, std::size_t length, void *, std::uint64_t data, fi_addr_t to,
                  std::uint64_t addr, std::uint64_t key, void *context)
{
    const iovec iov{const_cast<void *>(buffer), length};
    return access_by(ep, true, &iov, 1, &data, to, addr, key, context);
}

ssize_t injectdata(fid_ep *ep, const void *buffer, std::size_t length, std::uint64_t data, fi_addr_t to,
                   std::uint64_t addr, std::uint64_t key)
{
    return inject_by(ep, buffer, length, &data, to, addr, key);
}

// ---- atomics --------------------------------------------------------------------------------------------------------

// What the calls of all three kinds have in common; lists that a kind doesn't have are empty.
struct Lists {
    const fi_ioc *operand;
    std::size_t operand_count;
    const fi_ioc *compare = nullptr;
    std::size_t compare_count = 0;
    fi_ioc *result = nullptr;
    std::size_t result_count = 0;
};

ssize_t atomic_by(fid_ep *ep, AtomicKind kind, const Lists &lists, fi_addr_t to, const fi_rma_ioc *remote,
                  std::size_t remote_count, fi_datatype type, fi_op op, void *context, std::uint64_t flags,
                  bool completion) noexcept
{
    return RdmEndpoint::from(ep).atomic({static_cast<std::uint8_t>(kind), type, op, lists.operand, lists.operand_count,
                                         lists.compare, lists.compare_count, lists.result, lists.result_count, to,
                                         remote, remote_count, context, flags, completion});
}

// To one place, with the default flags. The elements are those of the operands, or of what is fetched where there are
// none.
ssize_t atomic_at(fid_ep *ep, AtomicKind kind, const Lists &lists, fi_addr_t to, std::uint64_t addr, std::uint64_t key,
                  fi_datatype type, fi_op op, void *context) noexcept
{
    RdmEndpoint &endpoint = RdmEndpoint::from(ep);
    const bool by_result = op == FI_ATOMIC_READ;
    fi_rma_ioc remote{addr, 0, key};
    const fi_ioc *const list = by_result ? lists.result : lists.operand;
    const std::size_t count = by_result ? lists.result_count : lists.operand_count;
    for (std::size_t i = 0; i < count && i < ofi::kIovLimit && list != nullptr; ++i)
        remote.count += list[i].count;
    return atomic_by(ep, kind, lists, to, &remote, 1, type, op, context, endpoint.tx_flags,
                     endpoint.wants_tx_completion(endpoint.tx_flags));
}

ssize_t atomic_msg(fid_ep *ep, AtomicKind kind, const Lists &lists, const fi_msg_atomic *message,
                   std::uint64_t flags) noexcept
{
    return atomic_by(ep, kind, lists, message->addr, message->rma_iov, message->rma_iov_count, message->datatype,
                     message->op, message->context, flags, RdmEndpoint::from(ep).wants_tx_completion(flags));
}

ssize_t atomic_write(fid_ep *ep, const void *buffer, std::size_t count, void *, fi_addr_t to, std::uint64_t addr,
                     std::uint64_t key, fi_datatype type, fi_op op, void *context)
{
    const fi_ioc operand{const_cast<void *>(buffer), count};
    return atomic_at(ep, AtomicKind::base, {&operand, 1}, to, addr, key, type, op, context);
}

ssize_t atomic_writev(fid_ep *ep, const fi_ioc *iov, void **, std::size_t count, fi_addr_t to, std::uint64_t addr,
                      std::uint64_t key, fi_datatype type, fi_op op, void *context)
{
    return atomic_at(ep, AtomicKind::base, {iov, count}, to, addr, key, type, op, context);
}

ssize_t atomic_writemsg(fid_ep *ep, const fi_msg_atomic *message, std::uint64_t flags)
{
    return atomic_msg(ep, AtomicKind::base, {message->msg_iov, message->iov_count}, message, flags);
}

ssize_t atomic_inject(fid_ep *ep, const void *buffer, std::size_t count, fi_addr_t to, std::uint64_t addr,
                      std::uint64_t key, fi_datatype type, fi_op op)
{
    const fi_ioc operand{const_cast<void *>(buffer), count};
    const fi_rma_ioc remote{addr, count, key};
    return atomic_by(ep, AtomicKind::base, {&operand, 1}, to, &remote, 1, type, op, nullptr, FI_INJECT, false);
}

ssize_t atomic_fetch(fid_ep *ep, const void *buffer, std::size_t count, void *, void *result, void *, fi_addr_t to,
                     std::uint64_t addr, std::uint64_t key, fi_datatype type, fi_op op, void *context)
{
    const fi_ioc operand{const_cast<void *>(buffer), count};
    fi_ioc out{result, count};
    return atomic_at(ep, AtomicKind::fetch, {&operand, 1, nullptr, 0, &out, 1}, to, addr, key, type, op, context);
}

ssize_t atomic_fetchv(fid_ep *ep, const fi_ioc *iov, void **, std::size_t count, fi_ioc *result, void **,
                      std::size_t result_count, fi_addr_t to, std::uint64_t addr, std::uint64_t key, fi_datatype type,
                      fi_op op, void *context)
{
    return atomic_at(ep, AtomicKind::fetch, {iov, count, nullptr, 0, result, result_count}, to, addr, key, type, op,
                     context);
}

ssize_t atomic_fetchmsg(fid_ep *ep, const fi_msg_atomic *message, fi_ioc *result, void **, std::size_t result_count,
                        std::uint64_t flags)
{
    return atomic_msg(ep, AtomicKind::fetch, {message->msg_iov, message->iov_count, nullptr, 0, result, result_count},
                      message, flags);
}

ssize_t atomic_compare(fid_ep *ep, const void *buffer, std::size_t count, void *, const void *compare, void *,
                       void *result, void *, fi_addr_t to, std::uint64_t addr, std::uint64_t key, fi_datatype type,
                       fi_op op, void *context)
{
    const fi_ioc operand{const_cast<void *>(buffer), count};
    const fi_ioc against{const_cast<void *>(compare), count};
    fi_ioc out{result, count};
    return atomic_at(ep, AtomicKind::compare, {&operand, 1, &against, 1, &out, 1}, to, addr, key, type, op, context);
}

ssize_t atomic_comparev(fid_ep *ep, const fi_ioc *iov, void **, std::size_t count, const fi_ioc *compare, void **,
                        std::size_t compare_count, fi_ioc *result, void **, std::size_t result_count, fi_addr_t to,
                        std::uint64_t addr, std::uint64_t key, fi_datatype type, fi_op op, void *context)
{
    return atomic_at(ep, AtomicKind::compare, {iov, count, compare, compare_count, result, result_count}, to, addr, key,
                     type, op, context);
}

ssize_t atomic_comparemsg(fid_ep *ep, const fi_msg_atomic *message, const fi_ioc *compare, void **,
                          std::size_t compare_count, fi_ioc *result, void **, std::size_t result_count,
                          std::uint64_t flags)
{
    return atomic_msg(ep, AtomicKind::compare,
                      {message->msg_iov, message->iov_count, compare, compare_count, result, result_count}, message,
                      flags);
}

int valid(AtomicKind kind, fi_datatype type, fi_op op, std::size_t *count) noexcept
{
    if (!ofi::atomic_valid(kind, type, op))
        return -FI_EOPNOTSUPP;
    if (count != nullptr)
        *count = ofi::kAtomicBytes / ofi::atomic_size(type);
    return 0;
}

int write_valid(fid_ep *, fi_datatype type, fi_op op, std::size_t *count)
{
    return valid(AtomicKind::base, type, op, count);
}

int fetch_valid(fid_ep *, fi_datatype type, fi_op op, std::size_t *count)
{
    return valid(AtomicKind::fetch, type, op, count);
}

int compare_valid(fid_ep *, fi_datatype type, fi_op op, std::size_t *count)
{
    return valid(AtomicKind::compare, type, op, count);
}

} // namespace

constinit fi_ops_rma rma_ops = {.size = sizeof(fi_ops_rma),
                                .read = read,
                                .readv = readv,
                                .readmsg = readmsg,
                                .write = write,
                                .writev = writev,
                                .writemsg = writemsg,
                                .inject = inject,
                                .writedata = writedata,
                                .injectdata = injectdata};

constinit fi_ops_atomic atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = atomic_write,
    .writev = atomic_writev,
    .writemsg = atomic_writemsg,
    .inject = atomic_inject,
    .readwrite = atomic_fetch,
    .readwritev = atomic_fetchv,
    .readwritemsg = atomic_fetchmsg,
    .compwrite = atomic_compare,
    .compwritev = atomic_comparev,
    .compwritemsg = atomic_comparemsg,
    .writevalid = write_valid,
    .readwritevalid = fetch_valid,
    .compwritevalid = compare_valid,
};

} // namespace vma::rdm
