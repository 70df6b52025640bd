// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/base/addresses.hpp"

#include <arpa/inet.h>
#include <string.h>

#include <cstdio>

#include "compat/src/libc/real.hpp"

namespace vma::sock {

bool to_v6(const void *address, sockaddr_in6 &out)
{
    sa_family_t family = AF_UNSPEC;
    memcpy(&family, address, sizeof family);
    if (family == AF_INET6) {
        memcpy(&out, address, sizeof out);
        return true;
    }
    if (family != AF_INET)
        return false;
    sockaddr_in v4;
    memcpy(&v4, address, sizeof v4);
    out = {};
    out.sin6_family = AF_INET6;
    out.sin6_addr = mapped(v4.sin_addr);
    out.sin6_port = v4.sin_port;
    return true;
}

in6_addr mapped(const in_addr &v4)
{
    in6_addr out = {};
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    memcpy(&out.s6_addr[12], &v4, sizeof v4);
    return out;
}

bool is_loopback(const in6_addr &a)
{
    return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
}

bool read_address(int fd, Side side, sockaddr_in6 &out)
{
    sockaddr_storage name = {};
    socklen_t length = sizeof name;
    auto *const address = reinterpret_cast<sockaddr *>(&name);
    const int result = side == Side::kPeer ? libc::real.getpeername(fd, address, &length)
                                           : libc::real.getsockname(fd, address, &length);
    return result == 0 && to_v6(&name, out);
}

const char *print_address(const sockaddr_in6 &a, char (&out)[kAddressText])
{
    char text[INET6_ADDRSTRLEN] = "?";
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&a.sin6_addr);
    const void *const bytes = v4 ? &a.sin6_addr.s6_addr[12] : &a.sin6_addr.s6_addr[0];
    ::inet_ntop(v4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
    std::snprintf(out, sizeof out, v4 ? "%s:%u" : "[%s]:%u", text, ntohs(a.sin6_port));
    return out;
}

} // namespace vma::sock
