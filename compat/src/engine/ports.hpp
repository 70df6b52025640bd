// SPDX-License-Identifier: BSD-2-Clause
// The Ethernet ports that VMA_ETHERNET names.
#pragma once

#include <cstdint>

namespace vma::sock {

bool ports_are_named();
bool is_named_port(const char *name);

// Sockets that have no peer of their own are attached to ports that are open. The helper thread opens all that are
// named, once.
enum class PortsState : std::uint8_t { kUnasked, kAsked, kTried };
PortsState ports_state();
void ask_for_ports();         // offload lock held
void warn_about_port_names(); // of VMA_ETHERNET: those that there are none of, and bonds
void open_named_ports();      // helper thread, offload lock held
void ports_after_fork_in_child();

} // namespace vma::sock
