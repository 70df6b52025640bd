// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/memory.hpp"

#include <stdlib.h>

#include <atomic>

namespace vma::memory {

namespace {

// Set once, before anything is allocated by it.
constinit struct {
    std::atomic<Allocate> allocate{&::malloc};
    std::atomic<Free> free{&::free};
} g_allocator;

} // namespace

void use_allocator(Allocate allocate, Free free)
{
    g_allocator.allocate.store(allocate, std::memory_order_relaxed);
    g_allocator.free.store(free, std::memory_order_relaxed);
}

Allocator chosen_allocator()
{
    const Allocator chosen = {g_allocator.allocate.load(std::memory_order_relaxed),
                              g_allocator.free.load(std::memory_order_relaxed)};
    return chosen.allocate != &::malloc ? chosen : Allocator{nullptr, nullptr};
}

void *allocate(std::size_t bytes)
{
    return g_allocator.allocate.load(std::memory_order_relaxed)(bytes);
}

void release(void *memory)
{
    if (memory != nullptr)
        g_allocator.free.load(std::memory_order_relaxed)(memory);
}

} // namespace vma::memory
