// SPDX-License-Identifier: BSD-2-Clause
#include "core/library.hpp"

#include <dlfcn.h>

#include "core/log.hpp"

namespace vma::core {

Library::Library(const char *name, const char *loss) noexcept
    : name_(name), loss_(loss), handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL))
{
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
