// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/engine.hpp"

#include <net/if.h> // before linux/if.h, which knows it

#include <linux/if_bonding.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/provider.hpp"
#include "compat/src/libc/real.hpp"

namespace vma::sock {

bool ports_are_named()
{
    const char *const names = config::params().ethernet;
    return names != nullptr && *names != '\0';
}

// The names of a list with commas; * is all.
bool is_named_port(const char *name)
{
    const std::size_t length = strlen(name);
    for (const char *at = config::params().ethernet; at != nullptr && *at != '\0';) {
        const std::size_t here = strcspn(at, ",");
        if ((here == length && memcmp(at, name, length) == 0) || (here == 1 && *at == '*'))
            return true;
        at += here + (at[here] == ',' ? 1 : 0);
    }
    return false;
}

PortsState ports_state()
{
    return g_engine.devices.ports.load(std::memory_order_acquire);
}

void ask_for_ports()
{
    if (ports_state() != PortsState::kUnasked)
        return;
    g_engine.devices.ports.store(PortsState::kAsked, std::memory_order_release);
    engine_wake_helper();
}

namespace {

// The interfaces of a bond, with blanks between; empty where it is none.
void read_slaves(int fd, const char *name, char (&out)[256])
{
    ifreq request = {};
    ifbond bond = {};
    out[0] = '\0';
    memcpy(request.ifr_name, name, strnlen(name, sizeof request.ifr_name - 1));
    request.ifr_data = reinterpret_cast<char *>(&bond);
    if (libc::real.ioctl(fd, SIOCBONDINFOQUERY, &request) != 0)
        return;
    std::size_t used = 0;
    for (int i = 0; i < bond.num_slaves && used < sizeof out - 1; ++i) {
        ifslave slave = {};
        slave.slave_id = i;
        request.ifr_data = reinterpret_cast<char *>(&slave);
        if (libc::real.ioctl(fd, SIOCBONDSLAVEINFOQUERY, &request) == 0)
            used += static_cast<std::size_t>(std::snprintf(out + used, sizeof out - used, "%s ", slave.slave_name));
    }
    if (bond.num_slaves == 0)
        std::snprintf(out, sizeof out, "none ");
}

// In libvma's words. A bond's frames are those of its interfaces.
void warn_about_name(int fd, const char *name)
{
    char slaves[256];
    if (::if_nametoindex(name) == 0) {
        VMA_LOG(kWarn, "Interface %s will not be offloaded: VMA_ETHERNET names it, and there is none", name);
        return;
    }
    read_slaves(fd, name, slaves);
    if (slaves[0] != '\0')
        VMA_LOG(kWarn,
                "Interface %s will not be offloaded: it is a bond, and VMA_ETHERNET takes those that are in it: %s",
                name, slaves);
}

} // namespace

void warn_about_port_names()
{
    const int fd = libc::real.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (const char *at = config::params().ethernet; at != nullptr && *at != '\0';) {
        const std::size_t length = strcspn(at, ",");
        char name[IFNAMSIZ] = {};
        memcpy(name, at, std::min(length, sizeof name - 1));
        if (length != 0 && strcmp(name, "*") != 0)
            warn_about_name(fd, name);
        at += length + (at[length] == ',' ? 1 : 0);
    }
    if (fd >= 0)
        libc::real.close(fd);
}

void open_named_ports()
{
    fi_info *list = nullptr;
    warn_about_port_names();
    if (find_device(*provider(), Want::kPortStreams, nullptr, list) == 0) {
        for (fi_info *info = list; info != nullptr; info = info->next)
            if (is_named_port(info->domain_attr->name))
                remote_device(*info);
        engine_objects().process->freeinfo(list);
    }
    g_engine.devices.ports.store(PortsState::kTried, std::memory_order_release);
}

void ports_after_fork_in_child()
{
    g_engine.devices.ports.store(PortsState::kUnasked, std::memory_order_relaxed);
}

} // namespace vma::sock
