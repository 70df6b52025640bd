// SPDX-License-Identifier: BSD-2-Clause
// Flow rules of the simulated NIC: taken, kept, given back. No frame is steered by them yet.
#include "contrib/lab/sim/world.hpp"

namespace vma::sim {
namespace {

// Whether the specs behind the attributes are as many, and as long, as they say.
bool well_formed(const ibv_flow_attr &attr)
{
    if (attr.size < sizeof(attr))
        return false;
    const auto *bytes = reinterpret_cast<const std::byte *>(&attr);
    std::size_t at = sizeof(attr);
    for (unsigned i = 0; i < attr.num_of_specs; ++i) {
        ibv_flow_spec_action_drop spec; // the shortest: what all specs begin with
        if (attr.size - at < sizeof(spec))
            return false;
        std::memcpy(&spec, bytes + at, sizeof(spec));
        if (spec.size < sizeof(spec) || spec.size > attr.size - at)
            return false;
        at += spec.size;
    }
    return at == attr.size;
}

} // namespace

ibv_flow *create_flow(ibv_qp *queue, ibv_flow_attr *attr)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    if (const int error = take_fault("create_flow"))
        return null_errno(error);
    Qp &qp = *of(queue);
    if (nic(qp.context).removed)
        return null_errno(EIO);
    if (qp.qp_type != IBV_QPT_RAW_PACKET && qp.qp_type != IBV_QPT_UD)
        return null_errno(EINVAL);
    if (attr->comp_mask != 0 || attr->port != 1 || !well_formed(*attr))
        return null_errno(EINVAL);
    auto *made = new Flow;
    static_cast<ibv_flow &>(*made) = {};
    made->context = qp.context;
    made->qp = &qp;
    made->nic = &nic(qp.context);
    const auto *bytes = reinterpret_cast<const std::byte *>(attr);
    made->rule.assign(bytes, bytes + attr->size);
    ++qp.flows;
    w.flows.push_back(made);
    return made;
}

int destroy_flow(ibv_flow *flow)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    auto *gone = static_cast<Flow *>(flow);
    --gone->qp->flows;
    std::erase(w.flows, gone);
    delete gone;
    return 0;
}

std::vector<std::vector<std::byte>> flows(unsigned device)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    std::vector<std::vector<std::byte>> found;
    for (const Flow *flow : w.flows) {
        if (flow->nic->place == device)
            found.push_back(flow->rule);
    }
    return found;
}

} // namespace vma::sim
