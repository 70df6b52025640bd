// SPDX-License-Identifier: BSD-2-Clause
// A pool of objects of one type in one range of addresses that is never given back or used for anything else: a stale
// pointer always reads an object of its type, and a number can be checked to be the address of one. What a pointer's
// object means now is for the user to check (generations).
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "compat/src/base/lock.hpp"

namespace vma::mux {

// T has a member `T *next_free`, used only while the object is free. Free objects are handed out oldest first.
template <typename T, std::size_t kMostObjects> class StablePool
{
public:
    constexpr StablePool() = default;
    StablePool(const StablePool &) = delete;
    StablePool &operator=(const StablePool &) = delete;

    T *take() // as its last user left it; nullptr: no memory
    {
        sock::LockGuard guard(lock_);
        if (oldest_ == nullptr && !grow())
            return nullptr;
        T *const object = oldest_;
        oldest_ = object->next_free;
        return object;
    }

    void give(T *object)
    {
        sock::LockGuard guard(lock_);
        append(object);
    }

    bool holds(std::uint64_t address) const // is it the address of an object?
    {
        const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(base_.load(std::memory_order_acquire));
        return offset < size_.load(std::memory_order_acquire) * sizeof(T) && offset % sizeof(T) == 0;
    }

    template <typename Visit> void for_each(Visit visit) // free ones too
    {
        const std::size_t size = size_.load(std::memory_order_acquire);
        for (std::size_t i = 0; i < size; ++i)
            visit(base_.load(std::memory_order_relaxed)[i]);
    }

    sock::Mutex &lock() { return lock_; } // for fork

private:
    static constexpr std::size_t kStep = (std::size_t{16} << 10) / sizeof(T);

    bool reserve()
    {
        // PROT_NONE: address space only, nothing is committed. A process with little of it gets a smaller pool.
        for (std::size_t most = kMostObjects; most >= kStep; most /= 8) {
            void *const range =
                ::mmap(nullptr, most * sizeof(T), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (range != MAP_FAILED) {
                base_.store(static_cast<T *>(range), std::memory_order_release);
                most_ = most;
                return true;
            }
        }
        return false;
    }

    bool grow() // lock held
    {
        if (base_.load(std::memory_order_relaxed) == nullptr && !reserve())
            return false;
        const std::size_t size = size_.load(std::memory_order_relaxed);
        T *const first = base_.load(std::memory_order_relaxed) + size;
        if (size + kStep > most_ || ::mprotect(first, kStep * sizeof(T), PROT_READ | PROT_WRITE) != 0)
            return false;
        for (std::size_t i = 0; i < kStep; ++i)
            append(new (first + i) T);
        size_.store(size + kStep, std::memory_order_release);
        return true;
    }

    void append(T *object)
    {
        object->next_free = nullptr;
        (oldest_ == nullptr ? oldest_ : newest_->next_free) = object;
        newest_ = object;
    }

    sock::Mutex lock_;
    std::atomic<T *> base_{nullptr};
    std::atomic<std::size_t> size_{0};
    std::size_t most_ = 0;
    T *oldest_ = nullptr;
    T *newest_ = nullptr;
};

} // namespace vma::mux
