// SPDX-License-Identifier: BSD-2-Clause
// How a program writes socket addresses: as struct sockaddr, or as strings (FI_ADDR_STR, fi_getinfo(3)). What an object
// takes and gives depends on the fi_info that it was opened with; inside the provider an address is an Address always.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <rdma/fabric.h>

#include "ofi/address.hpp"

namespace vma::ofi {

// Bytes of the longest string that is read, its end not counted: a host's name has 253 at most, the rest is ours.
inline constexpr std::size_t kMostAddressString = 320;

// "fi_sockaddr_in://192.0.2.1:7000" in its parts, as name resolution takes them.
struct AddressParts {
    int family = 0;      // that its scheme says; AF_UNSPEC: either
    std::string host;    // a name or a number, without brackets; empty: none was named
    std::string service; // the port, a number from 0 to 65535; "0" where none was named
};

// Whether `node` of fi_getinfo() or fi_av_insertsvc() is such a string: no name of a host has "://". nullptr is none.
bool is_address_string(const char *node) noexcept;

// nullptr, or what is wrong with the string and what was expected, for a log line; the text is there for ever. Schemes
// are libfabric's fi_sockaddr, fi_sockaddr_in and fi_sockaddr_in6, and CCI's verbs, which is as fi_sockaddr. Fields
// that follow the port (/..., ?...) mean nothing to this provider, as to libfabric's own, and are not looked at.
const char *split_address_string(const char *text, AddressParts &parts) noexcept;

// An address as a program gets it.
struct WrittenAddress {
    alignas(sockaddr_in6) std::array<char, 80> bytes{};
    std::size_t length = 0; // with the end of a string; 0: there is no address
};

class AddressFormat
{
public:
    AddressFormat() noexcept = default;
    explicit AddressFormat(std::uint32_t addr_format) noexcept : text_(addr_format == FI_ADDR_STR) {}
    explicit AddressFormat(const fi_info *info) noexcept : text_(info != nullptr && info->addr_format == FI_ADDR_STR) {}

    bool is_text() const noexcept { return text_; }

    // nullptr, or why it is no address of this format within `length` bytes; a string must end within them, and its
    // host be a number: a call with an address asks no name server. The text is there for ever.
    [[nodiscard]] const char *parse(const void *addr, std::size_t length, Address &address) const noexcept;
    // Whether it is one. A string that is none is warned of.
    [[nodiscard]] bool read(const void *addr, std::size_t length, Address &address) const noexcept;
    // The same of one that the caller vouches to be whole. nullptr is none.
    [[nodiscard]] bool read_whole(const void *addr, Address &address) const noexcept;

    WrittenAddress write(const Address &address) const noexcept;
    // fi_getname's contract: copies what fits, sets *length to the whole, -FI_ETOOSMALL when it didn't fit. A string
    // that is cut ends within the room, too.
    int copy(const Address &address, void *addr, std::size_t *length) const noexcept;

private:
    bool text_ = false;
};

} // namespace vma::ofi
