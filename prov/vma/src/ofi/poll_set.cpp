// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/poll_set.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <rdma/fi_errno.h>

#include "core/mutex.hpp"
#include "ofi/cntr.hpp"
#include "ofi/cq.hpp"
#include "ofi/domain.hpp"
#include "ofi/ops.hpp"

namespace vma::ofi {
namespace {

struct Member {
    fid *what;
    std::uint64_t seen = 0; // of a counter: value and errors, as they were told last
};

struct PollSet {
    fid_poll fid{}; // first
    Domain &domain;
    core::Mutex mutex;
    std::vector<Member> members; // protected by it

    explicit PollSet(Domain &owner) noexcept : domain(owner) {}
};

PollSet &self(fid_t fid)
{
    return *reinterpret_cast<PollSet *>(fid);
}

int close_set(fid_t fid)
{
    PollSet &set = self(fid);
    set.domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete &set;
    return 0;
}

int add(fid_poll *fid, struct fid *what, std::uint64_t flags)
{
    if (what == nullptr || flags != 0 || (what->fclass != FI_CLASS_CQ && what->fclass != FI_CLASS_CNTR))
        return -FI_EINVAL;
    PollSet &set = self(&fid->fid);
    const std::lock_guard guard(set.mutex);
    set.members.push_back({what});
    return 0;
}

int remove(fid_poll *fid, struct fid *what, std::uint64_t flags)
{
    PollSet &set = self(&fid->fid);
    const std::lock_guard guard(set.mutex);
    const auto gone = [what](const Member &member) { return member.what == what; };
    return flags == 0 && std::erase_if(set.members, gone) != 0 ? 0 : -FI_EINVAL;
}

// Asking makes progress, as reading does.
bool has_news(Member &member)
{
    if (member.what->fclass == FI_CLASS_CQ) {
        auto *const cq = reinterpret_cast<fid_cq *>(member.what);
        const ssize_t result = cq->ops->read(cq, nullptr, 0);
        return result >= 0 || result == -FI_EAVAIL;
    }
    Cntr &cntr = cntr_of(member.what);
    const std::uint64_t now = cntr.fid.ops->read(&cntr.fid) + cntr.fid.ops->readerr(&cntr.fid);
    return std::exchange(member.seen, now) != now;
}

int poll(fid_poll *fid, void **context, int count)
{
    if (count < 0 || (count != 0 && context == nullptr))
        return -FI_EINVAL;
    PollSet &set = self(&fid->fid);
    const std::lock_guard guard(set.mutex);
    int found = 0;
    for (Member &member : set.members) {
        if (found == count)
            break;
        if (has_news(member))
            context[found++] = member.what->context;
    }
    return found;
}

constinit fi_ops g_fid_ops = FidOps{.close = close_set};

constinit fi_ops_poll g_poll_ops = {
    .size = sizeof(fi_ops_poll),
    .poll = poll,
    .poll_add = add,
    .poll_del = remove,
};

} // namespace

int open_poll_set(fid_domain *fid, fi_poll_attr *attr, fid_poll **out)
{
    if (out == nullptr || (attr != nullptr && attr->flags != 0))
        return -FI_EINVAL;
    Domain &domain = domain_of(fid);
    if (domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    std::unique_ptr<PollSet> set(new (std::nothrow) PollSet(domain));
    if (!set)
        return -FI_ENOMEM;
    set->fid.fid = {FI_CLASS_POLL, nullptr, &g_fid_ops};
    set->fid.ops = &g_poll_ops;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *out = &set.release()->fid;
    return 0;
}

} // namespace vma::ofi
