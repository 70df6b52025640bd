// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/info/attr.hpp"

namespace vma::ofi {
namespace {

constexpr fi_tx_attr kMsgTxAttr = {
    .caps = kTxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = kMessageOrder,
    .comp_order = kTxCompletionOrder,
    .inject_size = kInjectSize,
    .size = kDefaultQueueSize,
    .iov_limit = kIovLimit,
    .rma_iov_limit = kRmaIovLimit,
    .tclass = FI_TC_UNSPEC,
};

constexpr fi_rx_attr kMsgRxAttr = {
    .caps = kRxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = kMessageOrder,
    .comp_order = kRxCompletionOrder,
    .total_buffered_recv = 0,
    .size = kDefaultQueueSize,
    .iov_limit = kIovLimit,
};

constexpr fi_ep_attr kMsgEpAttr = {
    .type = FI_EP_MSG,
    .protocol = kProtocol,
    .protocol_version = kProtocolVersion,
    .max_msg_size = kMaxMessageSize,
    .msg_prefix_size = 0,
    .max_order_raw_size = kMaxMessageSize,
    .max_order_war_size = kMaxMessageSize,
    .max_order_waw_size = kMaxMessageSize,
    .mem_tag_format = 0,
    .tx_ctx_cnt = 1,
    .rx_ctx_cnt = 1,
    .auth_key_size = 0,
    .auth_key = nullptr,
};

constexpr fi_tx_attr kDgramTxAttr = {
    .caps = kDgramTxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = FI_ORDER_SAS,
    .comp_order = kOrderStrict,
    .inject_size = kMaxDatagramSize, // every datagram is copied before the call returns
    .size = kDefaultQueueSize,
    .iov_limit = kIovLimit,
    .rma_iov_limit = 0,
    .tclass = FI_TC_UNSPEC,
};

constexpr fi_rx_attr kDgramRxAttr = {
    .caps = kDgramRxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = FI_ORDER_SAS,
    .comp_order = kOrderStrict,
    .total_buffered_recv = 0,
    .size = kDefaultQueueSize,
    .iov_limit = kIovLimit,
};

constexpr fi_ep_attr kDgramEpAttr = {
    .type = FI_EP_DGRAM,
    .protocol = kProtocol,
    .protocol_version = kProtocolVersion,
    .max_msg_size = kMaxDatagramSize,
    .msg_prefix_size = 0,
    .max_order_raw_size = 0,
    .max_order_war_size = 0,
    .max_order_waw_size = 0,
    .mem_tag_format = 0,
    .tx_ctx_cnt = 1,
    .rx_ctx_cnt = 1,
    .auth_key_size = 0,
    .auth_key = nullptr,
};

// Completions come in no order: a long message that its receiver copies ends after the short ones behind it.
constexpr fi_tx_attr kRdmTxAttr = {
    .caps = kRdmTxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = kRdmOrder,
    .comp_order = kOrderNone,
    .inject_size = kInjectSize,
    .size = kRdmTxSize,
    .iov_limit = kIovLimit,
    .rma_iov_limit = kRmaIovLimit,
    .tclass = FI_TC_UNSPEC,
};

constexpr fi_rx_attr kRdmRxAttr = {
    .caps = kRdmRxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = kRdmOrder,
    .comp_order = kOrderNone,
    .total_buffered_recv = 0,
    .size = kRdmRxSize,
    .iov_limit = kIovLimit,
};

constexpr fi_ep_attr kRdmEpAttr = {
    .type = FI_EP_RDM,
    .protocol = kRdmProtocol,
    .protocol_version = kProtocolVersion,
    .max_msg_size = kMaxMessageSize,
    .msg_prefix_size = 0,
    .max_order_raw_size = kMaxMessageSize,
    .max_order_war_size = kMaxMessageSize,
    .max_order_waw_size = kMaxMessageSize,
    .mem_tag_format = kTagFormat,
    .tx_ctx_cnt = 1,
    .rx_ctx_cnt = 1,
    .auth_key_size = 0,
    .auth_key = nullptr,
};

// Data progress is manual because no thread of ours runs: whoever reads a queue moves the data. Control progress counts
// as automatic: all that it leads to is an event, and reading the event queue for it is what makes the progress.
// Assigned, as libfabric 2.x has members that 1.17 lacks; zero is right for them, and for what is not said here.
constexpr fi_domain_attr domain_attr() noexcept
{
    fi_domain_attr attr{};
    attr.threading = FI_THREAD_SAFE;
    attr.control_progress = FI_PROGRESS_AUTO;
    attr.data_progress = FI_PROGRESS_MANUAL;
    attr.resource_mgmt = FI_RM_ENABLED;
    attr.av_type = FI_AV_UNSPEC;
    attr.mr_key_size = kMrKeySize;
    attr.cq_data_size = kCqDataSize;
    attr.cq_cnt = 65536;
    attr.ep_cnt = 65536;
    attr.tx_ctx_cnt = 65536;
    attr.rx_ctx_cnt = 65536;
    attr.max_ep_tx_ctx = 1;
    attr.max_ep_rx_ctx = 1;
    attr.max_ep_srx_ctx = 1;
    attr.cntr_cnt = 65536;
    attr.mr_iov_limit = kMrIovLimit;
    attr.caps = kDomainCaps;
    attr.max_err_data = kCmDataSize;
    attr.mr_cnt = 65536;
    attr.tclass = FI_TC_UNSPEC;
    return attr;
}

} // namespace

constinit const Offer kMsgOffer = {
    .fabric = kLocalName,
    .name = kLocalName,
    .caps = kCaps,
    .asked_caps = 0,
    .asked_domain_caps = 0,
    .tx_caps = kTxCaps,
    .rx_caps = kRxCaps,
    .tx_op_flags = kTxOpFlags,
    .rx_op_flags = kRxOpFlags,
    .mode = 0,
    .most_size = kMaxQueueSize,
    .tx = kMsgTxAttr,
    .rx = kMsgRxAttr,
    .ep = kMsgEpAttr,
    .domain = domain_attr(),
};

constinit const Offer kDgramOffer = {
    .fabric = kLocalName,
    .name = kLocalName,
    .caps = kDgramCaps,
    .asked_caps = kAskedDgramCaps,
    .asked_domain_caps = 0,
    .tx_caps = kDgramTxCaps,
    .rx_caps = kDgramRxCaps | kAskedDgramCaps,
    .tx_op_flags = kDgramTxOpFlags,
    .rx_op_flags = kRxOpFlags,
    .mode = 0,
    .most_size = kMaxQueueSize,
    .tx = kDgramTxAttr,
    .rx = kDgramRxAttr,
    .ep = kDgramEpAttr,
    .domain = domain_attr(),
};

constinit const Offer kRdmOffer = {
    .fabric = kLocalName,
    .name = kLocalName,
    .caps = kRdmCaps,
    .asked_caps = kAskedRdmCaps,
    .asked_domain_caps = kAskedRdmDomainCaps,
    .tx_caps = kRdmTxCaps,
    .rx_caps = kRdmRxCaps,
    .tx_op_flags = kRdmTxOpFlags,
    .rx_op_flags = kRdmRxOpFlags,
    .mode = 0,
    .most_size = kMaxQueueSize,
    .tx = kRdmTxAttr,
    .rx = kRdmRxAttr,
    .ep = kRdmEpAttr,
    .domain = domain_attr(),
};

} // namespace vma::ofi
