// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/engine/retired.hpp"

#include <atomic>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/table/socket_sets.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::sock {

namespace {

constexpr int kMostAtOnce = 8; // no other thread polls meanwhile

void close_next(int most)
{
    engine_exclude_polling(true, kAllRings);
    int next = -1;
    for (int i = 0; i < most && (next = g_engine_tables.retired.next(0, pool_size() - 1)) >= 0; ++i) {
        g_engine_tables.retired.remove(next);
        fi_close(&as_stream(*socket_by_index(static_cast<std::uint32_t>(next))).retired->fid);
        --engine_device().users;
    }
    engine_exclude_polling(false, kAllRings);
}

bool any_retired()
{
    return pool_size() != 0 && g_engine_tables.retired.next(0, pool_size() - 1) >= 0;
}

} // namespace

bool retire(Stream &s, fid_ep &endpoint)
{
    const int index = static_cast<int>(s.index);
    if (g_engine_tables.retired.has(index))
        return false;
    s.retired = &endpoint;
    g_engine_tables.retired.add(index);
    return true;
}

void retired_must_stay()
{
    g_engine_tables.may_close_retired.store(false, std::memory_order_release);
}

void retired_may_go()
{
    g_engine_tables.may_close_retired.store(any_retired(), std::memory_order_release);
}

void wake_for_retired()
{
    if (g_engine_tables.may_close_retired.load(std::memory_order_relaxed))
        engine_wake_helper();
}

bool close_some_retired()
{
    if (!g_engine_tables.may_close_retired.load(std::memory_order_acquire))
        return false;
    const LockGuard guard(g_offload.lock);
    if (any_retired())
        close_next(kMostAtOnce);
    if (any_retired())
        return g_engine_tables.may_close_retired.load(std::memory_order_relaxed);
    retired_must_stay();
    return false;
}

void close_all_retired()
{
    while (any_retired())
        close_next(kMostAtOnce);
    g_engine_tables.may_close_retired.store(false, std::memory_order_relaxed);
}

void retired_after_fork_in_child()
{
    each_index(g_engine_tables.retired,
               [](std::uint32_t index) { g_engine_tables.retired.remove(static_cast<int>(index)); });
    g_engine_tables.may_close_retired.store(false, std::memory_order_relaxed);
}

} // namespace vma::sock
