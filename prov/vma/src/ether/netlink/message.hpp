// SPDX-License-Identifier: BSD-2-Clause
// Messages of rtnetlink (rtnetlink(7)) by libmnl: a request is built in a fixed buffer, attributes of an answer are
// looked up in place. libmnl checks lengths in an answer against the bytes that there are.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <span>

#include "core/library.hpp"
#include "inet/wire/types.hpp"

namespace vma::ether {

// name of the member, name of the symbol
#define VMA_MNL_FUNCTIONS(X)                                                                                           \
    X(put_header, mnl_nlmsg_put_header)                                                                                \
    X(put_body, mnl_nlmsg_put_extra_header)                                                                            \
    X(put_attribute, mnl_attr_put_check)                                                                               \
    X(ok, mnl_nlmsg_ok)                                                                                                \
    X(next, mnl_nlmsg_next)                                                                                            \
    X(payload, mnl_nlmsg_get_payload)                                                                                  \
    X(payload_size, mnl_nlmsg_get_payload_len)                                                                         \
    X(parse, mnl_attr_parse_payload)                                                                                   \
    X(type, mnl_attr_get_type)                                                                                         \
    X(value, mnl_attr_get_payload)                                                                                     \
    X(value_size, mnl_attr_get_payload_len)

struct Mnl {
    VMA_MNL_FUNCTIONS(VMA_LIBRARY_MEMBER)
};

// Null where libmnl is not installed. Opened the first time; it stays open. Thread-safe.
const Mnl *mnl() noexcept;

using NetlinkBytes = std::span<const std::uint8_t>;

// For owners of a NetlinkSocket: it takes libmnl.
class NetlinkRequest
{
public:
    // `body`: the structure of fixed size that the type of message begins with.
    template <typename Body> NetlinkRequest(std::uint16_t type, std::uint16_t flags, const Body &body) noexcept
    {
        static_assert(sizeof(Body) <= 64);
        nlmsghdr *const made = mnl()->put_header(bytes_.data());
        made->nlmsg_type = type;
        made->nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST);
        memcpy(mnl()->put_body(made, sizeof body), &body, sizeof body);
    }

    // Room is for any request of ours: a dozen addresses.
    void attribute(std::uint16_t type, const void *data, std::size_t size) noexcept
    {
        (void)mnl()->put_attribute(&header(), bytes_.size(), type, size, data);
    }
    void attribute(std::uint16_t type, std::uint32_t value) noexcept { attribute(type, &value, sizeof value); }
    void attribute(std::uint16_t type, const inet::IpAddress &address) noexcept
    {
        if (address.is_v4())
            attribute(type, address.v4_bytes(), 4);
        else
            attribute(type, address.bytes.data(), 16);
    }

    nlmsghdr &header() noexcept { return *reinterpret_cast<nlmsghdr *>(bytes_.data()); }

private:
    alignas(nlmsghdr) std::array<std::uint8_t, 256> bytes_;
};

// The attributes behind a message's fixed part, or inside another attribute. None where libmnl is not installed.
class Attributes
{
public:
    explicit Attributes(NetlinkBytes bytes) noexcept;

    // The value; empty where there is none of that type, or the list is broken before it.
    NetlinkBytes find(unsigned type) const noexcept { return type < kTypes ? values_[type] : NetlinkBytes{}; }

    // False, and the value as it was, where there is none or it is too short.
    template <typename T> bool read(unsigned type, T &value) const noexcept
    {
        const NetlinkBytes found = find(type);
        if (found.size() < sizeof value)
            return false;
        memcpy(&value, found.data(), sizeof value);
        return true;
    }
    bool read(unsigned type, inet::IpAddress &address) const noexcept { return to_address(find(type), address); }
    Attributes nested(unsigned type) const noexcept { return Attributes(find(type)); }

    static bool to_address(NetlinkBytes bytes, inet::IpAddress &address) noexcept
    {
        if (bytes.size() != 4 && bytes.size() != 16)
            return false;
        address = bytes.size() == 4 ? inet::IpAddress::v4(bytes.data()) : inet::IpAddress::v6(bytes.data());
        return true;
    }

private:
    static constexpr unsigned kTypes = 64; // none that is read is higher

    std::array<NetlinkBytes, kTypes> values_;
};

// Splits what was received into the fixed part and the attributes of a message.
template <typename Body> bool split(NetlinkBytes payload, Body &body, NetlinkBytes &attributes) noexcept
{
    if (payload.size() < sizeof body)
        return false;
    memcpy(&body, payload.data(), sizeof body);
    const std::size_t at = NLMSG_ALIGN(sizeof body);
    attributes = payload.subspan(at < payload.size() ? at : payload.size());
    return true;
}

} // namespace vma::ether
