// SPDX-License-Identifier: BSD-2-Clause
// What a process has open of a device: the local one, and besides it the RDMA devices that reach other hosts, which are
// opened when the first connection wants them.
#pragma once

#include <netinet/in.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_ext_vma.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/engine/devices/device_time.hpp"
#include "compat/src/engine/devices/moderation.hpp"
#include "compat/src/stats/count.hpp"

namespace vma::sock {

struct Device {
    char name[64] = "local"; // of its domain
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cq *cq = nullptr;
    fid_eq *eq = nullptr;
    int cq_fd = -1;
    int eq_fd = -1;
    fi_ops_vma_udp *udp = nullptr;  // of an Ethernet port, and of no other
    fi_vma_udp *sender = nullptr;   // likewise: for what sockets send to groups
    std::uint32_t interface = 0;    // likewise: its index
    std::uint64_t network = 0;      // likewise: the namespace that it is in
    fi_info *stream_info = nullptr; // likewise: what its streams are opened with, once there was one
    std::uint32_t users = 0;        // endpoints and listeners; offload lock
    DeviceTime time;                // likewise: of its stamps
    bool failed = false;            // opens nothing more; closed when it has no users
    bool moderates = false;         // takes a moderation of its interrupts; this and below: helper thread
    Moderation moderation;
    std::uint64_t seen_completions = 0;
    std::uint64_t seen_bytes = 0;
    std::uint64_t polls_before = 0; // engine_polls() when it was opened
    std::uint64_t hits = 0;         // of polls: those that found something; poll lock, as all below
    std::uint64_t most = 0;         // that one found
    std::uint64_t completions = 0;
    std::uint64_t bytes = 0; // of them, likewise
};

// A poll of the device's queue has found so much. Poll lock held.
inline void note_hit(std::uint64_t &hits, std::uint64_t &most, unsigned found)
{
    stats::add(hits);
    stats::raise(most, found);
}

// As the device wants it: a v4-mapped address becomes an AF_INET one, of which `out` then has the first bytes. Its
// length.
std::size_t to_sockaddr(const sockaddr_in6 &a, sockaddr_in6 &out);

// A completion queue with room for `size` at first, and an event queue; the fabric and the domain are open. 0 or a
// negative fi_errno, and then some of it may be open.
int open_queues(Device &d, std::size_t size,
                bool passive = false); // `passive`: no event comes but by the completion queue

// Arms one of the two. False: something is pending.
bool arm(const Device &d, fid &queue);

// ---- those that reach other hosts: RDMA devices and Ethernet ports --------------------------------------------------

inline constexpr std::size_t kMostDevices = 4;

// Whether this host has an RDMA device: looked at once.
bool rdma_is_here();

// Helper thread, offload lock held. The device that `info` is of, opened if it is the first time; nullptr: it can't be
// used now.
Device *remote_device(fi_info &info);

// `take` gets each open device; the lock that keeps them open is held: the offload lock or the poll lock.
template <typename Take> void each_remote_device(Take take);
Device &remote_device_at(std::size_t place);

bool arm_remote_queues(); // poll lock held; false: something is pending
bool arm_remote_events(); // likewise, helper thread
// Descriptors that become readable with any completion queue, the local one too; with any event queue. -1: no RDMA
// device was opened yet.
int remote_wait_fd();
int remote_event_fd();
void tell_queues();          // vma_stats, of what completion queues and ports count; helper thread, offload lock held
void close_failed_devices(); // helper thread, offload lock held
void remote_devices_after_fork_in_child();

template <typename Take> void each_remote_device(Take take)
{
    for (std::size_t i = 0; i < kMostDevices; ++i)
        if (Device &d = remote_device_at(i); d.cq != nullptr)
            take(d);
}

} // namespace vma::sock
