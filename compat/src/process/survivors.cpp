// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/process/survivors.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <new>

#include "compat/src/libc/real.hpp"
#include "compat/src/table/socket_state.hpp"

namespace vma::sock {

Survivors::~Survivors()
{
    if (set_ != nullptr)
        ::munmap(set_, sizeof *set_);
}

int Survivors::highest_tracked()
{
    return highest_descriptor();
}

std::uint32_t Survivors::index_of(const Socket &s)
{
    return s.index;
}

// In a child of fork() malloc() may hang.
void Survivors::look(const Socket &s, int fd)
{
    const int flags = libc::real.fcntl(fd, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0 || no_memory_)
        return;
    if (set_ == nullptr) {
        void *const memory =
            ::mmap(nullptr, sizeof *set_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        no_memory_ = memory == MAP_FAILED;
        if (no_memory_)
            return;
        set_ = new (memory) SocketSet;
    }
    set_->add(static_cast<int>(s.index));
}

} // namespace vma::sock
