// SPDX-License-Identifier: BSD-2-Clause
// A first-in first-out queue in one array that grows by doubling, so that a queue of 262,144 promised entries costs
// nothing until they are used. The limit is for its users to respect. For trivially copyable elements; not thread-safe.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace vma::core {

template <typename T> class Fifo
{
    static_assert(std::is_trivially_copyable_v<T>);

public:
    explicit Fifo(std::size_t limit = 0) noexcept : limit_(limit) {}

    void set_limit(std::size_t limit) noexcept { limit_ = limit; }
    std::size_t limit() const noexcept { return limit_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    bool full() const noexcept { return size_ >= limit_; }

    T &front() noexcept { return items_[head_]; }
    T &operator[](std::size_t i) noexcept { return items_[(head_ + i) & (capacity_ - 1)]; }
    const T &operator[](std::size_t i) const noexcept { return items_[(head_ + i) & (capacity_ - 1)]; }

    // False when memory is short. Pointers to elements don't survive it.
    [[nodiscard]] bool push(const T &item) noexcept
    {
        if (size_ == capacity_ && !grow())
            return false;
        items_[(head_ + size_) & (capacity_ - 1)] = item;
        ++size_;
        return true;
    }
    void pop() noexcept
    {
        head_ = (head_ + 1) & (capacity_ - 1);
        --size_;
    }
    void pop_back() noexcept { --size_; }
    void clear() noexcept { size_ = 0; }

    // Keeps the order of the others.
    template <typename Predicate> std::size_t erase_if(Predicate &&predicate) noexcept
    {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i) {
            if (predicate((*this)[i]))
                continue;
            if (kept != i)
                (*this)[kept] = (*this)[i];
            ++kept;
        }
        return size_ - std::exchange(size_, kept);
    }

private:
    [[gnu::noinline]] bool grow() noexcept
    {
        const std::size_t wanted = capacity_ ? capacity_ * 2 : 16;
        std::unique_ptr<T[]> bigger(new (std::nothrow) T[wanted]);
        if (!bigger)
            return false;
        for (std::size_t i = 0; i < size_; ++i)
            bigger[i] = (*this)[i];
        items_ = std::move(bigger);
        capacity_ = wanted;
        head_ = 0;
        return true;
    }

    std::unique_ptr<T[]> items_;
    std::size_t capacity_ = 0; // a power of two
    std::size_t head_ = 0;
    std::size_t size_ = 0;
    std::size_t limit_;
};

} // namespace vma::core
