// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/transport/libfabric.hpp"

#include "util/vma_lat/clock.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace vma::lat {

namespace {

Libfabric g_calls{};

template <typename T> bool find(void *library, const char *name, const char *version, T &call)
{
    call = reinterpret_cast<T>(dlvsym(library, name, version));
    return call != nullptr;
}

} // namespace

Failure load_libfabric()
{
    if (g_calls.getinfo != nullptr)
        return {};
    setenv("IPATH_NO_BACKTRACE", "1", 0); // a library of Debian's libfabric would catch SIGSEGV
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    catch_signals(); // whatever it took is ours again
    if (library == nullptr)
        return error(kExitFailed, "--fabric needs libfabric.so.1, which can't be loaded: %s", dlerror());
    // The versions whose structures this program was compiled with: a newer library keeps them.
    Libfabric calls{};
    if (!find(library, "fi_freeinfo", "FABRIC_1.3", calls.freeinfo) ||
        !find(library, "fi_dupinfo", "FABRIC_1.3", calls.dupinfo) ||
        !find(library, "fi_fabric", "FABRIC_1.1", calls.fabric) ||
        !find(library, "fi_strerror", "FABRIC_1.0", calls.strerror) ||
        !find(library, "fi_getinfo", "FABRIC_1.3", calls.getinfo))
        return error(kExitFailed, "--fabric needs libfabric 1.17 or newer, and this is none: %s", dlerror());
    g_calls = calls;
    return {};
}

const Libfabric &libfabric()
{
    return g_calls;
}

} // namespace vma::lat
