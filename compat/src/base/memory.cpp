// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/memory.hpp"

#include <stdlib.h>

#include <atomic>

namespace vma::memory {

namespace {

constinit std::atomic<Allocate> g_allocate{&::malloc};
constinit std::atomic<Free> g_free{&::free};

} // namespace

void use_allocator(Allocate allocate, Free free)
{
    g_allocate.store(allocate, std::memory_order_relaxed);
    g_free.store(free, std::memory_order_relaxed);
}

Allocator chosen_allocator()
{
    const Allocator chosen = {g_allocate.load(std::memory_order_relaxed), g_free.load(std::memory_order_relaxed)};
    return chosen.allocate != &::malloc ? chosen : Allocator{nullptr, nullptr};
}

void *allocate(std::size_t bytes)
{
    return g_allocate.load(std::memory_order_relaxed)(bytes);
}

void release(void *memory)
{
    if (memory != nullptr)
        g_free.load(std::memory_order_relaxed)(memory);
}

} // namespace vma::memory
