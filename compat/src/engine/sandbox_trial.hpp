// SPDX-License-Identifier: BSD-2-Clause
// Whether the filters of system calls that this process was started under (those of a container, of a service manager)
// let acceleration be: nobody can read them, so all calls that it makes are tried in a child.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/libc/seccomp.hpp"

namespace vma::sock {

// What is known of the filters. Offload lock, but for the first two.
struct Sandbox {
    Mutex entering;
    std::atomic<bool> entered{false}; // set once, with `entering` held; intercept/sandbox.cpp
    std::atomic<bool> parted{false};  // likewise; intercept/own_tables.cpp
    libc::Seccomp inherited = {};     // set before the first socket
    bool looked = false;              // since then only now and then
    std::uint32_t looks = 0;
    // Of the calls that they may refuse; the child's while its parent waits.
    bool tried = false;
    const char *refused = nullptr;
    std::atomic<std::size_t> passed{0}; // the child's
    long room[512] = {};                // for what calls write, and nobody reads
    alignas(16) char stack[std::size_t{32} << 10] = {};
};

// The first call that they refuse, or nullptr; tried once. Offload lock held. The child shares the memory and nothing
// else, gives no signal when it ends, and the calling thread stands still meanwhile, some 100 us; what its filters do
// to it they do to it alone.
const char *refused_call();

} // namespace vma::sock
