// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/engine.hpp"

#include <string.h>

#include <atomic>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine_state.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/provider.hpp"

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

void open_named_ports()
{
    fi_info *list = nullptr;
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
