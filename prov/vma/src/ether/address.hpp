// SPDX-License-Identifier: BSD-2-Clause
// Socket addresses of libfabric as the stack has them, and back.
#pragma once

#include <arpa/inet.h>

#include <cstring>

#include "inet/wire/types.hpp"
#include "ofi/address.hpp"

namespace vma::ether {

inline inet::Endpoint to_endpoint(const ofi::Address &address) noexcept
{
    inet::Endpoint endpoint;
    endpoint.port = address.port();
    if (address.sa.sa_family == AF_INET)
        endpoint.address = inet::IpAddress::v4(ntohl(address.v4.sin_addr.s_addr));
    else
        endpoint.address = inet::IpAddress::v6(address.v6.sin6_addr.s6_addr);
    return endpoint;
}

inline ofi::Address to_socket_address(const inet::Endpoint &endpoint) noexcept
{
    ofi::Address address;
    if (endpoint.address.is_v4()) {
        address.v4.sin_family = AF_INET;
        std::memcpy(&address.v4.sin_addr, endpoint.address.v4_bytes(), 4);
    } else {
        address.v6.sin6_family = AF_INET6;
        std::memcpy(&address.v6.sin6_addr, endpoint.address.bytes.data(), 16);
    }
    address.set_port(endpoint.port);
    return address;
}

} // namespace vma::ether
