// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: TCP, and what sockets of all kinds do.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kCongestion[] = {
    {"socket", kCcOfSocket, "of the socket"},
    {"0", 0, "0 (LWIP)"},
    {"lwip", 0, ""},
    {"reno", 0, ""},
    {"1", 1, "1 (Cubic)"},
    {"cubic", 1, ""},
    {"2", kCcNone, "2 (No congestion control)"},
};

inline constexpr Choice kTimestampOption[] = {
    {"0", 0, "off"}, {"off", 0, ""}, {"1", 1, "on"}, {"on", 1, ""}, {"2", 2, "as the kernel says"}, {"os", 2, ""},
};

inline constexpr Choice kControlThread[] = {
    {"0", 0, "Disabled"},   {"disable", 0, ""},         {"1", 1, "With wakeup"},
    {"with_wakeup", 1, ""}, {"2", 2, "Without wakeup"}, {"no_wakeup", 2, ""},
};

inline constexpr Parameter kTcpRows[] = {
    {.name = "VMA_OFFLOADED_SOCKETS",
     .label = "Offloaded Sockets",
     .field = &Params::offloaded_sockets,
     .fallback = 1,
     .text = "Whether sockets are accelerated."},
    {.name = "VMA_TCP_NODELAY",
     .label = "TCP nodelay",
     .field = &Params::tcp_nodelay,
     .as_digit = true,
     .overrides = {{{Spec::kLatency, 1}, {Spec::kUltraLatency, 1}}},
     .text = "Whether connections on Ethernet ports send small segments at once, as with TCP_NODELAY, whatever the "
             "program says."},
    {.name = "VMA_TCP_QUICKACK",
     .label = "TCP quickack",
     .field = &Params::tcp_quickack,
     .as_digit = true,
     .text = "Whether connections on Ethernet ports acknowledge each segment at once."},
    {.name = "VMA_TCP_QUICKACK_THRESHOLD",
     .label = "TCP quickack threshold",
     .field = &Params::tcp_quickack_threshold,
     .max = 65535,
     .text = "Bytes of a segment above which connections on Ethernet ports delay acknowledgements in spite of "
             "VMA_TCP_QUICKACK or TCP_QUICKACK; 0 for none."},
    {.name = "VMA_TCP_MAX_SYN_RATE",
     .label = "TCP max syn rate",
     .field = &Params::tcp_max_syn_rate,
     .max = 100000,
     .idle = true,
     .text = "No effect here: the kernel accepts connections before they come to a port, with its own limits "
             "(net.ipv4.tcp_max_syn_backlog, tcp_syncookies). Listeners of libfabric programs have FI_OPT_VMA_TCP."},
    {.name = "VMA_TCP_TIMESTAMP_OPTION",
     .label = "TCP timestamp option",
     .field = &Params::tcp_timestamp_option,
     .fallback = 2,
     .choices = kTimestampOption,
     .idle = true,
     .text = "No effect here: time stamps are agreed on when the kernel opens the connection "
             "(net.ipv4.tcp_timestamps). VMA's default is 0; here it says what is."},
    {.name = "VMA_TCP_TIMER_RESOLUTION_MSEC",
     .label = "TCP Timer Resolution (msec)",
     .field = &Params::tcp_timer_resolution_msec,
     .fallback = 100,
     .max = 1000000,
     .idle = true,
     .text = "No effect here: TCP's timers ring when they are due."},
    {.name = "VMA_TCP_CTL_THREAD",
     .label = "TCP control thread",
     .field = &Params::tcp_ctl_thread,
     .choices = kControlThread,
     .overrides = {{{Spec::k7750, 2}}},
     .idle = true,
     .text = "No effect here: the library's thread moves TCP on where the program does not, and never between a "
             "program's own calls."},
    {.name = "VMA_TCP_CC_ALGO",
     .label = "TCP CC Algorithm",
     .field = &Params::tcp_cc_algo,
     .fallback = 2,
     .choices = kCongestion,
     .text =
         "Congestion control of connections on Ethernet ports: 0 NewReno, 1 CUBIC, \"socket\" as TCP_CONGESTION "
         "says (CUBIC for all but reno). VMA's default is 0; here what the program or net.ipv4.tcp_congestion_control "
         "has chosen stays. Without any (2) they don't send: CUBIC is used instead, with a warning."},
    {.name = "VMA_MTU",
     .label = "MTU",
     .field = &Params::mtu,
     .max = 65535,
     .text = "Bytes of a packet that connections on Ethernet ports send at most; 0 as the way to the peer allows."},
    {.name = "VMA_MSS",
     .label = "MSS",
     .field = &Params::mss,
     .max = 65535,
     .text = "Bytes of data and options in a segment that connections on Ethernet ports send at most; 0 as the MTU "
             "allows."},
    {.name = "VMA_AVOID_SYS_CALLS_ON_TCP_FD",
     .label = "Avoid sys-calls on tcp fd",
     .field = &Params::avoid_sys_calls,
     .overrides = {{{Spec::kLatency, 1}, {Spec::kUltraLatency, 1}, {Spec::k7750, 1}}},
     .idle = true,
     .text = "No effect here: the kernel's connection stands behind each accelerated one, and must know its options "
             "when it gets it back."},
    {.name = "VMA_ALLOW_PRIVILEGED_SOCK_OPT",
     .label = "Allow privileged sock opt",
     .field = &Params::allow_privileged_sock_opt,
     .fallback = 1,
     .text = "Whether setsockopt(2) of an accelerated socket succeeds where the kernel says EPERM to an option that is "
             "a mere hint: SO_PRIORITY, SO_BUSY_POLL, SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET. Options that decide "
             "who is reached (SO_BINDTODEVICE, SO_MARK, IP_TRANSPARENT) fail, whatever this says."},
    {.name = "VMA_WAIT_AFTER_JOIN_MSEC",
     .label = "Delay after join (msec)",
     .field = &Params::wait_after_join_msec,
     .max = 60000,
     .text = "Milliseconds that setsockopt(2) waits after a UDP socket has joined a group, so that the network has "
             "heard of it before the program sends."},
    {.name = "VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME",
     .label = "Trig dummy send getsockname()",
     .field = &Params::dummy_send_getsockname,
     .overrides = {{{Spec::kMultiRing, 1}}},
     .text = "Whether getsockname(2) on an accelerated socket warms its way of sending, as a dummy send does: "
             "vma_extra(3)."},
};

} // namespace vma::config
