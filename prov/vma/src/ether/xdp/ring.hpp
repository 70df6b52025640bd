// SPDX-License-Identifier: BSD-2-Clause
// One of an AF_XDP socket's four rings as shared with the kernel: our side of a single-producer, single-consumer queue.
// Knows nothing of what its entries mean. Where several processes are our side, one at a time, each resumes where the
// last one was.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::ether {

// Indexes run freely over 32 bits; the size is a power of two. The kernel is trusted: it could read our memory anyway.
template <typename Entry> class XdpRing
{
public:
    XdpRing() noexcept = default;
    XdpRing(std::uint32_t *producer, std::uint32_t *consumer, const std::uint32_t *flags, Entry *entries,
            std::uint32_t size) noexcept
        : producer_(producer), consumer_(consumer), flags_(flags), entries_(entries), size_(size)
    {
    }

    // Producing: put() as often as space() says, then publish(). Nothing is seen before.
    std::uint32_t space() noexcept // reads the kernel's index only when the ring looks full
    {
        if (mine_ - theirs_ == size_)
            theirs_ = load(consumer_);
        return size_ - (mine_ - theirs_);
    }
    bool has_space(std::uint32_t entries) noexcept // reads the kernel's index only when they don't seem to fit
    {
        if (size_ - (mine_ - theirs_) < entries)
            theirs_ = load(consumer_);
        return size_ - (mine_ - theirs_) >= entries;
    }
    void put(const Entry &entry) noexcept { entries_[mine_++ & (size_ - 1)] = entry; }
    void publish() noexcept { std::atomic_ref(*producer_).store(mine_, std::memory_order_release); }
    std::uint32_t untaken() const noexcept { return mine_ - load(consumer_); } // published, and not yet the kernel's

    // Consuming: get() as often as ready() says, then give_back().
    std::uint32_t ready() noexcept // reads the kernel's index only when the ring looks empty
    {
        if (theirs_ == mine_)
            theirs_ = load(producer_);
        return theirs_ - mine_;
    }
    std::uint32_t waiting() const noexcept { return load(producer_) - mine_; } // as ready(), and nothing is changed
    const Entry &get() noexcept { return entries_[mine_++ & (size_ - 1)]; }
    void give_back() noexcept { std::atomic_ref(*consumer_).store(mine_, std::memory_order_release); }

    // Our side goes on where it was left: by another process, or by the one that had the ring before.
    void resume_producing() noexcept
    {
        mine_ = load(producer_);
        theirs_ = load(consumer_);
    }
    void resume_consuming() noexcept
    {
        mine_ = load(consumer_);
        theirs_ = load(producer_);
    }
    std::uint32_t position() const noexcept { return mine_; } // of the entry that put() or get() is at next
    std::uint32_t level() const noexcept { return load(producer_) - load(consumer_); } // entries that all can see
    const Entry &at(std::uint32_t position) const noexcept { return entries_[position & (size_ - 1)]; }

    // The kernel asks for a system call to go on.
    std::uint32_t flags() const noexcept
    {
        return std::atomic_ref(*const_cast<std::uint32_t *>(flags_)).load(std::memory_order_relaxed);
    }
    std::uint32_t size() const noexcept { return size_; }

private:
    static std::uint32_t load(std::uint32_t *index) noexcept
    {
        return std::atomic_ref(*index).load(std::memory_order_acquire);
    }

    std::uint32_t *producer_ = nullptr;
    std::uint32_t *consumer_ = nullptr;
    const std::uint32_t *flags_ = nullptr;
    Entry *entries_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t mine_ = 0;   // our index, which the kernel sees after publish() or give_back()
    std::uint32_t theirs_ = 0; // the kernel's, as last read
};

} // namespace vma::ether
