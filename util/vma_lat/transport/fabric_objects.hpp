// SPDX-License-Identifier: BSD-2-Clause
// libfabric's objects with an owner each, and the search for endpoints of a provider: what every test over libfabric
// needs.
#pragma once

#include "util/vma_lat/address.hpp"
#include "util/vma_lat/transport/libfabric.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace vma::lat {

template <typename T> struct FidCloser {
    void operator()(T *object) const { fi_close(&object->fid); }
};
template <typename T> using Fid = std::unique_ptr<T, FidCloser<T>>;

struct InfoFree {
    void operator()(fi_info *info) const { libfabric().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFree>;

// "WHAT: what libfabric says of it". Results of either sign.
Error fabric_error(const char *what, long result);

template <typename T, typename Open> Failure open_object(const char *what, Fid<T> &into, Open &&call)
{
    T *object = nullptr;
    const int result = call(&object);
    if (result != 0)
        return fabric_error(what, result);
    into.reset(object);
    return {};
}

struct Wanted {
    std::string provider;
    std::string domain; // empty: any
    fi_ep_type type = FI_EP_MSG;
    std::uint64_t caps = FI_MSG;
    std::uint64_t order = 0; // of messages, that the test counts on
    std::size_t size = 0;    // bytes of the largest message
};

// `flags`: FI_SOURCE for an address of this side's.
Failure find_endpoints(const Wanted &wanted, const Address &address, std::uint64_t flags, Info &info);

} // namespace vma::lat
