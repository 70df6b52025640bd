// SPDX-License-Identifier: BSD-2-Clause
// Counting. Who counts holds the lock that layout.hpp names, so a plain addition is enough; next to a system call,
// where no lock is held, it is atomic. The numbers are read by other processes at any time.
#pragma once

#include <errno.h>
#include <sys/types.h>

#include <cstdint>

#include "compat/src/base/process_words.hpp"
#include "compat/src/libc/this_thread.hpp"
#include "compat/src/stats/capture.hpp"
#include "compat/src/stats/layout.hpp"

namespace vma::stats {

template <typename T> inline T get(const T &word)
{
    T value;
    __atomic_load(&word, &value, __ATOMIC_RELAXED);
    return value;
}

template <typename T> inline void set(T &word, T value)
{
    __atomic_store(&word, &value, __ATOMIC_RELAXED);
}

// One writer at a time. A reader sees the old number or the new one: what a relaxed load and store would be, which
// compilers make three instructions of.
inline void add(std::uint64_t &counter, std::uint64_t more = 1)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    asm("addq %1, %0" : "+m"(counter) : "er"(more) : "cc");
#else
    set(counter, get(counter) + more);
#endif
}

inline void add_shared(std::uint64_t &counter, std::uint64_t more = 1)
{
    __atomic_fetch_add(&counter, more, __ATOMIC_RELAXED);
}

inline void raise(std::uint64_t &most, std::uint64_t value)
{
    if (value > get(most)) [[unlikely]]
        set(most, value);
}

std::uint32_t ask_thread();

inline std::uint32_t this_thread()
{
    return libc::t_libc.id != 0 ? libc::t_libc.id : ask_thread();
}

// Which thread it was is looked at once in 64 packets; with each of them while somebody listens.
inline bool is_noted(std::uint64_t packets)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    bool none = false; // one instruction, as the test of a constant is; of an atomic compilers make three
    asm("testl %1, %2" : "=@ccz"(none) : "r"(static_cast<std::uint32_t>(packets)), "m"(sock::g_process.noted));
    return !none;
#else
    return (packets & sock::g_process.noted.load(std::memory_order_relaxed)) != 0;
#endif
}

// ---- by a device ----------------------------------------------------------------------------------------------------

// `show`, of the record, calls capture_sent() or capture_received().
template <typename Show> inline void sent(Slot &slot, std::uint64_t bytes, const Show &show) // tx_lock
{
    Sent &tx = slot.now.tx;
    if (!is_noted(get(tx.packets))) [[unlikely]] {
        set(tx.thread, this_thread());
        if (is_captured())
            show(slot);
    }
    add(tx.packets);
    add(tx.bytes, bytes);
}

template <typename Show> inline void received(Slot &slot, std::uint64_t bytes, const Show &show) // rx_lock
{
    Received &rx = slot.now.rx;
    if (!is_noted(get(rx.packets))) [[unlikely]] {
        set(rx.thread, this_thread());
        if (is_captured())
            show(slot);
    }
    add(rx.packets);
    add(rx.bytes, bytes);
}

inline void arrived(Slot &slot, std::uint64_t bytes) // poll lock
{
    Arrived &in = slot.now.in;
    add(in.packets);
    add(in.bytes, bytes);
}

inline void dropped(Slot &slot, std::uint64_t bytes, std::uint64_t packets = 1) // poll lock
{
    add(slot.now.in.dropped_packets, packets);
    add(slot.now.in.dropped_bytes, bytes);
}

// A call on a device that failed with `error`; any lock or none.
inline void send_failed(Slot &slot, int error)
{
    add(error == EAGAIN ? slot.now.tx.eagain : slot.now.tx.errors);
}

inline void receive_failed(Slot &slot, int error)
{
    add(error == EAGAIN ? slot.now.rx.eagain : slot.now.rx.errors);
}

// For sends that only warm the way (dummy sends). tx_lock.
inline void dummy_sent(Slot &slot)
{
    add(slot.now.tx.dummies);
}

// ---- by the kernel: what its call returned, errno as it left it. No lock. -------------------------------------------

inline void os_sent(Slot &slot, ssize_t n, std::uint64_t packets = 1)
{
    Sent &tx = slot.now.tx;
    if (n >= 0) [[likely]] {
        add_shared(tx.os_packets, packets);
        add_shared(tx.os_bytes, static_cast<std::uint64_t>(n));
        set(tx.thread, this_thread());
    } else {
        add_shared(errno == EAGAIN ? tx.os_eagain : tx.os_errors);
    }
}

inline void os_received(Slot &slot, ssize_t n, std::uint64_t packets = 1)
{
    Received &rx = slot.now.rx;
    if (n >= 0) [[likely]] {
        add_shared(rx.os_packets, packets);
        add_shared(rx.os_bytes, static_cast<std::uint64_t>(n));
        set(rx.thread, this_thread());
    } else {
        add_shared(errno == EAGAIN ? rx.os_eagain : rx.os_errors);
    }
}

// It moved between kernel and device.
inline void migrated(Slot &slot)
{
    add(slot.now.rx.migrations);
    add(slot.now.tx.migrations);
}

} // namespace vma::stats
