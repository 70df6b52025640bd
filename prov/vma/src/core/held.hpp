// SPDX-License-Identifier: BSD-2-Clause
// What a thread counts while it holds a lock of the provider's. Who loads the provider into other people's programs
// (libvma.so) puts their signal handlers off so long: one of them may call in here again, and would wait for ever for
// its own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vma::core {

// A thread's. fi_vma_held is the same (ofi/process_ops.cpp).
struct Held {
    std::uint32_t locks;
    std::uint64_t put_off; // signals, which the last end delivers
};

// FI_VMA_PROCESS_OPS says it, before or while locks are taken.
struct HeldPlace {
    std::atomic<std::ptrdiff_t> offset{0}; // of a thread's Held, from its thread pointer; 0: nobody counts
    std::atomic<void (*)()> deliver{nullptr};
};
extern constinit HeldPlace g_held_place; // the process's

inline char *thread_pointer() noexcept
{
#if defined(__x86_64__)
    char *pointer;
    asm("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
#else
    return static_cast<char *>(__builtin_thread_pointer());
#endif
}

inline Held *held() noexcept
{
    const std::ptrdiff_t offset = g_held_place.offset.load(std::memory_order_acquire);
    return offset != 0 ? reinterpret_cast<Held *>(thread_pointer() + offset) : nullptr;
}

// Before a lock is taken. Whether it is counted, which end_hold() is told: a place may be given in between.
inline bool begin_hold() noexcept
{
    Held *const mine = held();
    if (mine == nullptr)
        return false;
    ++mine->locks;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
}

// Behind its end.
inline void end_hold(bool counted) noexcept
{
    if (!counted)
        return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    Held *const mine = held();
    if (--mine->locks == 0) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (mine->put_off != 0) [[unlikely]]
            g_held_place.deliver.load(std::memory_order_relaxed)();
    }
}

} // namespace vma::core
