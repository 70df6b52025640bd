// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/memory.hpp"

#include <stdlib.h>

#include <atomic>

#include "compat/src/base/process_words.hpp"

namespace vma::memory {

void use_allocator(Allocate allocate, Free free)
{
    sock::g_process.allocator.allocate.store(allocate, std::memory_order_relaxed);
    sock::g_process.allocator.free.store(free, std::memory_order_relaxed);
}

Allocator chosen_allocator()
{
    const Allocator chosen = {sock::g_process.allocator.allocate.load(std::memory_order_relaxed),
                              sock::g_process.allocator.free.load(std::memory_order_relaxed)};
    return chosen.allocate != &::malloc ? chosen : Allocator{nullptr, nullptr};
}

void *allocate(std::size_t bytes)
{
    return sock::g_process.allocator.allocate.load(std::memory_order_relaxed)(bytes);
}

void release(void *memory)
{
    if (memory != nullptr)
        sock::g_process.allocator.free.load(std::memory_order_relaxed)(memory);
}

} // namespace vma::memory
