// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/rendezvous/peer.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "compat/src/libc/read_option.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/offer.hpp"

namespace vma::sock {

namespace {

// A packet to one of the host's own addresses has that for its source, too.
bool is_own_address(const sockaddr_in6 &address)
{
    sockaddr_in6 source = {};
    return udp::find_source(address, source) && IN6_ARE_ADDR_EQUAL(&source.sin6_addr, &address.sin6_addr);
}

} // namespace

PeerAnswer ask_for_peer(const Addresses &addresses, Peer &out)
{
    if (!on_this_host(addresses) && !is_own_address(addresses.peer))
        return PeerAnswer::kNotHere;
    return udp::find_other_end(addresses, out);
}

bool identify_own(int fd, Peer &out)
{
    struct stat st = {};
    out.cookie = libc::read_cookie(fd);
    if (out.cookie == 0 || ::fstat(fd, &st) != 0)
        return false;
    out.inode = static_cast<std::uint32_t>(st.st_ino);
    out.user = st.st_uid;
    return true;
}

} // namespace vma::sock
