// SPDX-License-Identifier: BSD-2-Clause
// What a device offers, as data, and the local device's. Nothing is decided here: hints.cpp checks hints against it,
// the objects check their arguments against the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma_stream.h>

#include "ofi/info/old_names.hpp"

namespace vma::ofi {

inline constexpr char kProviderName[] = "vma";
inline constexpr char kLocalName[] = "local"; // name of the device's fabric and of its domain

inline constexpr std::uint32_t kProviderVersion = FI_VERSION(0, 1);
inline constexpr std::uint32_t kProtocol = FI_VMA_SPECIFIC | 0x564d0001U;
inline constexpr std::uint32_t kVerbsProtocol = FI_VMA_SPECIFIC | 0x564d0002U;
inline constexpr std::uint32_t kStreamProtocol = FI_VMA_SPECIFIC | 0x564d0003U; // TCP as on every wire
inline constexpr std::uint32_t kUdpProtocol = FI_VMA_SPECIFIC | 0x564d0004U;    // and UDP
inline constexpr std::uint32_t kRdmProtocol = FI_VMA_SPECIFIC | 0x564d0005U;
inline constexpr std::uint32_t kProtocolVersion = 1;

inline constexpr std::size_t kCmDataSize = 256;  // private data of connect, accept and reject, bytes
inline constexpr std::size_t kInjectSize = 4096; // bytes
inline constexpr std::size_t kIovLimit = 4;      // more overruns ofi_rxm 1.17's stack (rxm_direct_send)
inline constexpr std::size_t kRmaIovLimit = 4;
inline constexpr std::size_t kDefaultQueueSize = 256; // operations, transmit and receive
inline constexpr std::size_t kMaxQueueSize = 4096;    // the most that hints may ask for
// Of reliable datagrams: an MPI program begins as many receives and sends as it likes before it waits for one, and Open
// MPI asks again for ever where one is refused. What is not used takes no memory; sends take some of the peer's.
inline constexpr std::size_t kRdmRxSize = 16384;
inline constexpr std::size_t kRdmTxSize = kMaxQueueSize;
inline constexpr std::size_t kMaxMessageSize = SIZE_MAX / 2;
inline constexpr std::size_t kMrKeySize = 8;
inline constexpr std::size_t kMrIovLimit = 4;
inline constexpr std::size_t kCqDataSize = 8;
inline constexpr std::size_t kAtomicBytes = 4096; // operands of one atomic operation, at most

inline constexpr std::uint64_t kTxCaps = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
inline constexpr std::uint64_t kRxCaps = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT;
inline constexpr std::uint64_t kDomainCaps = FI_LOCAL_COMM;
inline constexpr std::uint64_t kCaps = kTxCaps | kRxCaps | kDomainCaps;

inline constexpr std::size_t kMaxDatagramSize = 65507; // as UDP over IPv4

inline constexpr std::uint64_t kDgramTxCaps = FI_MSG | FI_SEND | FI_MULTICAST;
inline constexpr std::uint64_t kDgramRxCaps = FI_MSG | FI_RECV | FI_SOURCE;
inline constexpr std::uint64_t kDgramCaps = kDgramTxCaps | kDgramRxCaps | kDomainCaps;
inline constexpr std::uint64_t kAskedDgramCaps = FI_SOURCE_ERR; // only for who asks: they change what a program sees
inline constexpr std::uint64_t kDgramTxOpFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;

inline constexpr std::uint64_t kRdmTxCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
inline constexpr std::uint64_t kRdmRxCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                                            FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE |
                                            FI_RMA_EVENT;
inline constexpr std::uint64_t kRdmCaps = kRdmTxCaps | kRdmRxCaps | kDomainCaps;
// Open MPI asks for it whatever hosts its ranks are on. Who does and then means another host is told so
// (rdm/peers.cpp).
inline constexpr std::uint64_t kAskedRdmDomainCaps = FI_PEER | FI_AV_USER_ID;
inline constexpr std::uint64_t kAskedRdmCaps = FI_REMOTE_COMM | kAskedRdmDomainCaps;
inline constexpr std::uint64_t kTagFormat = 0xaaaaaaaaaaaaaaaa; // fi_endpoint(3): no field, each bit stands for itself

inline constexpr std::uint64_t kTxOpFlags =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
inline constexpr std::uint64_t kRxOpFlags = FI_COMPLETION;
inline constexpr std::uint64_t kRdmTxOpFlags = kTxOpFlags | FI_MATCH_COMPLETE;
inline constexpr std::uint64_t kRdmRxOpFlags = kRxOpFlags | FI_MULTI_RECV;

inline constexpr std::uint64_t kMessageOrder =
    kOrderStrict | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW;
inline constexpr std::uint64_t kRdmOrder =
    kMessageOrder | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
inline constexpr std::uint64_t kTxCompletionOrder = kOrderStrict;
inline constexpr std::uint64_t kRxCompletionOrder = kOrderStrict | kOrderData;

// mr_mode bits that a domain honours when it is opened with them. None of them is ever required.
inline constexpr int kMrModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

// A type of endpoint as a number: FI_EP_VMA_STREAM is none of the enumeration's, so it must not be read as one. Without
// attributes FI_EP_UNSPEC.
inline std::uint32_t endpoint_type(const fi_ep_attr *attr) noexcept
{
    std::uint32_t type = FI_EP_UNSPEC;
    if (attr != nullptr)
        std::memcpy(&type, &attr->type, sizeof type);
    return type;
}

// What a device offers for one type of endpoint. Strings are the owner's.
struct Offer {
    const char *fabric;
    const char *name;   // of the domain
    std::uint64_t caps; // without those of asked_caps
    std::uint64_t asked_caps;
    std::uint64_t asked_domain_caps; // those of them that are a domain's, where they may be asked for too
    std::uint64_t tx_caps;
    std::uint64_t rx_caps;
    std::uint64_t tx_op_flags;
    std::uint64_t rx_op_flags;
    std::uint64_t mode;    // what the program has to do for some of it: granted to those that say they do
    std::size_t most_size; // that hints may ask for as a queue's size
    fi_tx_attr tx;
    fi_rx_attr rx;
    fi_ep_attr ep;
    fi_domain_attr domain; // its mr_mode is what the device needs
};
extern const Offer kMsgOffer;
extern const Offer kDgramOffer;
extern const Offer kRdmOffer;

} // namespace vma::ofi
