// SPDX-License-Identifier: BSD-2-Clause
// How many datagrams a socket has lost, as SO_RXQ_OVFL tells its program (socket(7)): those that found no room here or
// with their sender, and the kernel's. The kernel tells of its own in two ways that overtake each other: each datagram
// brings the count of the time when it was queued, and SO_MEMINFO has that of now, while datagrams with older counts
// still wait. So nobody stores a count: what is known only grows, and with it what a program is told.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock::udp {

class Losses
{
public:
    void clear() // of a socket that begins
    {
        ours_.store(0, std::memory_order_relaxed);
        kernels_.store(0, std::memory_order_relaxed);
    }
    // Any thread. So many found no room here, or with the sender.
    void add(std::uint32_t count) { ours_.fetch_add(count, std::memory_order_relaxed); }
    // Any thread. The kernel has said this count of its own; one that is older than what is known changes nothing.
    void learn(std::uint32_t count)
    {
        std::uint64_t known = kernels_.load(std::memory_order_relaxed);
        for (;;) {
            const std::uint64_t now = later_of(known, count);
            if (now == known || kernels_.compare_exchange_weak(known, now, std::memory_order_relaxed))
                return;
        }
    }
    std::uint32_t ours() const { return ours_.load(std::memory_order_relaxed); }
    // Of both. With rx_lock from when the datagram was taken on, so that a later datagram never tells less.
    std::uint32_t all() const { return beside(0); }
    // Of both, with a datagram that brings the kernel's count of its time, 0 for none, of a socket that takes the
    // kernel's alone by now. Threads take those without a lock, in any order: nothing is learnt, so each tells what
    // follows from its own count, and those have the order of the queue.
    std::uint32_t beside(std::uint32_t count) const
    {
        const std::uint64_t known = kernels_.load(std::memory_order_relaxed);
        return ours() + static_cast<std::uint32_t>(count != 0 ? later_of(known, count) : known);
    }

private:
    // The kernel's counts go round after 2^32; `known` does not, so that 0 means that nothing is known yet.
    static std::uint64_t later_of(std::uint64_t known, std::uint32_t count)
    {
        if (known == 0)
            return count;
        const auto ahead = static_cast<std::int32_t>(count - static_cast<std::uint32_t>(known));
        return ahead > 0 ? known + static_cast<std::uint32_t>(ahead) : known;
    }

    std::atomic<std::uint32_t> ours_{0};
    std::atomic<std::uint64_t> kernels_{0}; // the latest that is known
};

} // namespace vma::sock::udp
