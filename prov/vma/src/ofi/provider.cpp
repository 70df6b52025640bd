// SPDX-License-Identifier: BSD-2-Clause
// Entry point of the provider: libfabric and libvma.so call fi_prov_ini() after loading libvma-fi.so.
#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>

#include <cstdlib>
#include <cstring>

#include "ofi/fabric.hpp"
#include "ofi/info/attr.hpp"
#include "ofi/info/getinfo.hpp"
#include "ofi/libfabric.hpp"

namespace {

void cleanup()
{
    vma::ofi::detach_libfabric();
}

// libfabric's, under its own lock. Writable: the core keeps its own flags in `context`. `fi_version` follows the
// libfabric that has loaded us: one of 2.x shows programs of its own version no provider that says 1.17. What they
// differ in doesn't concern us, as the library allocates its structures (ofi/info/info.cpp).
constinit fi_provider g_provider = {
    .version = vma::ofi::kProviderVersion,
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .context = {},
    .name = vma::ofi::kProviderName,
    .getinfo = vma::ofi::getinfo,
    .fabric = vma::ofi::open_fabric,
    .cleanup = cleanup,
};

// libfabric's own use of fi_provider::context, the same from 1.12 to 2.6 (struct ofi_prov_context).
struct LibraryFlags {
    int type;
    bool disable_logging;
    bool disable_layering; // ofi_rxm and ofi_rxd come over us only for who names them: "vma;ofi_rxm"
};
static_assert(sizeof(LibraryFlags) <= sizeof(fi_context));

// libfabric lists what its utility providers make of us before what we are ourselves, so FI_EP_RDM of "vma" would be
// ofi_rxm's, which takes a connection to each process of this host too, and is what our own endpoint goes by to other
// hosts. FI_PROVIDER can't hold the name of a layer over another, only both names, so who has one of the layers in
// there wants it.
void prefer_our_own()
{
    const char *const wanted = ::secure_getenv("FI_PROVIDER");
    if (wanted != nullptr && std::strstr(wanted, "ofi_rx") != nullptr)
        return;
    LibraryFlags flags{};
    flags.disable_layering = true;
    std::memcpy(&g_provider.context, &flags, sizeof flags);
}

} // namespace

extern "C" FI_EXT_INI
{
    vma::ofi::attach_libfabric(&g_provider, __builtin_return_address(0));
    g_provider.fi_version = vma::ofi::libfabric_version();
    prefer_our_own();
    return &g_provider;
}
