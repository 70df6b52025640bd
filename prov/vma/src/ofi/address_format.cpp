// SPDX-License-Identifier: BSD-2-Clause
#include "ofi/address_format.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <strings.h>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "core/quoted.hpp"

namespace vma::ofi {
namespace {

constexpr struct {
    const char *name;
    int family;
} kSchemes[] = {
    {"fi_sockaddr", AF_UNSPEC},
    {"fi_sockaddr_in", AF_INET},
    {"fi_sockaddr_in6", AF_INET6},
    {"verbs", AF_UNSPEC}, // CCI's
};
constexpr std::string_view kAfterScheme = "://";
constexpr char kTooLong[] = "it is longer than any address";

const char *take_scheme(std::string_view &text, int &family)
{
    const std::size_t end = text.find(kAfterScheme);
    if (end == text.npos)
        return "it has no scheme: fi_sockaddr_in://192.0.2.1:7000 would have one";
    const std::string scheme(text.substr(0, end));
    for (const auto &known : kSchemes) {
        if (::strcasecmp(scheme.c_str(), known.name) == 0) {
            family = known.family;
            text.remove_prefix(end + kAfterScheme.size());
            return nullptr;
        }
    }
    return "its scheme is none of fi_sockaddr, fi_sockaddr_in, fi_sockaddr_in6 and verbs";
}

// "192.0.2.1", "host.example", "[2001:db8::1]" or nothing, up to the port.
const char *take_host(std::string_view &text, AddressParts &parts)
{
    const bool bracketed = text.starts_with('[');
    const std::size_t end = bracketed ? text.find(']') : text.find(':');
    if (bracketed && end == text.npos)
        return "there is no ] behind the [ of an IPv6 address";
    parts.host = text.substr(bracketed ? 1 : 0, bracketed ? end - 1 : end);
    if (bracketed && (parts.host.empty() || parts.family == AF_INET))
        return "an IPv6 address was expected within [ and ], and none with fi_sockaddr_in";
    text.remove_prefix(std::min(text.size(), bracketed ? end + 1 : end));
    if (!text.empty() && text.front() != ':')
        return "what follows the host is no : with a port";
    return nullptr;
}

const char *take_port(std::string_view text, AddressParts &parts)
{
    unsigned port = 0;
    if (!text.empty() && !core::parse_number(text.substr(1), UINT16_MAX, port))
        return "its port is no number from 0 to 65535";
    if (text.empty() && parts.host.empty())
        return "it names neither a host nor a port";
    parts.service = std::to_string(port);
    return nullptr;
}

// The address of parts that name none stands for any of its family, IPv4 unless the scheme says otherwise.
bool to_number(const AddressParts &parts, Address &address)
{
    Address read;
    const bool v6 = parts.family == AF_INET6 || parts.host.find(':') != parts.host.npos;
    read.sa.sa_family = v6 ? AF_INET6 : AF_INET;
    void *const host = v6 ? static_cast<void *>(&read.v6.sin6_addr) : static_cast<void *>(&read.v4.sin_addr);
    if (!parts.host.empty() && ::inet_pton(read.sa.sa_family, parts.host.c_str(), host) != 1)
        return false;
    unsigned port = 0;
    static_cast<void>(core::parse_number(parts.service, UINT16_MAX, port)); // take_port() has looked
    read.set_port(static_cast<std::uint16_t>(port));
    address = read;
    return true;
}

// Of a string within `length` bytes, its end counted.
const char *parse_string(const char *text, std::size_t length, Address &address)
{
    const std::size_t most = std::min(length, kMostAddressString + 1);
    if (::strnlen(text, most) == most)
        return length > kMostAddressString ? kTooLong : "it does not end within its length";
    AddressParts parts;
    if (const char *wrong = split_address_string(text, parts))
        return wrong;
    return to_number(parts, address) ? nullptr : "its host is no number of its scheme's family, as 192.0.2.1 or [::1]";
}

} // namespace

bool is_address_string(const char *node) noexcept
{
    return node != nullptr && std::strstr(node, kAfterScheme.data()) != nullptr;
}

const char *split_address_string(const char *text, AddressParts &parts) noexcept
{
    if (::strnlen(text, kMostAddressString + 1) > kMostAddressString)
        return kTooLong;
    std::string_view rest = text;
    parts = {};
    if (const char *wrong = take_scheme(rest, parts.family))
        return wrong;
    rest = rest.substr(0, rest.find_first_of("/?"));
    if (const char *wrong = take_host(rest, parts))
        return wrong;
    return take_port(rest, parts);
}

const char *AddressFormat::parse(const void *addr, std::size_t length, Address &address) const noexcept
{
    if (!text_)
        return address.assign(addr, length) ? nullptr : "it is no whole IPv4 or IPv6 socket address";
    address = {};
    return addr != nullptr ? parse_string(static_cast<const char *>(addr), length, address) : "there is none";
}

bool AddressFormat::read(const void *addr, std::size_t length, Address &address) const noexcept
{
    const char *const wrong = parse(addr, length, address);
    if (wrong == nullptr)
        return true;
    if (text_ && addr != nullptr) {
        const auto *text = static_cast<const char *>(addr);
        const std::string_view shown(text, ::strnlen(text, std::min(length, kMostAddressString)));
        VMA_WARN(core, "the address %s is refused: %s", core::quoted(shown).c_str(), wrong);
    }
    return false;
}

bool AddressFormat::read_whole(const void *addr, Address &address) const noexcept
{
    return read(addr, text_ ? SIZE_MAX : sizeof(sockaddr_in6), address);
}

WrittenAddress AddressFormat::write(const Address &address) const noexcept
{
    WrittenAddress written;
    if (address.empty())
        return written;
    if (!text_) {
        written.length = address.size();
        std::memcpy(written.bytes.data(), &address.v6, written.length);
        return written;
    }
    const int used = std::snprintf(written.bytes.data(), written.bytes.size(), "fi_sockaddr_%s://%s",
                                   address.sa.sa_family == AF_INET6 ? "in6" : "in", AddressText(address).c_str());
    written.length = static_cast<std::size_t>(used) + 1;
    return written;
}

int AddressFormat::copy(const Address &address, void *addr, std::size_t *length) const noexcept
{
    if (length == nullptr)
        return -FI_EINVAL;
    const WrittenAddress written = write(address);
    const std::size_t room = std::exchange(*length, written.length);
    const std::size_t copied = std::min(room, written.length);
    if (addr != nullptr && copied > 0) {
        std::memcpy(addr, written.bytes.data(), copied);
        if (text_)
            static_cast<char *>(addr)[copied - 1] = '\0';
    }
    return room < written.length ? -FI_ETOOSMALL : 0;
}

} // namespace vma::ofi
