// SPDX-License-Identifier: BSD-2-Clause
// The calls of a shared receive context with FI_PEER: it is bound, and closed.
#include "rdm/peer_srx.hpp"

#include <memory>
#include <new>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "ofi/domain.hpp"
#include "ofi/libfabric.hpp"
#include "ofi/ops.hpp"
#include "ofi/shared_receive.hpp"
#include "rdm/open.hpp"

namespace vma::rdm {

namespace {

constinit fi_ops g_fid_ops = ofi::FidOps{.close = ofi::close_shared<PeerSrx>, .control = ofi::control_shared};

constinit fi_ops_ep g_ep_ops = ofi::EpOps{};

constinit fi_ops_msg g_msg_ops = ofi::MsgOps{};

constinit fi_ops_tagged g_tagged_ops = ofi::TaggedOps{};

} // namespace

PeerSrx *peer_srx_of(struct fid *fid) noexcept
{
    return fid->ops == &g_fid_ops ? reinterpret_cast<PeerSrx *>(fid) : nullptr;
}

int open_peer_srx(ofi::Domain &domain, std::uint32_t version, fid_ep **srx, const void *context) noexcept
{
    const auto *const given = static_cast<const ofi::peer::SrxContext *>(context);
    std::unique_ptr<PeerSrx> opened(new (std::nothrow) PeerSrx(domain));
    if (!opened)
        return -FI_ENOMEM;
    if (given == nullptr || given->size < sizeof *given || given->srx == nullptr ||
        !opened->owner.attach(*given->srx, version)) {
        VMA_WARN(ep_ctrl, "FI_PEER without a struct fi_peer_srx_context of an owner, or one that lacks calls: refused");
        return -FI_EINVAL;
    }
    // A class of its own: endpoints of other types take it for no shared receive context of theirs.
    opened->fid.fid = {FI_CLASS_PEER_SRX, nullptr, &g_fid_ops};
    opened->fid.ops = &g_ep_ops;
    opened->fid.msg = &g_msg_ops;
    opened->fid.tagged = &g_tagged_ops;
    given->srx->peer_ops = &peer_ops(opened->owner.layout());
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *srx = &opened.release()->fid;
    return 0;
}

int open_peer_srx(ofi::Domain &domain, fid_ep **srx, const void *context) noexcept
{
    return open_peer_srx(domain, ofi::libfabric_version(), srx, context);
}

} // namespace vma::rdm
