// SPDX-License-Identifier: BSD-2-Clause
// A mapping of memory that ends with its owner. Rings of the kernel and the frames they speak of are such.
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
    MemoryMap(MemoryMap &&other) noexcept
        : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0))
    {
    }
    MemoryMap &operator=(MemoryMap &&other) noexcept
    {
        std::swap(base_, other.base_);
        std::swap(size_, other.size_);
        return *this;
    }
    MemoryMap(const MemoryMap &) = delete;
    MemoryMap &operator=(const MemoryMap &) = delete;
    ~MemoryMap()
    {
        if (base_ != nullptr)
            ::munmap(base_, size_);
    }

    explicit operator bool() const noexcept { return base_ != nullptr; }
    std::uint8_t *data() const noexcept { return static_cast<std::uint8_t *>(base_); }
    std::size_t size() const noexcept { return size_; }

private:
    void *base_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace vma::ether
