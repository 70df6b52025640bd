// SPDX-License-Identifier: BSD-2-Clause
// Hints against attributes. Every check names the hint that failed, because "no data available" is all that a program
// is told otherwise.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "core/log.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/getinfo.hpp"

namespace vma::ofi {
namespace {

constexpr std::uint64_t kMessageDirections = FI_SEND | FI_RECV;
constexpr std::uint64_t kRmaDirections = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// Collects one verdict; each check is true where it passes.
class Verdict
{
public:
    bool subset(const char *hint, std::uint64_t asked, std::uint64_t offered)
    {
        return judge((asked & ~offered) == 0, hint, asked, offered);
    }
    bool at_most(const char *hint, std::uint64_t asked, std::uint64_t offered)
    {
        return judge(asked <= offered, hint, asked, offered);
    }
    bool one_of(const char *hint, std::uint64_t asked, std::uint64_t offered)
    {
        return judge(asked == 0 || asked == offered, hint, asked, offered);
    }
    bool name(const char *hint, const char *asked, const char *offered)
    {
        if (asked == nullptr || std::strcmp(asked, offered) == 0)
            return true;
        VMA_DEBUG(core, "hint %s: asked for \"%s\", this is \"%s\"", hint, asked, offered);
        return false;
    }

private:
    static bool judge(bool fits, const char *hint, std::uint64_t asked, std::uint64_t offered)
    {
        if (!fits)
            VMA_DEBUG(core, "hint %s: asked for 0x%" PRIx64 ", offered is 0x%" PRIx64, hint, asked, offered);
        return fits;
    }
};

bool address_format_fits(Verdict &verdict, std::uint32_t format)
{
    return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6 || format == FI_ADDR_STR ||
           verdict.one_of("addr_format", format, FI_SOCKADDR);
}

bool tx_fits(Verdict &verdict, const Offer &offer, const fi_tx_attr *hint)
{
    if (hint == nullptr)
        return true;
    // Receive bits in the caps of a transmit context (and the other way round) mean nothing and are common.
    return verdict.subset("tx_attr->caps", hint->caps, offer.caps) &&
           verdict.subset("tx_attr->op_flags", hint->op_flags, offer.tx_op_flags) &&
           verdict.subset("tx_attr->msg_order", hint->msg_order, offer.tx.msg_order) &&
           verdict.subset("tx_attr->comp_order", hint->comp_order, offer.tx.comp_order) &&
           verdict.at_most("tx_attr->inject_size", hint->inject_size, offer.tx.inject_size) &&
           verdict.at_most("tx_attr->size", hint->size, offer.most_size) &&
           verdict.at_most("tx_attr->iov_limit", hint->iov_limit, offer.tx.iov_limit) &&
           verdict.at_most("tx_attr->rma_iov_limit", hint->rma_iov_limit, offer.tx.rma_iov_limit);
}

bool rx_fits(Verdict &verdict, const Offer &offer, const fi_rx_attr *hint)
{
    if (hint == nullptr)
        return true;
    return verdict.subset("rx_attr->caps", hint->caps, offer.caps) &&
           verdict.subset("rx_attr->op_flags", hint->op_flags, offer.rx_op_flags) &&
           verdict.subset("rx_attr->msg_order", hint->msg_order, offer.rx.msg_order) &&
           verdict.subset("rx_attr->comp_order", hint->comp_order, offer.rx.comp_order) &&
           verdict.at_most("rx_attr->total_buffered_recv", hint->total_buffered_recv, 0) &&
           verdict.at_most("rx_attr->size", hint->size, std::max(offer.most_size, offer.rx.size)) &&
           verdict.at_most("rx_attr->iov_limit", hint->iov_limit, offer.rx.iov_limit);
}

bool ep_fits(Verdict &verdict, const fi_ep_attr &offer, const fi_ep_attr *hint)
{
    if (hint == nullptr)
        return true;
    const bool shared_receive =
        hint->rx_ctx_cnt == FI_SHARED_CONTEXT && endpoint_type(&offer) == FI_EP_MSG; // others have their own
    return verdict.one_of("ep_attr->type", endpoint_type(hint), endpoint_type(&offer)) &&
           verdict.one_of("ep_attr->protocol", hint->protocol, offer.protocol) &&
           verdict.at_most("ep_attr->protocol_version", hint->protocol_version, offer.protocol_version) &&
           verdict.at_most("ep_attr->max_msg_size", hint->max_msg_size, offer.max_msg_size) &&
           verdict.at_most("ep_attr->max_order_raw_size", hint->max_order_raw_size, offer.max_order_raw_size) &&
           verdict.at_most("ep_attr->max_order_war_size", hint->max_order_war_size, offer.max_order_war_size) &&
           verdict.at_most("ep_attr->max_order_waw_size", hint->max_order_waw_size, offer.max_order_waw_size) &&
           verdict.at_most("ep_attr->tx_ctx_cnt", hint->tx_ctx_cnt, offer.tx_ctx_cnt) &&
           (shared_receive || verdict.at_most("ep_attr->rx_ctx_cnt", hint->rx_ctx_cnt, offer.rx_ctx_cnt)) &&
           verdict.at_most("ep_attr->auth_key_size", hint->auth_key_size, 0);
}

bool domain_counts_fit(Verdict &verdict, const fi_domain_attr &offer, const fi_domain_attr &hint)
{
    return verdict.at_most("domain_attr->mr_key_size", hint.mr_key_size, offer.mr_key_size) &&
           verdict.at_most("domain_attr->cq_data_size", hint.cq_data_size, offer.cq_data_size) &&
           verdict.at_most("domain_attr->cq_cnt", hint.cq_cnt, offer.cq_cnt) &&
           verdict.at_most("domain_attr->ep_cnt", hint.ep_cnt, offer.ep_cnt) &&
           verdict.at_most("domain_attr->tx_ctx_cnt", hint.tx_ctx_cnt, offer.tx_ctx_cnt) &&
           verdict.at_most("domain_attr->rx_ctx_cnt", hint.rx_ctx_cnt, offer.rx_ctx_cnt) &&
           verdict.at_most("domain_attr->max_ep_tx_ctx", hint.max_ep_tx_ctx, offer.max_ep_tx_ctx) &&
           verdict.at_most("domain_attr->max_ep_rx_ctx", hint.max_ep_rx_ctx, offer.max_ep_rx_ctx) &&
           verdict.at_most("domain_attr->max_ep_stx_ctx", hint.max_ep_stx_ctx, offer.max_ep_stx_ctx) &&
           verdict.at_most("domain_attr->max_ep_srx_ctx", hint.max_ep_srx_ctx, offer.max_ep_srx_ctx) &&
           verdict.at_most("domain_attr->cntr_cnt", hint.cntr_cnt, offer.cntr_cnt) &&
           verdict.at_most("domain_attr->mr_iov_limit", hint.mr_iov_limit, offer.mr_iov_limit) &&
           verdict.at_most("domain_attr->mr_cnt", hint.mr_cnt, offer.mr_cnt) &&
           verdict.at_most("domain_attr->max_err_data", hint.max_err_data, offer.max_err_data) &&
           verdict.at_most("domain_attr->auth_key_size", hint.auth_key_size, 0);
}

std::uint64_t granted_caps(const Offer &offer, std::uint64_t asked)
{
    if (asked == 0)
        return offer.caps;
    std::uint64_t caps = asked | offer.domain.caps;
    if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessageDirections) == 0)
        caps |= kMessageDirections;
    if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kRmaDirections) == 0)
        caps |= kRmaDirections;
    return caps;
}

// What the hints ask for at either place is granted at both.
std::uint64_t granted_domain_caps(const Offer &offer, const fi_info &hints)
{
    const std::uint64_t asked = hints.caps | (hints.domain_attr != nullptr ? hints.domain_attr->caps : 0);
    return asked & offer.asked_domain_caps;
}

bool is_old_mr_mode(int mode)
{
    return mode == kMrBasic || mode == kMrScalable;
}

bool takes_bits(std::uint32_t version)
{
    return FI_VERSION_GE(version, FI_VERSION(1, 5));
}

// What the device needs of a program with these capabilities: keys and addresses concern who lets its memory be
// accessed.
int needed_mr_mode(const Offer &offer, std::uint64_t caps)
{
    const bool accessed = (caps & (FI_RMA | FI_ATOMIC)) != 0;
    return accessed ? offer.domain.mr_mode : offer.domain.mr_mode & FI_MR_LOCAL;
}

// Bits that a device doesn't need do no harm. The two values of old mean a whole mode and stand alone; before API 1.5
// there was nothing else. Without attributes of a domain nothing is promised or refused, as without hints.
bool mr_mode_fits(Verdict &verdict, std::uint32_t version, const Offer &offer, const fi_info &hints)
{
    if (hints.domain_attr == nullptr && takes_bits(version))
        return true;
    const int mode = hints.domain_attr != nullptr ? hints.domain_attr->mr_mode : kMrUnspec;
    const int needed = needed_mr_mode(offer, granted_caps(offer, hints.caps));
    const bool local = (needed & FI_MR_LOCAL) == 0 || (hints.mode & kLocalMr) != 0;
    if (mode == kMrBasic || (mode == kMrUnspec && !takes_bits(version)))
        return verdict.subset("mode (FI_LOCAL_MR)", local ? 0 : kLocalMr, 0);
    if (mode == kMrScalable)
        return verdict.subset("domain_attr->mr_mode (needed)", static_cast<unsigned>(needed), 0);
    const bool bits = takes_bits(version) && (mode & (kMrBasic | kMrScalable)) == 0;
    return verdict.subset("domain_attr->mr_mode", bits ? 0 : static_cast<unsigned>(mode), 0) &&
           verdict.subset("domain_attr->mr_mode (needed)", static_cast<unsigned>(needed), static_cast<unsigned>(mode));
}

bool domain_fits(Verdict &verdict, const Offer &offer, const fi_domain_attr *hint)
{
    if (hint == nullptr)
        return true;
    return verdict.name("domain_attr->name", hint->name, offer.name) &&
           verdict.at_most("domain_attr->threading", hint->threading, FI_THREAD_ENDPOINT) &&
           verdict.at_most("domain_attr->control_progress", hint->control_progress, FI_PROGRESS_MANUAL) &&
           verdict.one_of("domain_attr->data_progress", hint->data_progress, FI_PROGRESS_MANUAL) &&
           verdict.at_most("domain_attr->av_type", hint->av_type, FI_AV_TABLE) &&
           verdict.subset("domain_attr->caps", hint->caps, offer.domain.caps | offer.asked_domain_caps) &&
           domain_counts_fit(verdict, offer.domain, *hint);
}

// Remote CQ data of a write takes a posted receive, where the device says so.
bool cq_data_fits(Verdict &verdict, const Offer &offer, const fi_info &hints)
{
    const std::size_t asked = hints.domain_attr != nullptr ? hints.domain_attr->cq_data_size : 0;
    const bool rma = (granted_caps(offer, hints.caps) & FI_RMA) != 0;
    return verdict.subset("mode (FI_RX_CQ_DATA)", asked != 0 && rma ? offer.mode & FI_RX_CQ_DATA : 0, hints.mode);
}

// A hint of zero leaves the offered value.
template <typename Value> void prefer(Value &value, Value hint)
{
    if (hint != Value{})
        value = hint;
}

int granted_mr_mode(std::uint32_t version, const Offer &offer, std::uint64_t caps, const fi_domain_attr *hint)
{
    const int asked = hint != nullptr ? hint->mr_mode : kMrUnspec;
    if (is_old_mr_mode(asked))
        return asked;
    const int needed = needed_mr_mode(offer, caps);
    if (takes_bits(version))
        return needed;
    return needed != 0 ? kMrBasic : kMrScalable;
}

} // namespace

bool hints_fit(std::uint32_t version, const Offer &offer, const fi_info &hints) noexcept
{
    Verdict verdict;
    const bool source_errors = (hints.caps & FI_SOURCE_ERR) != 0;
    return verdict.subset("caps", hints.caps, offer.caps | offer.asked_caps) &&
           verdict.subset("caps (FI_SOURCE_ERR without FI_SOURCE)", source_errors ? FI_SOURCE : 0, hints.caps) &&
           address_format_fits(verdict, hints.addr_format) && ep_fits(verdict, offer.ep, hints.ep_attr) &&
           tx_fits(verdict, offer, hints.tx_attr) && rx_fits(verdict, offer, hints.rx_attr) &&
           domain_fits(verdict, offer, hints.domain_attr) && mr_mode_fits(verdict, version, offer, hints) &&
           cq_data_fits(verdict, offer, hints) &&
           verdict.name("fabric_attr->name", hints.fabric_attr ? hints.fabric_attr->name : nullptr, offer.fabric);
}

void apply_hints(std::uint32_t version, const Offer &offer, const fi_info &hints, fi_info &info) noexcept
{
    const std::uint64_t domain_caps = granted_domain_caps(offer, hints);
    info.caps = granted_caps(offer, hints.caps) | domain_caps;
    info.domain_attr->caps |= domain_caps;
    info.tx_attr->caps = info.caps & offer.tx_caps;
    info.rx_attr->caps = info.caps & offer.rx_caps;
    info.handle = hints.handle;
    if (hints.tx_attr != nullptr) {
        info.tx_attr->op_flags = hints.tx_attr->op_flags;
        prefer(info.tx_attr->size, hints.tx_attr->size);
    }
    if (hints.rx_attr != nullptr) {
        info.rx_attr->op_flags = hints.rx_attr->op_flags;
        prefer(info.rx_attr->size, hints.rx_attr->size);
    }
    if (hints.ep_attr != nullptr)
        prefer(info.ep_attr->rx_ctx_cnt, hints.ep_attr->rx_ctx_cnt);
    if (hints.fabric_attr != nullptr)
        info.fabric_attr->fabric = hints.fabric_attr->fabric;
    info.domain_attr->mr_mode = granted_mr_mode(version, offer, info.caps, hints.domain_attr);
    info.mode = offer.mode & hints.mode;
    if (info.mode != offer.mode && (info.caps & FI_RMA) != 0)
        info.domain_attr->cq_data_size = 0; // FI_RX_CQ_DATA is the price of it
    if (hints.domain_attr != nullptr) {
        info.domain_attr->domain = hints.domain_attr->domain;
        prefer(info.domain_attr->control_progress, hints.domain_attr->control_progress);
        prefer(info.domain_attr->threading, hints.domain_attr->threading);
        prefer(info.domain_attr->av_type, hints.domain_attr->av_type);
    }
}

} // namespace vma::ofi
