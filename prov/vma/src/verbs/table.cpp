// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/table.hpp"

#include <atomic>

#include "core/made_once.hpp"

namespace vma::verbs {
namespace {

struct Loaded {
    Table table{};
    bool is_whole = load();

    bool load()
    {
        // It stands on libibverbs, whose functions are found through it.
        const core::Library library("librdmacm.so.1", "no RDMA device is used");
        return true VMA_VERBS_FUNCTIONS(VMA_LIBRARY_FIND);
    }
};

// The process's; it doesn't change once it is loaded, so it needs no lock.
constinit core::MadeOnce<Loaded> g_loaded;
// A test's table in its place, set before a fabric is opened: atomic, without a lock.
constinit std::atomic<const Table *> g_other{nullptr};
constinit std::atomic<bool> g_replaced{false};

} // namespace

const Table *table() noexcept
{
    if (is_replaced())
        return g_other.load(std::memory_order_relaxed);
    const Loaded &loaded = g_loaded.get();
    return loaded.is_whole ? &loaded.table : nullptr;
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
    g_other.store(other, std::memory_order_relaxed);
    g_replaced.store(true, std::memory_order_release);
}

bool is_replaced() noexcept
{
    return g_replaced.load(std::memory_order_acquire);
}

} // namespace vma::verbs
