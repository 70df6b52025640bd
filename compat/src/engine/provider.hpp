// SPDX-License-Identifier: BSD-2-Clause
// The provider libvma-fi.so: loaded by the first socket that wants it, asked for its devices, given our log. What is
// opened of it stands in engine.hpp and device.hpp. Offload lock held, but for the loading itself.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>
#include <rdma/providers/fi_prov.h>

#include <cstdint>

namespace vma::sock {

struct Addresses;

// Loads it, or what its RDMA devices need: loading.hpp tells when. No lock held. That it can't be loaded is said once
// in the log.
void load_provider();
void open_rdma_libraries();

// It, once it was tried. nullptr: it is not there.
fi_provider *provider();

// Streams and datagrams of this host; streams to another one over an RDMA device, or by an Ethernet port.
enum class Want : std::uint8_t { kStreams, kDatagrams, kRdmaStreams, kPortStreams };

// What there is of it; with `addresses`, for the last two, of the device that has the local one of them, and may reach
// the peer's. 0 or a negative fi_errno; the caller frees `info` with fi_ops_vma_process::freeinfo.
int find_device(fi_provider &provider, Want want, const Addresses *addresses, fi_info *&info);

// Tells it our log and our directory, and that its descriptors are not the program's.
void introduce_provider(const fi_ops_vma_process &process);

} // namespace vma::sock
