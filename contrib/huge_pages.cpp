// SPDX-License-Identifier: BSD-2-Clause
// What builds with --enable-precompiled preload into the compiler (Makefile.am): its memory in huge pages.
// doc/checks.md says what it saves.
#include <cerrno>
#include <cstddef>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/** g++ maps a precompiled header where it was when it was made, and each page of it that it writes to is copied by
    itself. Where a file can't be mapped it reads it into new memory there: so this refuses. */
extern "C" __attribute__((visibility("default"))) void *mmap(void *address, size_t size, int protection, int flags,
                                                             int file, off_t offset) noexcept
{
    if (file >= 0 && address && !(flags & MAP_FIXED) && (flags & MAP_PRIVATE) && (protection & PROT_WRITE)) {
        errno = ENODEV;
        return MAP_FAILED;
    }
    const long mapped = syscall(SYS_mmap, address, size, protection, flags, file, offset);
    void *const memory = reinterpret_cast<void *>(mapped);
    constexpr size_t worth_it = 1 << 20;
    if (file < 0 && memory != MAP_FAILED && size >= worth_it && (protection & PROT_WRITE)) {
        const int before = errno;
        madvise(memory, size, MADV_HUGEPAGE);
        errno = before;
    }
    return memory;
}
