// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/frame_memory.hpp"

#include <cstdint>
#include <unistd.h>

#include "core/log.hpp"
#include "ofi/process_ops.hpp"

namespace vma::ether {

MemoryMap program_memory(std::size_t bytes) noexcept
{
    const ofi::FrameAllocator program = ofi::frame_allocator();
    if (program.allocate == nullptr)
        return {};
    // The kernel takes whole pages, and what other data of the program shares is not touched.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t whole = (bytes + page - 1) / page * page;
    void *const block = program.allocate(whole + page);
    if (block == nullptr) {
        VMA_WARN(domain, "the program's allocator has no %zu bytes for frames: they lie in memory of the library's own",
                 whole + page);
        return {};
    }
    auto *const base = reinterpret_cast<void *>((reinterpret_cast<std::uintptr_t>(block) + page - 1) / page * page);
    ::madvise(base, whole, MADV_DONTFORK);
    VMA_INFO(domain, "frames lie in %zu bytes of the program's own", whole);
    return {base, whole, block, program.release};
}

} // namespace vma::ether
