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
    .comp_order = FI_ORDER_STRICT,
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
    .comp_order = FI_ORDER_STRICT,
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
    .comp_order = FI_ORDER_NONE,
    .inject_size = kInjectSize,
    .size = kDefaultQueueSize,
    .iov_limit = kIovLimit,
    .rma_iov_limit = kRmaIovLimit,
    .tclass = FI_TC_UNSPEC,
};

constexpr fi_rx_attr kRdmRxAttr = {
    .caps = kRdmRxCaps,
    .mode = 0,
    .op_flags = 0,
    .msg_order = kRdmOrder,
    .comp_order = FI_ORDER_NONE,
    .total_buffered_recv = 0,
    .size = kDefaultQueueSize,
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
constexpr fi_domain_attr kDomainAttr = {
    .domain = nullptr,
    .name = nullptr,
    .threading = FI_THREAD_SAFE,
    .control_progress = FI_PROGRESS_AUTO,
    .data_progress = FI_PROGRESS_MANUAL,
    .resource_mgmt = FI_RM_ENABLED,
    .av_type = FI_AV_UNSPEC,
    .mr_mode = 0,
    .mr_key_size = kMrKeySize,
    .cq_data_size = kCqDataSize,
    .cq_cnt = 65536,
    .ep_cnt = 65536,
    .tx_ctx_cnt = 65536,
    .rx_ctx_cnt = 65536,
    .max_ep_tx_ctx = 1,
    .max_ep_rx_ctx = 1,
    .max_ep_stx_ctx = 0,
    .max_ep_srx_ctx = 1,
    .cntr_cnt = 65536,
    .mr_iov_limit = kMrIovLimit,
    .caps = kDomainCaps,
    .mode = 0,
    .auth_key = nullptr,
    .auth_key_size = 0,
    .max_err_data = kCmDataSize,
    .mr_cnt = 65536,
    .tclass = FI_TC_UNSPEC,
};

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
    .domain = kDomainAttr,
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
    .domain = kDomainAttr,
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
    .domain = kDomainAttr,
};

} // namespace vma::ofi
