// SPDX-License-Identifier: BSD-2-Clause
// Rows of the table: completion queues, interrupts and the library's own thread.
#pragma once

#include "compat/src/config/table.hpp"

namespace vma::config {

inline constexpr Choice kThreadModes[] = {
    {"0", 0, "Single"},
    {"1", 1, "Multi spin lock"},
    {"2", 2, "Multi mutex lock"},
    {"3", 3, "Multi more threads than cores"},
};

inline constexpr Parameter kProgressRows[] = {
    {.name = "VMA_PROGRESS_ENGINE_INTERVAL",
     .label = "CQ Drain Interval (msec)",
     .label_if_off = "CQ Drain Thread",
     .field = &Params::progress_interval,
     .fallback = 10,
     .max = 1000000,
     .overrides = {{{Spec::kLatency, 100}, {Spec::kUltraLatency, 0}}},
     .text = "After how many milliseconds each the library's own thread takes what has come for accelerated sockets, "
             "if the program did not meanwhile; rounded up to turns of VMA_TIMER_RESOLUTION_MSEC. 0 and more than 100 "
             "are as 100: a peer that waits for an answer of the library itself must get one."},
    {.name = "VMA_PROGRESS_ENGINE_WCE_MAX",
     .label = "CQ Drain WCE (max)",
     .field = &Params::progress_most,
     .fallback = 10000,
     .max = kMostNumber,
     .text = "How many completions the library's own thread takes at a time, at the most; those of one poll "
             "(VMA_CQ_POLL_BATCH_MAX) are all taken."},
    {.name = "VMA_CQ_MODERATION_ENABLE",
     .label = "CQ Interrupts Moderation",
     .field = &Params::cq_moderation,
     .fallback = 1,
     .overrides = {{{Spec::kMemcachedIrq, 0}}},
     .text = "Whether RDMA devices, also those of Ethernet ports by raw packets, hold back the interrupts that wake a "
             "thread "
             "that sleeps. One that can't says so at debug. Those of an Ethernet port by AF_XDP are the whole "
             "interface's, for ethtool -C to set. Disabled where VMA_RX_POLL or VMA_SELECT_POLL is -1."},
    {.name = "VMA_CQ_MODERATION_COUNT",
     .label = "CQ Moderation Count",
     .field = &Params::cq_moderation_count,
     .fallback = 48,
     .max = kMostNumber,
     .text = "With VMA_CQ_MODERATION_ENABLE: how many completions an interrupt waits for at the most. At most half of "
             "VMA_RX_WRE."},
    {.name = "VMA_CQ_MODERATION_PERIOD_USEC",
     .label = "CQ Moderation Period (usec)",
     .field = &Params::cq_moderation_period_usec,
     .fallback = 50,
     .max = kMostNumber,
     .text = "With VMA_CQ_MODERATION_ENABLE: how long an interrupt waits at the most."},
    {.name = "VMA_CQ_AIM_MAX_COUNT",
     .label = "CQ AIM Max Count",
     .field = &Params::cq_aim_max_count,
     .fallback = 560,
     .max = kMostNumber,
     .text =
         "With VMA_CQ_AIM_INTERVAL_MSEC: how many completions an interrupt may be made to wait for. At most half of "
         "VMA_RX_WRE."},
    {.name = "VMA_CQ_AIM_MAX_PERIOD_USEC",
     .label = "CQ AIM Max Period (usec)",
     .field = &Params::cq_aim_max_period_usec,
     .fallback = 250,
     .max = kMostNumber,
     .text = "With VMA_CQ_AIM_INTERVAL_MSEC: how long an interrupt may be made to wait."},
    {.name = "VMA_CQ_AIM_INTERVAL_MSEC",
     .label = "CQ AIM Interval (msec)",
     .label_if_off = "CQ Adaptive Moderation",
     .field = &Params::cq_aim_interval_msec,
     .fallback = 250,
     .max = kMostNumber,
     .text =
         "After how many milliseconds each the moderation of an RDMA device is fitted to what has come: none while "
         "there is little, or it is small; else so much that VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC is met. Rounded up to "
         "turns of VMA_TIMER_RESOLUTION_MSEC; 0: never. 0 where VMA_CQ_MODERATION_ENABLE is disabled."},
    {.name = "VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC",
     .label = "CQ AIM Interrupts Rate (per sec)",
     .field = &Params::cq_aim_interrupts_rate,
     .fallback = 5000,
     .max = kMostNumber,
     .text = "How many interrupts a second each RDMA device should make (VMA_CQ_AIM_INTERVAL_MSEC)."},
    {.name = "VMA_CQ_POLL_BATCH_MAX",
     .label = "CQ Poll Batch (max)",
     .field = &Params::cq_poll_batch_max,
     .fallback = 16,
     .min = 1,
     .max = 128,
     .text = "How many completions one poll takes from a device's completion queue, at the most."},
    {.name = "VMA_CQ_KEEP_QP_FULL",
     .label = "CQ Keeps QP Full",
     .field = &Params::cq_keep_qp_full,
     .fallback = 1,
     .overrides = {{{Spec::kLatency, 0}, {Spec::kUltraLatency, 0}}},
     .idle = true,
     .text = "No effect here: a buffer is given back to its device as soon as it has been read."},
    {.name = "VMA_QP_COMPENSATION_LEVEL",
     .label = "QP Compensation Level",
     .field = &Params::qp_compensation_level,
     .fallback = 256,
     .max = kMostNumber,
     .idle = true,
     .text = "No effect here: no spare buffers are kept. At least VMA_RX_WRE_BATCHING."},
    {.name = "VMA_TIMER_RESOLUTION_MSEC",
     .label = "Timer Resolution (msec)",
     .field = &Params::timer_resolution_msec,
     .fallback = 10,
     .min = 1,
     .max = 1000000,
     .text = "After how many milliseconds each the library's own thread has a turn while sockets are accelerated; more "
             "than 100 are as 100. After three seconds in which nothing has come for accelerated TCP connections of "
             "this host it sleeps until something does, or for a second."},
    {.name = "VMA_INTERNAL_THREAD_AFFINITY",
     .label = "Internal Thread Affinity",
     .field = &Params::internal_thread_affinity,
     .fallback_text = "-1",
     .overrides = {{{Spec::kLatency, 0, "0"}, {Spec::kUltraLatency, 0, "0"}, {Spec::k7750, 0, "0x3"}}},
     .text =
         "The processors that the library's own thread runs on: a hexadecimal mask (0x3: 0 and 1), or a list "
         "(0,4,7-10; 0-10:2 is every second one). -1, as without the variable: those of the thread that starts it."},
    {.name = "VMA_INTERNAL_THREAD_CPUSET",
     .label = "Internal Thread Cpuset",
     .field = &Params::internal_thread_cpuset,
     .text = "The folder of a cpuset that the library's own thread enters when it starts, as "
             "/sys/fs/cgroup/cpuset/my_set, or of a threaded control group of version 2; in it "
             "VMA_INTERNAL_THREAD_AFFINITY is followed. Empty for the process's."},
    {.name = "VMA_INTERNAL_THREAD_ARM_CQ",
     .label = "Internal Thread Arm CQ",
     .field = &Params::internal_thread_arm_cq,
     .text = "Whether the library's own thread wakes up for whatever comes for accelerated sockets and takes it, while "
             "the program is busy with something else. It costs the sender a system call and this host a switch of "
             "threads."},
    {.name = "VMA_THREAD_MODE",
     .label = "Thread mode",
     .field = &Params::thread_mode,
     .fallback = 1,
     .choices = kThreadModes,
     .overrides = {{{Spec::kLatency, 0}, {Spec::kUltraLatency, 0}}},
     .idle = true,
     .text =
         "How the program's threads use its sockets: 0 one thread, 1 several, 2 several that sleep for a lock, 3 more "
         "threads than processors. It is shown in the header and changes nothing: sockets are safe for threads "
         "always."},
};

} // namespace vma::config
