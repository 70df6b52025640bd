// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/peer/cq.hpp"

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/cq.hpp"

namespace vma::ofi {

int OwnersQueue::attach(const void *context) noexcept
{
    const auto *const given = static_cast<const peer::CqContext *>(context);
    const bool complete = given != nullptr && given->size >= sizeof *given && given->cq != nullptr &&
                          given->cq->owner_ops != nullptr && given->cq->owner_ops->size >= sizeof(peer::CqOwnerOps) &&
                          given->cq->owner_ops->write != nullptr && given->cq->owner_ops->writeerr != nullptr;
    if (!complete) {
        VMA_WARN(cq, "FI_PEER without a struct fi_peer_cq_context of an owner: the queue is refused");
        return -FI_EINVAL;
    }
    cq_ = given->cq;
    return 0;
}

void OwnersQueue::tell(const Completion &completion, std::uint64_t tag) noexcept
{
    told_.store(true, std::memory_order_relaxed);
    ssize_t result;
    if (completion.error == 0) [[likely]] {
        result = cq_->owner_ops->write(cq_, completion.context, completion.flags, completion.length, completion.buffer,
                                       completion.data, tag, completion.source);
    } else {
        const int known = completion.provider_error != 0 ? completion.provider_error : completion.error;
        const peer::CqError error{completion.context,
                                  completion.flags,
                                  completion.length,
                                  completion.buffer,
                                  completion.data,
                                  tag,
                                  completion.excess,
                                  completion.error,
                                  known,
                                  nullptr,
                                  0,
                                  completion.source};
        result = cq_->owner_ops->writeerr(cq_, &error);
    }
    if (result < 0) [[unlikely]]
        VMA_WARN(cq, "the owner of a queue takes no completion (%zd): it is lost", result);
}

} // namespace vma::ofi
