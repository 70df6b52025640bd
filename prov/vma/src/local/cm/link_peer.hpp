// SPDX-License-Identifier: BSD-2-Clause
// Whom a link leads to, as its endpoints have to know it.
#pragma once

#include <cstdint>

#include <sys/types.h>

#include "local/cma.hpp"

namespace vma::local {

struct LinkPeer {
    pid_t pid;                // as this process sees it, 0: it doesn't
    bool cma;                 // the kernel lets us copy from and to its memory
    std::uint64_t guest_link; // the number of its process where it may be another user's, else 0
    CmaMark mark{};           // where single copy works
};

} // namespace vma::local
