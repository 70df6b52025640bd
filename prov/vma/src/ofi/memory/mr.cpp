// SPDX-License-Identifier: BSD-2-Clause
// Registering, finding and closing memory regions.
#include "ofi/memory/mr.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "core/spinlock.hpp"
#include "ofi/domain.hpp"
#include "ofi/memory/mr_calls.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ofi {

namespace {

constexpr std::uint64_t kByPeers = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kAccessBits = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// The pieces of [offset, offset + length): how many there are.
unsigned cut(const Mr &mr, std::uint64_t offset, std::uint64_t length, iovec (&parts)[kMrIovLimit]) noexcept
{
    unsigned count = 0;
    for (unsigned i = 0; i < mr.iov_count && length; ++i) {
        if (offset >= mr.iov[i].iov_len) {
            offset -= mr.iov[i].iov_len;
            continue;
        }
        const std::uint64_t part = mr.iov[i].iov_len - offset < length ? mr.iov[i].iov_len - offset : length;
        parts[count++] = {static_cast<std::byte *>(mr.iov[i].iov_base) + offset, part};
        offset = 0;
        length -= part;
    }
    return count;
}

} // namespace

Mr *MrTable::find(std::uint64_t key) noexcept
{
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second;
}

int MrTable::locate(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights,
                    iovec (&parts)[kMrIovLimit], unsigned &count) noexcept
{
    const Mr *const mr = find(key);
    if (!mr)
        return FI_ENOKEY;
    if ((mr->access & rights) != rights)
        return FI_EACCES;
    const std::uint64_t offset = address - mr->base;
    if (offset > mr->length || length > mr->length - offset)
        return FI_EINVAL;
    count = cut(*mr, offset, length, parts);
    return 0;
}

int MrTable::write(std::uint64_t key, std::uint64_t address, const std::byte *from, std::uint64_t length) noexcept
{
    return access(key, address, length, FI_REMOTE_WRITE, [from](const iovec *parts, unsigned count) noexcept {
        const std::byte *next = from;
        for (const iovec &part : std::span(parts, count)) {
            std::memcpy(part.iov_base, next, part.iov_len);
            next += part.iov_len;
        }
        return 0;
    });
}

int MrTable::read(std::uint64_t key, std::uint64_t address, std::byte *to, std::uint64_t length) noexcept
{
    return access(key, address, length, FI_REMOTE_READ, [to](const iovec *parts, unsigned count) noexcept {
        std::byte *next = to;
        for (const iovec &part : std::span(parts, count)) {
            std::memcpy(next, part.iov_base, part.iov_len);
            next += part.iov_len;
        }
        return 0;
    });
}

int MrTable::check(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights) noexcept
{
    return access(key, address, length, rights, [](const iovec *, unsigned) noexcept { return 0; });
}

void MrTable::forget(MrObserver &observer) noexcept
{
    const std::lock_guard guard(mutex_);
    if (!observer.linked)
        return;
    for (MrObserver **at = &observers_; *at; at = &(*at)->next) {
        if (*at == &observer) {
            *at = observer.next;
            break;
        }
    }
    observer.linked = false;
}

int MrTable::add(Mr &mr, std::uint64_t key, bool choose) noexcept
{
    {
        const std::lock_guard guard(mutex_);
        if (choose) {
            do
                key = next_key_++;
            while (by_key_.contains(key));
        } else if (key == FI_VMA_REGION_KEY || key == FI_KEY_NOTAVAIL || by_key_.contains(key)) {
            return -FI_ENOKEY;
        }
        by_key_[key] = &mr;
        mr.fid.key = key;
    }
    if ((mr.access & kByPeers) != 0 && exposed_.fetch_add(1, std::memory_order_seq_cst) == 0)
        tell_watchers();
    return 0;
}

void MrTable::tell_watchers() noexcept
{
    core::full_fence();
    const std::lock_guard guard(counters_mutex_);
    for (const MrWatcher &watcher : watchers_)
        watcher.exposed(watcher.object);
}

void MrTable::watch(const MrWatcher &watcher) noexcept
{
    const std::lock_guard guard(counters_mutex_);
    watchers_.push_back(watcher);
}

void MrTable::unwatch(const void *object) noexcept
{
    const std::lock_guard guard(counters_mutex_);
    std::erase_if(watchers_, [object](const MrWatcher &watcher) { return watcher.object == object; });
}

void MrTable::remove(Mr &mr) noexcept
{
    {
        const std::lock_guard guard(mutex_);
        by_key_.erase(mr.fid.key);
        if (mr.granted)
            revoke_all();
    }
    if ((mr.access & kByPeers) != 0)
        exposed_.fetch_sub(1, std::memory_order_relaxed);
    release(mr.write_counter);
    release(mr.read_counter);
}

void MrTable::bind(Mr &mr, Cntr &counter, std::uint64_t accesses) noexcept
{
    const int bindings = ((accesses & FI_REMOTE_WRITE) != 0 ? 1 : 0) + ((accesses & FI_REMOTE_READ) != 0 ? 1 : 0);
    {
        const std::lock_guard guard(counters_mutex_);
        for (int i = 0; i < bindings; ++i) {
            counters_.push_back(&counter);
            counter.refs.fetch_add(1, std::memory_order_relaxed);
            for (const ProgressSource &source : sources_)
                counter.add_source(source);
        }
    }
    counted_.store(true, std::memory_order_relaxed);
    const std::lock_guard guard(mutex_);
    if ((accesses & FI_REMOTE_WRITE) != 0)
        mr.write_counter = &counter;
    if ((accesses & FI_REMOTE_READ) != 0)
        mr.read_counter = &counter;
    if (mr.granted)
        revoke_all();
    mr.granted = false;
}

void MrTable::release(Cntr *counter) noexcept
{
    if (counter == nullptr)
        return;
    const std::lock_guard guard(counters_mutex_);
    counters_.erase(std::find(counters_.begin(), counters_.end(), counter));
    for (const ProgressSource &source : sources_)
        counter->remove_source(source);
    counter->refs.fetch_sub(1, std::memory_order_relaxed);
}

void MrTable::add_source(const ProgressSource &source) noexcept
{
    const std::lock_guard guard(counters_mutex_);
    sources_.push_back(source);
    for (Cntr *counter : counters_)
        counter->add_source(source);
}

void MrTable::remove_source(const ProgressSource &source) noexcept
{
    const std::lock_guard guard(counters_mutex_);
    sources_.erase(std::find(sources_.begin(), sources_.end(), source));
    for (Cntr *counter : counters_)
        counter->remove_source(source);
}

void MrTable::count_in(std::uint64_t key, std::uint64_t access) noexcept
{
    const std::lock_guard guard(mutex_);
    const Mr *const mr = find(key);
    if (mr == nullptr)
        return;
    if (Cntr *const counter = access == FI_REMOTE_WRITE ? mr->write_counter : mr->read_counter; counter != nullptr)
        counter->count();
}

void MrTable::refresh(Mr &mr) noexcept
{
    const std::lock_guard guard(mutex_);
    if (mr.granted)
        revoke_all();
    mr.granted = false;
}

void MrTable::revoke_all() noexcept
{
    for (MrObserver *observer = observers_; observer; observer = observer->next)
        observer->revoke(observer->object);
}

MrTable *mr_table(Domain &domain) noexcept
{
    std::atomic_ref<void *> place(domain.mr_table);
    if (void *table = place.load(std::memory_order_acquire))
        return static_cast<MrTable *>(table);
    std::unique_ptr<MrTable> fresh(new (std::nothrow) MrTable);
    void *expected = nullptr;
    if (!fresh || !place.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel))
        return static_cast<MrTable *>(expected);
    return fresh.release();
}

void destroy_mr_table(Domain &domain) noexcept
{
    delete static_cast<MrTable *>(domain.mr_table);
    domain.mr_table = nullptr;
}

namespace {

int close_mr(fid *fid)
{
    Mr *const closed = reinterpret_cast<Mr *>(fid);
    if (closed->domain.fabric.orphaned())
        return 0; // the parent's, and its table may be locked for ever
    const std::unique_ptr<Mr> mr(closed);
    mr_table(mr->domain)->remove(*mr);
    mr->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    return 0;
}

// FI_RMA_EVENT: fi_mr(3).
int bind_mr(fid *fid, struct fid *what, std::uint64_t flags)
{
    Mr &mr = *reinterpret_cast<Mr *>(fid);
    if (mr.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    if (what == nullptr || what->fclass != FI_CLASS_CNTR)
        return -FI_EINVAL;
    if (flags == 0 || (flags & ~(FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
        return -FI_EBADFLAGS;
    Cntr &counter = cntr_of(what);
    const bool has_one = ((flags & FI_REMOTE_WRITE) != 0 && mr.write_counter != nullptr) ||
                         ((flags & FI_REMOTE_READ) != 0 && mr.read_counter != nullptr);
    if (&counter.domain != &mr.domain || has_one)
        return -FI_EINVAL;
    mr_table(mr.domain)->bind(mr, counter, flags);
    return 0;
}

int control_mr(fid *fid, int command, void *)
{
    if (command != FI_REFRESH)
        return -FI_ENOSYS;
    Mr &mr = *reinterpret_cast<Mr *>(fid);
    mr_table(mr.domain)->refresh(mr);
    return 0;
}

constinit fi_ops mr_fid_ops = FidOps{.close = close_mr, .bind = bind_mr, .control = control_mr};

int check_attr(const fi_mr_attr &attr) noexcept
{
    if (!attr.mr_iov || attr.iov_count == 0 || attr.iov_count > kMrIovLimit || (attr.access & ~kAccessBits) ||
        attr.offset)
        return -FI_EINVAL;
    return attr.iface == FI_HMEM_SYSTEM ? 0 : -FI_ENOSYS;
}

int regattr(fid *fid, const fi_mr_attr *attr, std::uint64_t, fid_mr **out)
{
    if (fid->fclass != FI_CLASS_DOMAIN || !attr || !out)
        return -FI_EINVAL;
    if (const int error = check_attr(*attr))
        return error;
    Domain &domain = *reinterpret_cast<Domain *>(fid);
    MrTable *table = mr_table(domain);
    std::unique_ptr<Mr> mr(new (std::nothrow) Mr(domain));
    if (!table || !mr)
        return -FI_ENOMEM;
    for (std::size_t i = 0; i < attr->iov_count; ++i) {
        if (__builtin_add_overflow(mr->length, attr->mr_iov[i].iov_len, &mr->length))
            return -FI_EINVAL;
        mr->iov[i] = attr->mr_iov[i];
    }
    mr->iov_count = static_cast<unsigned>(attr->iov_count);
    mr->access = attr->access;
    mr->base = domain.virt_addr ? reinterpret_cast<std::uintptr_t>(attr->mr_iov[0].iov_base) : 0;
    mr->fid.fid = {FI_CLASS_MR, attr->context, &mr_fid_ops};
    mr->fid.mem_desc = &mr->fid;
    if (const int error = table->add(*mr, attr->requested_key, domain.prov_key))
        return error;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *out = &mr.release()->fid;
    return 0;
}

} // namespace

fi_ops_mr mr_ops = MrCalls<regattr>::kOps;

} // namespace vma::ofi
