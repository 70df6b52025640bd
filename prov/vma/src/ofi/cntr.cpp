// SPDX-License-Identifier: BSD-2-Clause
// The calls of a counter.
#include "ofi/cntr.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <poll.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "core/spinlock.hpp"
#include "ofi/domain.hpp"
#include "ofi/ops.hpp"

namespace vma::ofi {

void Cntr::add_source(const ProgressSource &source) noexcept
{
    const std::lock_guard guard(mutex);
    sources.push_back(source);
    refs.fetch_add(1, std::memory_order_relaxed);
}

void Cntr::remove_source(const ProgressSource &source) noexcept
{
    const std::lock_guard guard(mutex);
    if (const auto found = std::find(sources.begin(), sources.end(), source); found != sources.end()) {
        sources.erase(found);
        refs.fetch_sub(1, std::memory_order_relaxed);
    }
}

void Cntr::progress() noexcept
{
    const std::lock_guard guard(mutex);
    for (const ProgressSource &source : sources)
        source.progress(source.object);
}

namespace {

using Clock = std::chrono::steady_clock;

Cntr &of(fid_cntr *fid) noexcept
{
    return cntr_of(&fid->fid);
}

std::uint64_t read_value(fid_cntr *fid)
{
    Cntr &cntr = of(fid);
    cntr.progress();
    return cntr.value.load(std::memory_order_acquire);
}

std::uint64_t read_errors(fid_cntr *fid)
{
    Cntr &cntr = of(fid);
    cntr.progress();
    return cntr.errors.load(std::memory_order_acquire);
}

int add(fid_cntr *fid, std::uint64_t value)
{
    of(fid).value.fetch_add(value, std::memory_order_acq_rel);
    return 0;
}

int set(fid_cntr *fid, std::uint64_t value)
{
    of(fid).value.store(value, std::memory_order_release);
    return 0;
}

int add_errors(fid_cntr *fid, std::uint64_t value)
{
    of(fid).errors.fetch_add(value, std::memory_order_acq_rel);
    return 0;
}

int set_errors(fid_cntr *fid, std::uint64_t value)
{
    of(fid).errors.store(value, std::memory_order_release);
    return 0;
}

// Sleeps until one of the sources has something, but a millisecond at most: fi_cntr_add() by another thread, and
// sources that were armed by two threads, are then seen late instead of never.
void nap(Cntr &cntr) noexcept
{
    pollfd fds[8];
    nfds_t count = 0;
    {
        const std::lock_guard guard(cntr.mutex);
        for (const ProgressSource &source : cntr.sources) {
            const int fd = source.arm(source.object);
            if (fd < 0)
                return;
            if (count < std::size(fds))
                fds[count++] = {fd, POLLIN, 0};
        }
    }
    core::kernel::poll(fds, count, 1);
}

int wait(fid_cntr *fid, std::uint64_t threshold, int timeout)
{
    constexpr unsigned kSpins = 1000;
    Cntr &cntr = of(fid);
    const std::uint64_t errors = cntr.errors.load(std::memory_order_acquire);
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout);
    for (unsigned round = 0;; ++round) {
        cntr.progress();
        if (cntr.value.load(std::memory_order_acquire) >= threshold)
            return 0;
        if (cntr.errors.load(std::memory_order_acquire) != errors)
            return -FI_EAVAIL;
        if (round < kSpins) {
            core::cpu_relax();
            if (round % 64)
                continue;
        }
        if (timeout >= 0 && Clock::now() >= end)
            return -FI_ETIMEDOUT;
        if (round >= kSpins)
            nap(cntr);
    }
}

int close(fid *fid)
{
    Cntr *cntr = &cntr_of(fid);
    if (cntr->domain.fabric.orphaned())
        return 0; // the parent's
    if (cntr->refs.load(std::memory_order_relaxed))
        return -FI_EBUSY;
    cntr->domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete cntr;
    return 0;
}

int control(fid *, int, void *)
{
    return -FI_ENOSYS;
}

constinit fi_ops cntr_fid_ops = FidOps{.close = close, .control = control};

constinit fi_ops_cntr cntr_ops = CntrOps{.read = read_value,
                                         .readerr = read_errors,
                                         .add = add,
                                         .set = set,
                                         .wait = wait,
                                         .adderr = add_errors,
                                         .seterr = set_errors};

// With FI_PEER: reading makes progress, and the count is the owner's.
std::uint64_t read_for_owner(fid_cntr *fid)
{
    of(fid).progress();
    return 0;
}

constinit fi_ops_cntr owned_cntr_ops = CntrOps{.read = read_for_owner, .readerr = read_for_owner};

// nullptr where it is incomplete.
peer::Cntr *owners_counter(const void *context) noexcept
{
    const auto *const given = static_cast<const peer::CntrContext *>(context);
    const bool complete = given != nullptr && given->size >= sizeof *given && given->cntr != nullptr &&
                          given->cntr->owner_ops != nullptr &&
                          given->cntr->owner_ops->size >= sizeof(peer::CntrOwnerOps) &&
                          given->cntr->owner_ops->inc != nullptr && given->cntr->owner_ops->incerr != nullptr;
    if (!complete)
        VMA_WARN(cntr, "FI_PEER without a struct fi_peer_cntr_context of an owner: the counter is refused");
    return complete ? given->cntr : nullptr;
}

} // namespace

int open_cntr(Domain &domain, fi_cntr_attr *attr, fid_cntr **out, void *context) noexcept
{
    if (attr) {
        if (attr->events != FI_CNTR_EVENTS_COMP || (attr->flags & ~FI_PEER) != 0)
            return -FI_EINVAL;
        if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
            return -FI_ENOSYS;
    }
    std::unique_ptr<Cntr> cntr(new (std::nothrow) Cntr(domain));
    if (!cntr)
        return -FI_ENOMEM;
    if (attr && (attr->flags & FI_PEER) != 0) {
        cntr->owners = owners_counter(context);
        if (cntr->owners == nullptr)
            return -FI_EINVAL;
        context = nullptr; // the owner's is good for this call alone
    }
    cntr->fid.fid = {FI_CLASS_CNTR, context, &cntr_fid_ops};
    cntr->fid.ops = cntr->owners != nullptr ? &owned_cntr_ops : &cntr_ops;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *out = &cntr.release()->fid;
    return 0;
}

} // namespace vma::ofi
