// SPDX-License-Identifier: BSD-2-Clause
// Where copies of packets lie that the program holds: its own allocator (CMSG_VMA_IOCTL_USER_ALLOC), or malloc(). The
// frames of ports lie in memory of that allocator as well.
#pragma once

#include <cstddef>

namespace vma::memory {

using Allocate = void *(*)(std::size_t);
using Free = void (*)(void *);

void use_allocator(Allocate allocate, Free free); // before there is a socket
struct Allocator {
    Allocate allocate;
    Free free;
};
Allocator chosen_allocator();      // the program's; both nullptr: it has set none
void *allocate(std::size_t bytes); // nullptr: none
void release(void *memory);        // nullptr is allowed

} // namespace vma::memory
