// SPDX-License-Identifier: BSD-2-Clause
// The kernel's table of TCP connections that have both ends in this host. It lives as long as this object: nothing of
// it is left in the kernel by a process that is gone, however it went.
#pragma once

#include <cstdint>
#include <string>

#include "core/fd.hpp"
#include "pair_code.hpp"

namespace vma::guard {

// What the kernel knows of a socket's connection.
struct PairedEnd {
    enum class Other : std::uint8_t {
        kHere,
        kNotHere, // or not yet: the first to come knows nothing of the other
        kUnknown, // other connections have taken the place where that was told
    };
    PairNumbers numbers;
    PairRole role = PairRole::kConnector;
    std::uint16_t port = 0; // its own
    Other other = Other::kUnknown;
};

class PairTable
{
public:
    // An empty text, or why there is none. `cgroup`: the root of a tree of version 2, empty: where it is mounted.
    // `connections`: at least so many are known, the last.
    std::string open(const std::string &cgroup, std::uint32_t connections);

    // False: it has no other end in this host, or is older than the table, or than what is known.
    bool find(std::uint64_t cookie, PairedEnd &out) const;

private:
    std::string load();
    PairedEnd::Other other_of(const EndEntry &end) const;

    core::UniqueFd ends_;
    core::UniqueFd meetings_;
    std::uint32_t end_count_ = 0;
    std::uint32_t meeting_count_ = 0;
    core::UniqueFd program_;
    core::UniqueFd link_;
};

} // namespace vma::guard
