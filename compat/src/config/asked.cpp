// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/asked.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "compat/src/libc/loaded.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::config {

namespace {

// Not among the other texts, which are on pages of their own.
constexpr char kName[] = "libvma.so", kSigaction[] = "sigaction";

// The program itself is the first in the list.
[[VMA_AT_STARTUP]] bool is_linked()
{
    const link_map *const program = _r_debug.r_map;
    if (program == nullptr)
        return false;
    const char *names = nullptr;
    for (const ElfW(Dyn) *entry = program->l_ld; entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == DT_STRTAB)
            names = reinterpret_cast<const char *>(libc::address_in(*program, entry->d_un.d_ptr));
    for (const ElfW(Dyn) *entry = program->l_ld; names != nullptr && entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == DT_NEEDED && std::strncmp(names + entry->d_un.d_val, kName, std::strlen(kName)) == 0)
            return true;
    return false;
}

} // namespace

[[VMA_AT_STARTUP]] bool is_opened()
{
    const char *const found = static_cast<const char *>(::dlsym(RTLD_DEFAULT, kSigaction));
    return found < __ehdr_start || found >= _end;
}

[[VMA_AT_STARTUP]] bool is_asked_for()
{
    const char *const preloaded = ::secure_getenv("LD_PRELOAD");
    return (preloaded != nullptr && std::strstr(preloaded, kName) != nullptr) || is_linked() || is_opened();
}

} // namespace vma::config
