// SPDX-License-Identifier: BSD-2-Clause
// libfabric.so.1, opened when a test wants it and not before: Debian's loads some twenty libraries, and a test of
// sockets must not have them in its process. All but these five calls go through the objects' own tables.
#pragma once

#include "util/vma_lat/measure/text.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cstdint>

namespace vma::lat {

struct Libfabric {
    int (*getinfo)(std::uint32_t version, const char *node, const char *service, std::uint64_t flags,
                   const fi_info *hints, fi_info **info);
    void (*freeinfo)(fi_info *info);
    fi_info *(*dupinfo)(const fi_info *info);
    int (*fabric)(fi_fabric_attr *attr, fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
};

// Stays open: libfabric is not made to be unloaded.
Failure load_libfabric();
const Libfabric &libfabric();

} // namespace vma::lat
