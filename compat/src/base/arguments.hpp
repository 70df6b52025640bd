// SPDX-License-Identifier: BSD-2-Clause
// What the kernel refuses of the arguments of a call before it moves a byte, for streams whose bytes it doesn't move:
// in the order of Linux's net/socket.c. All functions give 0, or a negative errno value. An address that is not mapped
// can't be told from a good one, but for the first page and what is not user space at all.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace vma::sock {

inline constexpr std::size_t kMostBytes = 0x7ffff000; // that the kernel moves in a call; it takes more for as much

inline constexpr std::uintptr_t kUserSpaceEnd =
    std::uintptr_t{1} << (sizeof(void *) == 8 ? 56 : 31); // user space of any machine ends below

// No program has memory there.
inline bool is_nowhere(const void *address)
{
    constexpr std::uintptr_t kFirstPage = 4096;
    return reinterpret_cast<std::uintptr_t>(address) - kFirstPage >= kUserSpaceEnd - kFirstPage;
}

// This the kernel refuses before it asks the socket, however few bytes there are to move; what else is nowhere it finds
// out when it copies.
inline bool leaves_user_space(const void *address, std::size_t length)
{
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return begin > kUserSpaceEnd || length > kUserSpaceEnd - begin;
}

// sendmsg() and recvmsg(): the length of the name, the number and the lengths of the parts.
int refused_message(const msghdr &message);

// Of a message with more than kMostBytes: what the kernel moves of it.
struct Most {
    std::size_t count = 0; // of the parts that it moves whole
    std::size_t bytes = 0; // in these
    iovec rest = {};       // of the next
};
Most most_of(const msghdr &message);

// Is there a part that lies nowhere?
bool lies_nowhere(const msghdr &message);

// The control data of a sendmsg().
int refused_control(const msghdr &message);

// Has it control data that only the kernel can judge, and act upon?
bool asks_kernel(const msghdr &message);

// The name of a sendto().
int refused_name(const sockaddr *name, socklen_t length);

// Of recvfrom(): what the length of a name is to be written to. It is looked at when something has been taken already.
int refused_place(const socklen_t *length);

} // namespace vma::sock
