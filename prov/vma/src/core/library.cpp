// SPDX-License-Identifier: BSD-2-Clause
#include "core/library.hpp"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "core/log.hpp"

namespace vma::core {

namespace {

// Whoever starts a program that has more rights than he must not say by these what it loads: hwloc's plug-ins and
// rdma-core's drivers are named in the environment, and their guards see set-user-ID, but no capabilities of files.
// What is named, or nullptr.
const char *variable_of_a_stranger()
{
    if (::getauxval(AT_SECURE) == 0)
        return nullptr;
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        for (const char *const prefix : {"HWLOC_", "RDMAV_", "IBV_", "MLX4_", "MLX5_", "LIBBPF_"})
            if (std::strncmp(*entry, prefix, std::strlen(prefix)) == 0)
                return prefix;
    return nullptr;
}

} // namespace

Library::Library(const char *name, const char *loss) noexcept : name_(name), loss_(loss), handle_(nullptr)
{
    if (const char *const prefix = variable_of_a_stranger()) {
        VMA_WARN(fabric,
                 "%s: %s is not loaded into a program that has more rights than who has started it, with %s* in its "
                 "environment",
                 loss, name, prefix);
        return;
    }
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr)
        VMA_INFO(fabric, "%s: %s", loss, ::dlerror());
}

void *Library::address(const char *symbol) const noexcept
{
    void *const found = handle_ != nullptr ? ::dlsym(handle_, symbol) : nullptr;
    if (handle_ != nullptr && found == nullptr)
        VMA_WARN(fabric, "%s: %s is too old, it has no %s()", loss_, name_, symbol);
    return found;
}

} // namespace vma::core
