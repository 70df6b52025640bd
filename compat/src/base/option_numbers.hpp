// SPDX-License-Identifier: BSD-2-Clause
// Numbers of socket options that the C library's headers, or those of an older kernel, don't have: Linux's
// asm-generic/socket.h, tcp.h, in.h and in6.h.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace vma::option {

#ifdef SO_RCVTIMEO_OLD
inline constexpr int kReceiveTimeoutOld = SO_RCVTIMEO_OLD;
inline constexpr int kSendTimeoutOld = SO_SNDTIMEO_OLD;
#else
inline constexpr int kReceiveTimeoutOld = SO_RCVTIMEO;
inline constexpr int kSendTimeoutOld = SO_SNDTIMEO;
#endif
#ifdef SO_RCVTIMEO_NEW
inline constexpr int kReceiveTimeoutNew = SO_RCVTIMEO_NEW;
inline constexpr int kSendTimeoutNew = SO_SNDTIMEO_NEW;
#else
inline constexpr int kReceiveTimeoutNew = 66;
inline constexpr int kSendTimeoutNew = 67;
#endif
#ifdef SO_TIMESTAMP_NEW
inline constexpr int kTimestampNew = SO_TIMESTAMP_NEW;
inline constexpr int kTimestampNsNew = SO_TIMESTAMPNS_NEW;
inline constexpr int kTimestampingNew = SO_TIMESTAMPING_NEW;
#else
inline constexpr int kTimestampNew = 63;
inline constexpr int kTimestampNsNew = 64;
inline constexpr int kTimestampingNew = 65;
#endif
#ifdef SO_BINDTOIFINDEX
inline constexpr int kBindToInterface = SO_BINDTOIFINDEX;
#else
inline constexpr int kBindToInterface = 62;
#endif
#ifdef SO_DETACH_REUSEPORT_BPF
inline constexpr int kDetachReusePortBpf = SO_DETACH_REUSEPORT_BPF;
#else
inline constexpr int kDetachReusePortBpf = 68;
#endif
#ifdef SO_BUF_LOCK
inline constexpr int kBufferLock = SO_BUF_LOCK;
#else
inline constexpr int kBufferLock = 72;
#endif
#ifdef SO_RESERVE_MEM
inline constexpr int kReserveMemory = SO_RESERVE_MEM;
#else
inline constexpr int kReserveMemory = 73;
#endif
#ifdef SO_TXREHASH
inline constexpr int kSendRehash = SO_TXREHASH;
#else
inline constexpr int kSendRehash = 74;
#endif
#ifdef TCP_INQ
inline constexpr int kTcpInq = TCP_INQ;
#else
inline constexpr int kTcpInq = 36;
#endif
#ifdef TCP_RTO_MAX_MS
inline constexpr int kTcpRtoMax = TCP_RTO_MAX_MS;
#else
inline constexpr int kTcpRtoMax = 44;
#endif
#ifdef TCP_RTO_MIN_US
inline constexpr int kTcpRtoMin = TCP_RTO_MIN_US;
#else
inline constexpr int kTcpRtoMin = 45;
#endif
#ifdef TCP_DELACK_MAX_US
inline constexpr int kTcpDelayedAckMax = TCP_DELACK_MAX_US;
#else
inline constexpr int kTcpDelayedAckMax = 46;
#endif
#ifdef IP_LOCAL_PORT_RANGE
inline constexpr int kLocalPortRange = IP_LOCAL_PORT_RANGE;
#else
inline constexpr int kLocalPortRange = 51;
#endif
#ifdef IPV6_FREEBIND
inline constexpr int kIpv6FreeBind = IPV6_FREEBIND;
#else
inline constexpr int kIpv6FreeBind = 78;
#endif

} // namespace vma::option
