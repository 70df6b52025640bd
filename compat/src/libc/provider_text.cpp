// SPDX-License-Identifier: BSD-2-Clause
// Finds the segment that the provider's code is mapped to.
#include "compat/src/libc/provider_text.hpp"

#include <link.h>

namespace vma::libc {

namespace {

// For each library: whether one of its segments has the function.
int look(dl_phdr_info *info, std::size_t, void *function)
{
    const auto address = reinterpret_cast<std::uintptr_t>(function);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type != PT_LOAD || address < start || address >= start + segment.p_memsz)
            continue;
        g_private.provider_start.store(start, std::memory_order_relaxed);
        g_private.provider_end.store(start + segment.p_memsz, std::memory_order_relaxed);
        return 1;
    }
    return 0;
}

} // namespace

void know_provider(const void *function)
{
    ::dl_iterate_phdr(&look, const_cast<void *>(function));
}

} // namespace vma::libc
