// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/table.hpp"

#include <atomic>
#include <dlfcn.h>
#include <mutex>

#include "core/log.hpp"

namespace vma::verbs {
namespace {

constexpr const char *kLibraries[] = {"libibverbs.so.1", "librdmacm.so.1"};

std::mutex g_mutex;
std::atomic<const Table *> g_table{nullptr};
std::atomic<bool> g_known{false};
std::atomic<bool> g_replaced{false};
constinit Table g_loaded{};

template <typename Function> bool find(void *const (&libraries)[2], const char *symbol, Function &function)
{
    for (void *library : libraries) {
        if (void *found = ::dlsym(library, symbol)) {
            function = reinterpret_cast<Function>(found);
            return true;
        }
    }
    VMA_WARN(fabric, "rdma-core is too old, it has no %s(): no RDMA device is used", symbol);
    return false;
}

bool load(Table &table)
{
    void *libraries[2] = {};
    for (int i = 0; i < 2; ++i) {
        libraries[i] = ::dlopen(kLibraries[i], RTLD_NOW | RTLD_LOCAL);
        if (libraries[i] == nullptr) {
            VMA_INFO(fabric, "no RDMA device is used: %s", ::dlerror());
            return false;
        }
    }
#define VMA_VERBS_FIND(member, symbol)                                                                                 \
    if (!find(libraries, #symbol, table.member))                                                                       \
        return false;
    VMA_VERBS_FUNCTIONS(VMA_VERBS_FIND)
#undef VMA_VERBS_FIND
    return true;
}

} // namespace

const Table *table() noexcept
{
    if (!g_known.load(std::memory_order_acquire)) {
        const std::lock_guard guard(g_mutex);
        if (!g_known.load(std::memory_order_relaxed)) {
            g_table.store(load(g_loaded) ? &g_loaded : nullptr, std::memory_order_relaxed);
            g_known.store(true, std::memory_order_release);
        }
    }
    return g_table.load(std::memory_order_relaxed);
}

void use_table(const Table *other) noexcept
{
    g_replaced.store(true, std::memory_order_relaxed);
    g_table.store(other, std::memory_order_relaxed);
    g_known.store(true, std::memory_order_release);
}

bool is_replaced() noexcept
{
    return g_replaced.load(std::memory_order_relaxed);
}

} // namespace vma::verbs
