// SPDX-License-Identifier: BSD-2-Clause
// What a stream on an Ethernet port knows of its readiness. The port's queue tells of edges only: of bytes, after a
// call that has found no more of them; of room, after a call that was refused.
#pragma once

#include <atomic>
#include <cstdint>

namespace vma::sock {

// Who polls the queue counts its entries. A call notes how many there had been when it began: so "nothing to read" and
// "no room" stand here only of what a call has found so, and with an entry to come. Another thread may look in the
// middle of a call, and goes by what it sees: an epoll set takes the socket off its list.
class PortReadiness
{
public:
    void reset()
    {
        told_of_bytes_.store(0, std::memory_order_relaxed);
        found_none_at_.store(0, std::memory_order_relaxed);
        told_of_room_.store(0, std::memory_order_relaxed);
        refused_at_.store(kNever, std::memory_order_release);
    }

    // ---- the port's queue; poll lock held
    void tell_bytes() { told_of_bytes_.fetch_add(1, std::memory_order_release); }
    void tell_room() { told_of_room_.fetch_add(1, std::memory_order_release); }

    // ---- any thread
    [[nodiscard]] bool readable() const
    {
        return told_of_bytes_.load(std::memory_order_acquire) != found_none_at_.load(std::memory_order_acquire);
    }
    [[nodiscard]] bool writable() const
    {
        return told_of_room_.load(std::memory_order_acquire) != refused_at_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint64_t told_of_bytes() const { return told_of_bytes_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t told_of_room() const { return told_of_room_.load(std::memory_order_acquire); }

    // ---- calls that receive, rx_lock held. `told`: told_of_bytes() before the call
    void note_empty(std::uint64_t told) { found_none_at_.store(told, std::memory_order_release); }
    // There are more bytes, or the end is to be heard, whether an entry has been read that tells of it or not.
    void note_readable()
    {
        const std::uint64_t told = told_of_bytes();
        if (found_none_at_.load(std::memory_order_relaxed) == told)
            found_none_at_.store(told - 1, std::memory_order_release);
    }

    // ---- calls that send, tx_lock held. `told`: told_of_room() before the call. False: an entry has come since
    [[nodiscard]] bool note_refused(std::uint64_t told)
    {
        refused_at_.store(told, std::memory_order_release);
        return told_of_room() == told;
    }

private:
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};

    std::atomic<std::uint64_t> told_of_bytes_{0};
    std::atomic<std::uint64_t> found_none_at_{0};
    std::atomic<std::uint64_t> told_of_room_{0};
    std::atomic<std::uint64_t> refused_at_{kNever};
};

} // namespace vma::sock
