// SPDX-License-Identifier: BSD-2-Clause
// A TCP connection of the kernel's, with both ends here, and endpoints that stand beside it.
#pragma once

#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <rdma/fi_endpoint.h>

#include "core/fd.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::test {

struct TcpPair {
    core::UniqueFd client;
    core::UniqueFd server;

    explicit TcpPair(const char *address = "127.0.0.1", int family = AF_INET, int options = 0)
    {
        const core::UniqueFd listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        client = core::UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_storage name{};
        socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        name.ss_family = static_cast<sa_family_t>(family);
        void *const bytes = family == AF_INET
                                ? static_cast<void *>(&reinterpret_cast<sockaddr_in *>(&name)->sin_addr)
                                : static_cast<void *>(&reinterpret_cast<sockaddr_in6 *>(&name)->sin6_addr);
        assert_int_equal(::inet_pton(family, address, bytes), 1);
        auto *const generic = reinterpret_cast<sockaddr *>(&name);
        assert_int_equal(::bind(listener.get(), generic, length), 0);
        assert_int_equal(::listen(listener.get(), 1), 0);
        assert_int_equal(::getsockname(listener.get(), generic, &length), 0);
        if (options != 0)
            assert_int_equal(::setsockopt(client.get(), SOL_SOCKET, options, "lo", 3), 0);
        assert_int_equal(::connect(client.get(), generic, length), 0);
        server = core::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        assert_true(static_cast<bool>(server));
    }
};

inline int stand_beside(fid_ep *ep, const core::UniqueFd &socket)
{
    const int fd = socket.get();
    return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_TCP_SOCKET), &fd, sizeof fd);
}

} // namespace vma::test
