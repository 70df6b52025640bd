// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: who opens librdmacm.so.1 gets the library that SIM_NIC_LIBRARY names (sim_rdmacm.cpp). Whoever is linked with the
// real one, as libfabric.so is, keeps it.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

extern "C" [[gnu::visibility("default")]] void *dlopen(const char *name, int flags) noexcept
{
    static const auto real = reinterpret_cast<decltype(&::dlopen)>(::dlsym(RTLD_NEXT, "dlopen"));
    const char *const library = std::getenv("SIM_NIC_LIBRARY");
    if (name != nullptr && library != nullptr && std::strcmp(name, "librdmacm.so.1") == 0)
        name = library;
    return real(name, flags);
}
