// SPDX-License-Identifier: BSD-2-Clause
// What is remembered of the work requests of a queue pair until the device has completed them. A reliable connection
// completes them in order, so each side is a ring.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include <rdma/fi_endpoint.h>

namespace vma::ofi {
struct Cntr;
}

namespace vma::verbs {

struct Work {
    void *context;
    std::uint64_t flags;             // of its completion
    ofi::Cntr *counter;              // or nullptr
    bool wanted;                     // by the program: it gets a completion
    std::uint64_t device_memory = 0; // to release when it is done; 0: nothing
};

// Posted by one thread at a time, completed by one thread at a time, which may be another.
class WorkRing
{
public:
    // False without memory.
    bool allocate(std::size_t limit) noexcept
    {
        limit_ = limit;
        const std::size_t size = std::bit_ceil(limit);
        items_.reset(new (std::nothrow) Work[size]);
        mask_ = size - 1;
        return items_ != nullptr;
    }
    std::size_t limit() const noexcept { return limit_; }
    std::size_t left() const noexcept { return limit_ - static_cast<std::size_t>(posted_ - done()); }
    bool full() const noexcept { return left() == 0; }
    bool idle() const noexcept { return posted_ == done(); }

    // The number of the next one, which push() makes count.
    std::uint64_t next() const noexcept { return posted_; }
    void push(const Work &work) noexcept { items_[posted_++ & mask_] = work; }
    // Takes back the last ones, which the device refused.
    void drop(std::uint64_t from) noexcept { posted_ = from; }

    // For who completes: the oldest number, and what it is.
    std::uint64_t done() const noexcept { return done_.load(std::memory_order_acquire); }
    const Work &at(std::uint64_t number) const noexcept { return items_[number & mask_]; }
    void set_done(std::uint64_t number) noexcept { done_.store(number, std::memory_order_release); }

private:
    std::unique_ptr<Work[]> items_;
    std::uint64_t mask_ = 0;
    std::size_t limit_ = 0;
    std::uint64_t posted_ = 0;
    std::atomic<std::uint64_t> done_{0};
};

} // namespace vma::verbs
