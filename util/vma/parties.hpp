// SPDX-License-Identifier: BSD-2-Clause
// Who has the sockets of an address: out of the kernel's tables, the descriptors of processes, and what the library
// counts of its sockets.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "util/vma/processes.hpp"

namespace vma::command {

struct Address {
    bool any = false; // "*"
    in6_addr address = {};
    std::uint16_t port = 0;
};
// "10.0.0.1:80", "[2001:db8::1]:80", "*:80". False: `error` says what was expected.
bool parse_address(const char *text, Address &out, std::string &error);

struct Party {
    std::uint8_t protocol = 0; // IPPROTO_TCP, IPPROTO_UDP
    std::uint8_t state = 0;    // of TCP, the kernel's number
    in6_addr local = {};
    in6_addr peer = {};
    std::uint16_t local_port = 0;
    std::uint16_t peer_port = 0; // 0: it has no peer
    std::uint64_t inode = 0;
    pid_t pid = 0;                            // 0: it can't be told
    vma::stats::Facts const *facts = nullptr; // nullptr: the library doesn't follow it
};

// Sockets whose local or peer address this is, in the network namespace of a process and among `known`, which must
// outlive them.
std::vector<Party> find_parties(const Address &address, pid_t space, const Processes &known);

bool are_two_ends(const Party &a, const Party &b);

} // namespace vma::command
