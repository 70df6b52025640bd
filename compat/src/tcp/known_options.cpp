// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/tcp/known_options.hpp"

#include <algorithm>
#include <iterator>

#include "compat/src/base/option_numbers.hpp"

namespace vma::sock::tcp {

namespace {

constexpr int kVmaOptions[] = {2800, 2899}; // SO_VMA_*: the library's own

// Those without an effect on TCP, and those of listeners that say who gets a connection, are here too.
constexpr int kSocketOptions[] = {SO_DEBUG,
                                  SO_REUSEADDR,
                                  SO_DONTROUTE,
                                  SO_BROADCAST,
                                  SO_SNDBUF,
                                  SO_RCVBUF,
                                  SO_KEEPALIVE,
                                  SO_NO_CHECK,
                                  SO_PRIORITY,
                                  SO_LINGER,
                                  SO_BSDCOMPAT,
                                  SO_REUSEPORT,
                                  SO_PASSCRED,
                                  SO_PASSSEC,
                                  SO_RXQ_OVFL,
                                  SO_SELECT_ERR_QUEUE,
                                  SO_SNDLOWAT,
                                  option::kReceiveTimeoutOld,
                                  option::kSendTimeoutOld,
                                  SO_BINDTODEVICE,
                                  SO_DETACH_FILTER,
                                  SO_SNDBUFFORCE,
                                  SO_RCVBUFFORCE,
                                  SO_MARK,
                                  SO_LOCK_FILTER,
                                  SO_BUSY_POLL,
                                  SO_MAX_PACING_RATE,
                                  SO_INCOMING_CPU,
                                  SO_ATTACH_REUSEPORT_CBPF,
                                  SO_ATTACH_REUSEPORT_EBPF,
                                  SO_CNX_ADVICE,
                                  option::kBindToInterface,
                                  option::kReceiveTimeoutNew,
                                  option::kSendTimeoutNew,
                                  option::kDetachReusePortBpf,
                                  SO_PREFER_BUSY_POLL,
                                  SO_BUSY_POLL_BUDGET,
                                  option::kBufferLock,
                                  option::kReserveMemory,
                                  option::kSendRehash};

constexpr int kTcpOptions[] = {TCP_NODELAY,
                               TCP_MAXSEG,
                               TCP_CORK,
                               TCP_KEEPIDLE,
                               TCP_KEEPINTVL,
                               TCP_KEEPCNT,
                               TCP_SYNCNT,
                               TCP_LINGER2,
                               TCP_DEFER_ACCEPT,
                               TCP_WINDOW_CLAMP,
                               TCP_QUICKACK,
                               TCP_CONGESTION,
                               TCP_THIN_LINEAR_TIMEOUTS,
                               TCP_THIN_DUPACK,
                               TCP_USER_TIMEOUT,
                               TCP_FASTOPEN,
                               TCP_NOTSENT_LOWAT,
                               TCP_SAVE_SYN,
                               TCP_FASTOPEN_CONNECT,
                               TCP_FASTOPEN_KEY,
                               TCP_FASTOPEN_NO_COOKIE,
                               option::kTcpInq,
                               option::kTcpRtoMax,
                               option::kTcpRtoMin,
                               option::kTcpDelayedAckMax};

constexpr int kIpOptions[] = {IP_TOS,
                              IP_TTL,
                              IP_MTU_DISCOVER,
                              IP_RECVERR,
                              IP_FREEBIND,
                              IP_TRANSPARENT,
                              IP_BIND_ADDRESS_NO_PORT,
                              option::kLocalPortRange,
                              IP_RECVTTL,
                              IP_RECVTOS,
                              IP_PKTINFO,
                              IP_MULTICAST_IF,
                              IP_MULTICAST_TTL,
                              IP_MULTICAST_LOOP,
                              IP_MULTICAST_ALL};

constexpr int kIpv6Options[] = {IPV6_UNICAST_HOPS, IPV6_MTU_DISCOVER,     IPV6_RECVERR,        IPV6_V6ONLY,
                                IPV6_TCLASS,       IPV6_ADDR_PREFERENCES, IPV6_TRANSPARENT,    option::kIpv6FreeBind,
                                IPV6_MTU,          IPV6_MULTICAST_IF,     IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP,
                                IPV6_AUTOFLOWLABEL};

// The reasons stand in the table itself: a pointer to each would have to be written by the loader in each process.
struct KernelOption {
    int level;
    int name;
    char reason[20];
    Heir heir = Heir::kLibrary; // what is unread has come before the option; kAnybody: it counts for that, too
    bool is_switch = false;     // 0 is off
};

constexpr const char *kUnknown = "an option that the library does not know";

constexpr KernelOption kKernelOptions[] = {
    {SOL_SOCKET, SO_ZEROCOPY, "SO_ZEROCOPY", Heir::kLibrary, true},
    {SOL_SOCKET, SO_TIMESTAMP, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, SO_TIMESTAMPNS, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, SO_TIMESTAMPING, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, option::kTimestampNew, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, option::kTimestampNsNew, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, option::kTimestampingNew, "receive time stamps", Heir::kLibrary, true},
    {SOL_SOCKET, SO_ATTACH_FILTER, "a socket filter"},
    {SOL_SOCKET, SO_ATTACH_BPF, "a socket filter"},
    {SOL_SOCKET, SO_RCVLOWAT, "SO_RCVLOWAT", Heir::kAnybody},
    {SOL_SOCKET, SO_PEEK_OFF, "SO_PEEK_OFF"},
    {SOL_SOCKET, SO_OOBINLINE, "SO_OOBINLINE", Heir::kLibrary, true},
    {IPPROTO_TCP, TCP_ULP, "TCP_ULP", Heir::kAnybody},
    {IPPROTO_TCP, TCP_REPAIR, "TCP_REPAIR", Heir::kAnybody},
    {IPPROTO_TCP, TCP_MD5SIG, "TCP_MD5SIG", Heir::kAnybody},
    {IPPROTO_TCP, TCP_MD5SIG_EXT, "TCP_MD5SIG", Heir::kAnybody},
};

template <typename List> bool has(const List &list, int name)
{
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_known(int level, int name)
{
    switch (level) {
    case SOL_SOCKET:
        return has(kSocketOptions, name) || (name >= kVmaOptions[0] && name <= kVmaOptions[1]);
    case IPPROTO_TCP:
        return has(kTcpOptions, name);
    case IPPROTO_IP:
        return has(kIpOptions, name);
    case IPPROTO_IPV6:
        return has(kIpv6Options, name);
    default:
        return false;
    }
}

// Of other levels the kernel's socket has no options, or has them once TCP_ULP has brought them.
bool is_level_of_streams(int level)
{
    return level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP || level == IPPROTO_IPV6 ||
           level == IPPROTO_UDP;
}

} // namespace

OptionRule rule_of_option(int level, int name)
{
    const auto *const found = std::find_if(std::begin(kKernelOptions), std::end(kKernelOptions),
                                           [=](const KernelOption &o) { return o.level == level && o.name == name; });
    if (found != std::end(kKernelOptions))
        return {true, found->reason, found->heir, found->is_switch};
    if (is_known(level, name))
        return {true, nullptr, Heir::kLibrary};
    return {false, is_level_of_streams(level) ? kUnknown : nullptr, Heir::kAnybody};
}

} // namespace vma::sock::tcp
