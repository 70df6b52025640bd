// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/table.hpp"

#include <atomic>
#include <mutex>

namespace vma::verbs {
namespace {

std::mutex g_mutex;
std::atomic<const Table *> g_table{nullptr};
std::atomic<bool> g_known{false};
std::atomic<bool> g_replaced{false};
constinit Table g_loaded{};

bool load(Table &table)
{
    // It stands on libibverbs, whose functions are found through it.
    const core::Library library("librdmacm.so.1", "no RDMA device is used");
    return true VMA_VERBS_FUNCTIONS(VMA_LIBRARY_FIND);
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

void open_drivers() noexcept
{
    const Table *const verbs = table();
    if (verbs == nullptr)
        return;
    if (ibv_device **const list = verbs->get_device_list(nullptr))
        verbs->free_device_list(list);
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
