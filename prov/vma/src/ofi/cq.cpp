// SPDX-License-Identifier: BSD-2-Clause
// Attributes and error entries of completion queues.
#include "ofi/cq.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/error_text.hpp"
#include "ofi/domain.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ofi {

namespace {

constexpr std::size_t kDefaultSize = 1024;
constexpr std::size_t kMaxSize = std::size_t{1} << 24;

int check(const fi_cq_attr &attr) noexcept
{
    switch (attr.wait_obj) {
    case FI_WAIT_NONE:
    case FI_WAIT_UNSPEC:
    case FI_WAIT_FD:
        break;
    default:
        return -FI_ENOSYS;
    }
    if (attr.format > FI_CQ_FORMAT_TAGGED || attr.wait_cond > FI_CQ_COND_THRESHOLD || attr.size > kMaxSize)
        return -FI_EINVAL;
    return 0;
}

// What FI_CQ_FORMAT_UNSPEC stands for is ours to choose.
constexpr fi_cq_format kDefaultFormat = FI_CQ_FORMAT_DATA;

} // namespace

int init_cq(Cq &cq, const fi_cq_attr *attr, void *context) noexcept
{
    const fi_cq_attr defaults{};
    if (!attr)
        attr = &defaults;
    if (const int error = check(*attr))
        return error;
    if ((attr->flags & FI_PEER) != 0) {
        if (const int error = cq.owners.attach(context))
            return error;
        context = nullptr; // the owner's is good for this call alone
    }
    cq.fid.fid.fclass = FI_CLASS_CQ;
    cq.fid.fid.context = context;
    cq.format = attr->format == FI_CQ_FORMAT_UNSPEC ? kDefaultFormat : attr->format;
    cq.wait_obj = attr->wait_obj;
    cq.wait_cond = attr->wait_cond;
    cq.entries.set_limit(attr->size ? attr->size : kDefaultSize);
    cq.lock.set_enabled(cq.domain.needs_locks());
    return 0;
}

namespace {

// With the queue's lock held. Programs of API 1.5 and later may bring their own buffer; ours is good until the next one
// is read. Who wants no error data may have left the fields unset, so they are looked at only where there is some.
void give_raw_source(Cq &cq, fi_cq_err_entry &out) noexcept
{
    const Address source = cq.raw_sources.front().address;
    cq.last_raw_source = cq.domain.addresses.write(source);
    cq.raw_sources.pop();
    const std::uint32_t api = cq.domain.fabric.fid.api_version;
    const bool own_buffer = out.err_data && out.err_data_size && (api == 0 || FI_VERSION_GE(api, FI_VERSION(1, 5)));
    const std::size_t length = cq.last_raw_source.length;
    if (own_buffer) {
        const std::size_t room = out.err_data_size;
        cq.domain.addresses.copy(source, out.err_data, &out.err_data_size);
        out.err_data_size = std::min(room, length);
    } else {
        out.err_data = cq.last_raw_source.bytes.data();
        out.err_data_size = length;
    }
}

} // namespace

int tell_counters(Cq &cq, void *argument) noexcept
{
    if (argument == nullptr)
        return -FI_EINVAL;
    const core::SpinGuard guard(cq.lock);
    *static_cast<fi_vma_queue_counters *>(argument) = {cq.armings, cq.wakes, cq.entries.size()};
    return 0;
}

int cq_control(Cq &cq, int wait_fd, int command, void *argument) noexcept
{
    if (static_cast<unsigned>(command) == FI_VMA_QUEUE_COUNTERS)
        return cq.domain.fabric.orphaned() ? -FI_EOPBADSTATE : tell_counters(cq, argument);
    switch (command) {
    case FI_GETWAIT:
        if (cq.wait_obj == FI_WAIT_NONE || argument == nullptr)
            return -FI_ENODATA;
        *static_cast<int *>(argument) = wait_fd;
        return 0;
    case FI_GETWAITOBJ:
        if (argument == nullptr)
            return -FI_EINVAL;
        *static_cast<fi_wait_obj *>(argument) = cq.wait_obj == FI_WAIT_NONE ? FI_WAIT_NONE : FI_WAIT_FD;
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

ssize_t cq_readerr(fid_cq *fid, fi_cq_err_entry *out, std::uint64_t) noexcept
{
    Cq &cq = cq_of(fid);
    if (!out)
        return -FI_EINVAL;
    const core::SpinGuard guard(cq.lock);
    if (!cq.error_first())
        return -FI_EAGAIN;
    const Completion &entry = cq.entries.front();
    out->op_context = entry.context;
    out->flags = entry.flags;
    out->len = entry.length;
    out->buf = entry.buffer;
    out->data = entry.data;
    out->tag = 0;
    out->olen = entry.excess;
    out->err = entry.error;
    out->prov_errno = entry.provider_error;
    if (entry.error == FI_EADDRNOTAVAIL && !cq.raw_sources.empty())
        give_raw_source(cq, *out);
    else
        out->err_data_size = 0;
    cq.entries.pop();
    return 1;
}

const char *cq_strerror(fid_cq *, int provider_error, const void *, char *out, std::size_t length) noexcept
{
    // Ours are errno values: process_vm_readv() and its like are what can fail beside ourselves.
    const char *text = provider_error == 0 ? "no provider error" : core::error_text(provider_error);
    if (!text)
        text = "unknown provider error";
    if (out && length)
        std::snprintf(out, length, "%s", text);
    return text;
}

} // namespace vma::ofi
