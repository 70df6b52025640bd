// SPDX-License-Identifier: BSD-2-Clause
// Where copies of packets lie that the program holds: its own allocator (CMSG_VMA_IOCTL_USER_ALLOC), or malloc().
#pragma once

#include <cstddef>

namespace vma::extra {

using Allocate = void *(*)(std::size_t);
using Free = void (*)(void *);

void use_allocator(Allocate allocate, Free free); // before there is a socket
void *allocate(std::size_t bytes);                // nullptr: none
void release(void *memory);                       // nullptr is allowed

} // namespace vma::extra
