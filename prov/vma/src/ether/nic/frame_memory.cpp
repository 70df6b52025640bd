// SPDX-License-Identifier: BSD-2-Clause
#include "ether/nic/frame_memory.hpp"

#include <cstdint>

#include "core/log.hpp"
#include "ofi/process_ops.hpp"

namespace vma::ether {
namespace {

constexpr std::size_t kPage = 4096;

} // namespace

MemoryMap program_memory(std::size_t bytes) noexcept
{
    const ofi::FrameAllocator program = ofi::frame_allocator();
    if (program.allocate == nullptr)
        return {};
    const std::size_t whole =
        (bytes + kPage - 1) / kPage * kPage; // what other data of the program shares is not touched
    void *const block = program.allocate(whole + kPage);
    if (block == nullptr) {
        VMA_WARN(domain, "the program's allocator has no %zu bytes for frames: they lie in memory of the library's own",
                 whole + kPage);
        return {};
    }
    auto *const base = reinterpret_cast<void *>((reinterpret_cast<std::uintptr_t>(block) + kPage - 1) / kPage * kPage);
    ::madvise(base, whole, MADV_DONTFORK);
    VMA_INFO(domain, "frames lie in %zu bytes of the program's own", whole);
    return {base, whole, block, program.release};
}

} // namespace vma::ether
