// SPDX-License-Identifier: BSD-2-Clause
// Opening devices, and waiting for several at once: their descriptors stand in an epoll set that is waited for instead.
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"

#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/oversubscription.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/engine/registrations.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/diag.hpp"

namespace vma::sock {

namespace {

constexpr std::size_t kRemoteQueue = 4096; // the provider makes it longer

enum : int { kUnknown, kNowhere, kHere };
static_assert(kUnknown == 0, "what Devices::rdma_is_here begins with");

bool look_for_rdma()
{
    DIR *const dir = ::opendir("/sys/class/infiniband");
    if (dir == nullptr)
        return false;
    bool found = false;
    while (const dirent *const entry = ::readdir(dir))
        found |= entry->d_name[0] != '.';
    ::closedir(dir);
    return found;
}

// Adds a descriptor to a set, which is made with the first.
int nest(std::atomic<int> &set, int fd)
{
    int set_fd = set.load(std::memory_order_relaxed);
    if (set_fd < 0) {
        set_fd = libc::real.epoll_create1(EPOLL_CLOEXEC);
        if (set_fd < 0)
            return -errno;
        set_fd = libc::make_private(set_fd);
    }
    epoll_event event = {};
    event.events = EPOLLIN;
    const int result = libc::real.epoll_ctl(set_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST ? 0 : -errno;
    set.store(set_fd, std::memory_order_release);
    return result;
}

void close_device(Device &d)
{
    forget_registrations(d);
    if (d.cq != nullptr)
        fi_close(&d.cq->fid);
    if (d.eq != nullptr)
        fi_close(&d.eq->fid);
    if (d.sender != nullptr)
        d.udp->close(d.sender);
    if (d.domain != nullptr)
        fi_close(&d.domain->fid);
    if (d.fabric != nullptr)
        fi_close(&d.fabric->fid);
    engine_objects().process->freeinfo(d.stream_info);
    d = Device{};
}

bool is_port(const fi_info &info)
{
    return strcmp(info.fabric_attr->name, "ethernet") == 0;
}

int open_device(Device &d, fi_info &info)
{
    snprintf(d.name, sizeof d.name, "%s", info.domain_attr->name);
    int result = provider()->fabric(info.fabric_attr, &d.fabric, nullptr);
    if (result == 0)
        result = fi_domain(d.fabric, &info, &d.domain, nullptr);
    if (result == 0 && is_port(info))
        result = fi_open_ops(&d.fabric->fid, FI_VMA_UDP_OPS, 0, reinterpret_cast<void **>(&d.udp), nullptr);
    if (result == 0 && d.udp != nullptr) {
        d.interface = ::if_nametoindex(d.name);
        d.network = udp::network_of_thread();
        result = d.udp->open_sender(d.domain, &d.sender);
    }
    if (result == 0)
        result = open_queues(d, kRemoteQueue, d.udp != nullptr);
    if (result == 0)
        result = nest(g_engine.devices.event_fd, engine_objects().eq_fd);
    if (result == 0)
        result = nest(g_engine.devices.event_fd, d.eq_fd);
    if (result == 0)
        result = nest(g_engine.devices.wait_fd, engine_objects().cq_fd);
    if (result == 0)
        result = nest(g_engine.devices.wait_fd, d.cq_fd);
    return result;
}

Device *named(const char *name)
{
    for (Device &d : g_engine.devices.of)
        if (d.cq != nullptr && strncmp(d.name, name, sizeof d.name - 1) == 0)
            return &d;
    return nullptr;
}

Device *free_place()
{
    for (Device &d : g_engine.devices.of)
        if (d.cq == nullptr)
            return &d;
    return nullptr;
}

Device *open_new(fi_info &info)
{
    Device d;
    Device *const place = free_place();
    const int result = place != nullptr ? open_device(d, info) : -FI_ENOSPC;
    if (result != 0) {
        close_device(d);
        VMA_LOG(kWarn, "cannot open the device %s: %s; the connections that it reaches stay on the kernel",
                info.domain_attr->name, strerror(-result));
        return nullptr;
    }
    engine_exclude_polling(true); // whoever polls sees all of it
    *place = d;
    if (is_port(info))
        g_process.oversubscription.turns_are_for_ports.store(true, std::memory_order_relaxed);
    g_process.oversubscription.devices_are_polled.store(true, std::memory_order_relaxed);
    place->polls_before = engine_polls();
    g_engine.devices.open.fetch_add(1, std::memory_order_release);
    engine_exclude_polling(false);
    follow_device_times();
    moderate(*place);
    return place;
}

} // namespace

std::size_t to_sockaddr(const sockaddr_in6 &a, sockaddr_in6 &out)
{
    out = a;
    if (!IN6_IS_ADDR_V4MAPPED(&a.sin6_addr))
        return sizeof out;
    sockaddr_in four = {};
    four.sin_family = AF_INET;
    four.sin_port = a.sin6_port;
    memcpy(&four.sin_addr, &a.sin6_addr.s6_addr[12], sizeof four.sin_addr);
    memcpy(&out, &four, sizeof four);
    return sizeof four;
}

int open_queues(Device &d, std::size_t size, bool passive)
{
    fi_eq_attr eq = {};
    eq.wait_obj = FI_WAIT_FD;
    eq.flags = FI_WRITE | (passive ? FI_VMA_PASSIVE : 0); // engine_wake_helper()
    fi_cq_attr cq = {};
    cq.size = size;
    cq.format = FI_CQ_FORMAT_DATA;
    cq.wait_obj = FI_WAIT_FD;
    cq.flags = FI_VMA_UNTIMED; // pacing.cpp keeps time
    int result = fi_eq_open(d.fabric, &eq, &d.eq, nullptr);
    if (result == 0)
        result = fi_control(&d.eq->fid, FI_GETWAIT, &d.eq_fd);
    if (result == 0)
        result = fi_cq_open(d.domain, &cq, &d.cq, nullptr);
    if (result == 0)
        result = fi_control(&d.cq->fid, FI_GETWAIT, &d.cq_fd);
    return result;
}

bool arm(const Device &d, fid &queue)
{
    fid *waits[] = {&queue};
    return fi_trywait(d.fabric, waits, 1) == 0;
}

bool rdma_is_here()
{
    int found = g_engine.devices.rdma_is_here.load(std::memory_order_relaxed);
    if (found == kUnknown)
        g_engine.devices.rdma_is_here.store(found = look_for_rdma() ? kHere : kNowhere, std::memory_order_relaxed);
    return found == kHere;
}

Device *remote_device(fi_info &info)
{
    const char *const name = info.domain_attr->name;
    Device *d = named(name);
    if (d != nullptr)
        return d->failed ? nullptr : d;
    if (g_engine.devices.refused.is_too_early(name, mux::now_ns()))
        return nullptr;
    d = open_new(info);
    if (d == nullptr)
        g_engine.devices.refused.note(name, mux::now_ns());
    else
        g_engine.devices.refused.forget(name);
    return d;
}

Device &remote_device_at(std::size_t place)
{
    return g_engine.devices.of[place];
}

bool arm_remote_queues()
{
    bool idle = true;
    each_remote_device([&idle](Device &d) { idle &= arm(d, d.cq->fid); });
    return idle;
}

bool arm_remote_events()
{
    bool idle = true;
    each_remote_device([&idle](Device &d) { idle &= arm(d, d.eq->fid); });
    return idle;
}

int remote_wait_fd()
{
    return g_engine.devices.wait_fd.load(std::memory_order_acquire);
}

int remote_event_fd()
{
    return g_engine.devices.event_fd.load(std::memory_order_acquire);
}

void close_failed_devices()
{
    each_remote_device([](Device &d) {
        if (!d.failed || d.users != 0)
            return;
        engine_exclude_polling(true);
        g_engine.devices.open.fetch_sub(1, std::memory_order_release);
        close_device(d);
        engine_exclude_polling(false);
    });
}

// The parent's objects are left where they are; the sets of descriptors are shared with it.
void remote_devices_after_fork_in_child()
{
    ports_after_fork_in_child();
    registrations_after_fork_in_child();
    for (Device &d : g_engine.devices.of)
        d = Device{};
    g_engine.devices.open.store(0, std::memory_order_relaxed);
    for (std::atomic<int> *const set : {&g_engine.devices.wait_fd, &g_engine.devices.event_fd})
        if (const int fd = set->exchange(-1, std::memory_order_relaxed); fd >= 0)
            libc::close_private(fd);
}

} // namespace vma::sock
