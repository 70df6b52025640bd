// SPDX-License-Identifier: BSD-2-Clause
// Reading a completion queue whose entries are an owner's (FI_PEER, fi_peer(3)): it makes progress, and tells of
// nothing.
#include "local/queue.hpp"

#include "ofi/domain.hpp"
#include "ofi/noop.hpp"

namespace vma::local {

namespace {

constexpr unsigned kCmInterval = 65536; // reads without a completion between looks at connection management
constexpr unsigned kCompanions = 4;     // reads without a completion between looks at the endpoints' other queues

ssize_t read_for_owner(fid_cq *fid, void *, std::size_t)
{
    queue_of(fid).progress_for_owner();
    return 0;
}

} // namespace

// The owner may have locks of its own, so there is no turn for others in here: how it spins is its own business.
void Queue::progress_for_owner() noexcept
{
    lock.lock();
    Sink sink{nullptr, 0};
    const bool was_armed = suspend();
    poll<FI_CQ_FORMAT_CONTEXT>(sink);
    const bool told = owners.was_told();
    const bool look_at_cm =
        (!told && note_idle() % kCmInterval == 0) || (ring_halves != 0 && lookout.due(++watched_reads));
    if (was_armed) [[unlikely]]
        end_armed_read(told);
    const bool others = !told && companions.any() && reads % kCompanions == 0;
    lock.unlock();
    if (look_at_cm) [[unlikely]]
        domain.fabric.cm_progress();
    if (others) [[unlikely]]
        progress_companions();
}

// What is asked of entries is for the owner to answer.
fi_ops_cq owned_cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read_for_owner,
    .readfrom = ofi::no_op,
    .readerr = ofi::no_op,
    .sread = ofi::no_op,
    .sreadfrom = ofi::no_op,
    .signal = ofi::no_op,
    .strerror = ofi::cq_strerror,
};

} // namespace vma::local
