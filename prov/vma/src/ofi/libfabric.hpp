// SPDX-License-Identifier: BSD-2-Clause
// The libfabric core, when it is what loaded us: its log, its parameters' help and its allocation of fi_info, whose
// structures may be larger than those we were built with. Without it everything here has an answer of its own.
#pragma once

#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

namespace vma::ofi {

// From fi_prov_ini(): `caller` is its return address. Uses libfabric only if the caller lies in it.
void attach_libfabric(const fi_provider *provider, const void *caller) noexcept;
void detach_libfabric() noexcept;
bool libfabric_attached() noexcept;
// The newest interface that the libfabric which has loaded us speaks; without one, that of the headers we are made
// with.
std::uint32_t libfabric_version() noexcept;

// What we need of it as a program does, to use other providers.
struct LibfabricCalls {
    decltype(&::fi_getinfo) getinfo;
    decltype(&::fi_freeinfo) freeinfo;
    decltype(&::fi_dupinfo) dupinfo;
    decltype(&::fi_fabric) fabric;
    decltype(&::fi_strerror) strerror;
};
// nullptr: it hasn't loaded us.
const LibfabricCalls *libfabric_calls() noexcept;

// All attribute structures are there, zeroed. nullptr without memory. For fi_freeinfo() or free_info().
fi_info *allocate_info() noexcept;

// Parameters of the environment.
enum class Param : int {
    directory,
    device,
    interface,
    address,
    port,
    retry_count,
    rnr_retry,
    ack_timeout,
    min_rnr_timer,
    fast_connections,
    fast_depth,
    fast_size,
    guardian,
    ethernet,
    ethernet_offloads,
    ethernet_processes,
    ethernet_stamps,
    ethernet_xdp,
    gro_streams_max,
    huge_pages,
    network,
    config,
};
// The value of FI_VMA_<NAME>, else of its other name, else nullptr.
const char *param(Param which) noexcept;
// From now on `value`, which must stay for ever, stands for the variables; nullptr: they do again.
void override_param(Param which, const char *value) noexcept;
// What it is where none of the variables is set; likewise.
void default_param(Param which, const char *value) noexcept;

} // namespace vma::ofi
