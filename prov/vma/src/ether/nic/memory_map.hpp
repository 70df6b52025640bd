// SPDX-License-Identifier: BSD-2-Clause
// A mapping of memory that ends with its owner. Rings of the kernel and the frames they speak of are such; frames may
// also lie in memory that the program's allocator has given (frame_memory.hpp), which is not unmapped but given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <utility>

namespace vma::ether {

class MemoryMap
{
public:
    MemoryMap() noexcept = default;
    // What mmap() gave: MAP_FAILED makes it empty.
    MemoryMap(void *base, std::size_t size) noexcept : base_(base == MAP_FAILED ? nullptr : base), size_(size) {}
    // Whole pages in a block that `release` takes back.
    MemoryMap(void *base, std::size_t size, void *block, void (*release)(void *)) noexcept
        : base_(base), size_(size), block_(block), release_(release)
    {
    }
    MemoryMap(MemoryMap &&other) noexcept { *this = std::move(other); }
    MemoryMap &operator=(MemoryMap &&other) noexcept
    {
        std::swap(base_, other.base_);
        std::swap(size_, other.size_);
        std::swap(block_, other.block_);
        std::swap(release_, other.release_);
        return *this;
    }
    MemoryMap(const MemoryMap &) = delete;
    MemoryMap &operator=(const MemoryMap &) = delete;
    ~MemoryMap()
    {
        if (release_ != nullptr) {
            ::madvise(base_, size_, MADV_DOFORK); // it was not the children's
            release_(block_);
        } else if (base_ != nullptr) {
            ::munmap(base_, size_);
        }
    }

    explicit operator bool() const noexcept { return base_ != nullptr; }
    std::uint8_t *data() const noexcept { return static_cast<std::uint8_t *>(base_); }
    std::size_t size() const noexcept { return size_; }

private:
    void *base_ = nullptr;
    std::size_t size_ = 0;
    void *block_ = nullptr; // the allocator's, where `base_` lies in
    void (*release_)(void *) = nullptr;
};

} // namespace vma::ether
