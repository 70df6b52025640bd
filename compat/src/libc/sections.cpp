// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/libc/sections.hpp"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include <cstdint>

#include "compat/src/libc/loaded.hpp"

namespace vma::libc {

[[VMA_AT_STARTUP]] void keep_pages_small()
{
    const int saved = errno;
    const auto page = static_cast<std::uintptr_t>(::getauxval(AT_PAGESZ));
    const auto whole_pages = [page](const char *address) {
        return (reinterpret_cast<std::uintptr_t>(address) + page - 1) / page * page;
    };
    // A kernel without huge pages refuses, and nothing is lost. The first page, which the file's data begins, is not
    // one of them.
    ::madvise(reinterpret_cast<void *>(whole_pages(__bss_start)), whole_pages(_end) - whole_pages(__bss_start),
              MADV_NOHUGEPAGE);
    errno = saved;
}

} // namespace vma::libc
