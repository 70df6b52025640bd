// SPDX-License-Identifier: BSD-2-Clause
// What is to be done at a thread's end: a key of pthread_key_create(3), made when the first thread needs it. Unlike a
// static variable of a function it has no lock that a fork() could leave held in the child, which would wait for it for
// ever.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace vma::libc {

// Lies in a constinit variable of a namespace. Atomic; safe in signal handlers as far as libc's keys are.
class ThreadKey
{
public:
    // `at_end(value)` is called when the calling thread ends, unless value is a null pointer. Always the same function.
    void set(const void *value, void (*at_end)(void *))
    {
        std::uint32_t key = known_.load(std::memory_order_acquire);
        if (key == kNone && (key = make(at_end)) == kNone)
            return; // the program has taken all there are
        ::pthread_setspecific(key - 1, value);
    }

private:
    static constexpr std::uint32_t kNone = 0; // else the key and one

    std::uint32_t make(void (*at_end)(void *))
    {
        pthread_key_t key = 0;
        std::uint32_t known = kNone;
        if (::pthread_key_create(&key, at_end) != 0)
            return known_.load(std::memory_order_acquire);
        if (known_.compare_exchange_strong(known, key + 1, std::memory_order_acq_rel))
            return key + 1;
        ::pthread_key_delete(key); // another thread was faster
        return known;
    }

    std::atomic<std::uint32_t> known_{kNone};
};

} // namespace vma::libc
