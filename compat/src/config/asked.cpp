// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/asked.hpp"
#include "compat/src/libc/sections.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>

// This library, from its first byte to behind its last one; the linker's names.
extern "C" [[gnu::visibility("hidden")]] const char __ehdr_start[];
extern "C" [[gnu::visibility("hidden")]] const char _end[];

namespace vma::config {

namespace {

constexpr const char *kName = "libvma.so";

[[VMA_AT_STARTUP]] const ElfW(Dyn) * entry_of(const link_map &object, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *entry = object.l_ld; entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == tag)
            return entry;
    return nullptr;
}

// The program itself is the first in the list.
[[VMA_AT_STARTUP]] bool is_linked()
{
    const link_map *const program = _r_debug.r_map;
    const ElfW(Dyn) *const texts = program != nullptr ? entry_of(*program, DT_STRTAB) : nullptr;
    if (texts == nullptr)
        return false;
    const ElfW(Addr) moved =
        texts->d_un.d_ptr < program->l_addr ? program->l_addr : 0; // the loader adds it, not always
    const char *const names = reinterpret_cast<const char *>(texts->d_un.d_ptr + moved);
    for (const ElfW(Dyn) *entry = program->l_ld; entry->d_tag != DT_NULL; ++entry)
        if (entry->d_tag == DT_NEEDED && std::strncmp(names + entry->d_un.d_val, kName, std::strlen(kName)) == 0)
            return true;
    return false;
}

} // namespace

[[VMA_AT_STARTUP]] bool is_opened()
{
    const char *const found = static_cast<const char *>(::dlsym(RTLD_DEFAULT, "sigaction"));
    return found < __ehdr_start || found >= _end;
}

[[VMA_AT_STARTUP]] bool is_asked_for()
{
    const char *const preloaded = ::secure_getenv("LD_PRELOAD");
    return (preloaded != nullptr && std::strstr(preloaded, kName) != nullptr) || is_linked() || is_opened();
}

} // namespace vma::config
