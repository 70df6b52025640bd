// SPDX-License-Identifier: BSD-2-Clause
// Entry point of the provider: libfabric and libvma.so call fi_prov_ini() after loading libvma-fi.so.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include "ofi/attr.hpp"
#include "ofi/fabric.hpp"
#include "ofi/getinfo.hpp"
#include "ofi/libfabric.hpp"

namespace {

void cleanup()
{
    vma::ofi::detach_libfabric();
}

// Writable: the core keeps its own flags in `context`. `fi_version` follows the libfabric that has loaded us: one of 2.x shows programs of
// its own version no provider that says 1.17. What they differ in doesn't concern us, as the library allocates its structures (info.cpp).
constinit fi_provider g_provider = {
    .version = vma::ofi::kProviderVersion,
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .context = {},
    .name = vma::ofi::kProviderName,
    .getinfo = vma::ofi::getinfo,
    .fabric = vma::ofi::open_fabric,
    .cleanup = cleanup,
};

} // namespace

extern "C" FI_EXT_INI
{
    vma::ofi::attach_libfabric(&g_provider, __builtin_return_address(0));
    g_provider.fi_version = vma::ofi::libfabric_version();
    return &g_provider;
}
