// SPDX-License-Identifier: BSD-2-Clause
#include "core/hwloc_table.hpp"

#include <atomic>
#include <dlfcn.h>

#include "core/log.hpp"

namespace vma::core {
namespace {

constexpr const char *kLibrary = "libhwloc.so.15"; // hwloc 2.x

constinit std::atomic<const char *> g_library{kLibrary};

template <typename Function> bool find(void *library, const char *symbol, Function &function)
{
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    if (function == nullptr)
        VMA_WARN(fabric, "hwloc is older than 2.1, it has no %s(): all devices count as equally near", symbol);
    return function != nullptr;
}

} // namespace

std::optional<HwlocTable> open_hwloc() noexcept
{
    // Never closed: what a library leaves in a program's threads and exit handlers must not lose its code.
    void *const library = ::dlopen(g_library.load(std::memory_order_relaxed), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        VMA_INFO(fabric, "all devices count as equally near: %s", ::dlerror());
        return std::nullopt;
    }
    HwlocTable table{};
#define VMA_HWLOC_FIND(member, symbol)                                                                                 \
    if (!find(library, #symbol, table.member))                                                                         \
        return std::nullopt;
    VMA_HWLOC_FUNCTIONS(VMA_HWLOC_FIND)
#undef VMA_HWLOC_FIND
    return table;
}

void use_hwloc_library(const char *name) noexcept
{
    g_library.store(name != nullptr ? name : kLibrary, std::memory_order_relaxed);
}

} // namespace vma::core
