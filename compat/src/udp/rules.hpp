// SPDX-License-Identifier: BSD-2-Clause
// What the rules of libvma.conf say of a UDP socket.
#pragma once

#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

// Of what is sent to this host: by local senders, and by an interface. A socket of any address is asked about each
// address of the host, or of the interface; it is the kernel's where it is so for one of them.
bool may_come_from_here(const State &u,
                        int fd); // nor is it for one of the groups that it has joined; offload lock held
bool may_come_by_port(int fd, std::uint32_t interface);
bool group_is_kernels(const in6_addr &group, int fd); // for who has joined it

// Of what it sends.
bool destination_is_kernels(int fd, const Destination &to);

// After connect(): the whole socket may be the kernel's. No lock held.
void follow_connection_rule(Socket &s, int fd);
// After it has joined a group: that may be the kernel's, and then it is offloaded again without what local senders
// bring.
void follow_group_rule(Socket &s, int fd);

} // namespace vma::sock::udp
