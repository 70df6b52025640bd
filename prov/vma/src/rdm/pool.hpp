// SPDX-License-Identifier: BSD-2-Clause
// Objects of one type that are taken and given back all the time, in chunks that stay: no allocation once as many exist
// as are in use at a time. An object keeps its place and its number as long as the pool lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace vma::rdm {

// `T` has a public `T *next_free` and `std::uint32_t index`. Not thread-safe.
template <typename T> class Pool
{
public:
    // nullptr without memory.
    T *take() noexcept
    {
        if (free_ == nullptr && !grow()) [[unlikely]]
            return nullptr;
        T *const one = free_;
        free_ = one->next_free;
        ++used_;
        return one;
    }
    void give_back(T &one) noexcept
    {
        one.next_free = free_;
        free_ = &one;
        --used_;
    }
    std::size_t used() const noexcept { return used_; }

    // By its number, whether it is in use or not; nullptr where none has it.
    T *find(std::uint32_t index) noexcept
    {
        return index < chunks_.size() * kChunk ? &chunks_[index / kChunk][index % kChunk] : nullptr;
    }
    template <typename Use> void for_each(Use &&use) noexcept
    {
        for (const std::unique_ptr<T[]> &chunk : chunks_) {
            for (std::size_t i = 0; i < kChunk; ++i)
                use(chunk[i]);
        }
    }

private:
    static constexpr std::size_t kChunk = 64;

    [[gnu::noinline]] bool grow() noexcept
    {
        std::unique_ptr<T[]> chunk(new (std::nothrow) T[kChunk]);
        if (!chunk)
            return false;
        const auto first = static_cast<std::uint32_t>(chunks_.size() * kChunk);
        for (std::size_t i = kChunk; i-- != 0;) {
            chunk[i].index = first + static_cast<std::uint32_t>(i);
            chunk[i].next_free = free_;
            free_ = &chunk[i];
        }
        chunks_.push_back(std::move(chunk));
        return true;
    }

    T *free_ = nullptr;
    std::size_t used_ = 0;
    std::vector<std::unique_ptr<T[]>> chunks_;
};

} // namespace vma::rdm
