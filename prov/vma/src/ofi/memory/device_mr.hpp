// SPDX-License-Identifier: BSD-2-Clause
// Memory that a device has registered itself, which so has keys of the device's: RDMA devices, and Ethernet ports by
// raw packets. The other devices' registrations are entries of the domain's table (mr.hpp).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "ofi/domain.hpp"

namespace vma::ofi {

// What fi_mr_desc() stands for: the operations' local descriptor is the registration itself.
struct DeviceMr {
    fid_mr fid{}; // first
    Domain &domain;
    void *handle = nullptr;                    // the device's
    int (*release)(void *) noexcept = nullptr; // gives it back: 0 or a positive errno
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;

    explicit DeviceMr(Domain &owner) noexcept : domain(owner) {}
};

// Completes a registration that the device has made: from here on it is `out`, which fi_close() ends.
void publish(std::unique_ptr<DeviceMr> made, const fi_mr_attr &attr, fid_mr **out) noexcept;

// The device has refused it, with this errno, which is logged. Returns the negative one.
int refused(std::size_t bytes, int error) noexcept;

// Registers the one piece of memory that `attr` has: `ask(memory, made)` fills in handle, keys and release, and returns
// 0 or a negative fi_errno.
template <typename Ask> int register_with_device(Domain &domain, const fi_mr_attr &attr, fid_mr **out, Ask ask) noexcept
{
    std::unique_ptr<DeviceMr> made(new (std::nothrow) DeviceMr(domain));
    if (!made)
        return -FI_ENOMEM;
    if (const int error = ask(attr.mr_iov[0], *made))
        return error;
    publish(std::move(made), attr, out);
    return 0;
}

} // namespace vma::ofi
