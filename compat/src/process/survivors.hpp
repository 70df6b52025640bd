// SPDX-License-Identifier: BSD-2-Clause
// Which sockets another program that this process becomes or starts would have: those of which a descriptor is not
// close-on-exec. Found in one walk over the descriptors, with a system call each.
#pragma once

#include "compat/src/table/socket_sets.hpp"

namespace vma::sock {

class Survivors
{
public:
    // Of those that `wanted` says, by index.
    template <typename Wanted> explicit Survivors(Wanted wanted)
    {
        const int highest = highest_tracked();
        for (int fd = 0; fd <= highest; ++fd)
            if (const Socket *const s = lookup(fd); s != nullptr && wanted(index_of(*s)))
                look(*s, fd);
    }
    ~Survivors();
    Survivors(const Survivors &) = delete;
    Survivors &operator=(const Survivors &) = delete;

    bool has(const Socket &s) const
    {
        return no_memory_ || (set_ != nullptr && set_->has(static_cast<int>(index_of(s))));
    }

private:
    static int highest_tracked();
    static std::uint32_t index_of(const Socket &s);
    void look(const Socket &s, int fd);

    SocketSet *set_ = nullptr;
    bool no_memory_ = false; // all of them may
};

} // namespace vma::sock
