// SPDX-License-Identifier: BSD-2-Clause
#include "core/filters.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstring>

#include "core/parse_number.hpp"
#include "core/quoted.hpp"

namespace vma::core {
namespace {

constexpr unsigned kMappedBits = 96; // of ::ffff:0:0/96
constexpr unsigned kAllBits = 128;
constexpr std::size_t kMaxName = 63; // IBV_SYSFS_NAME_MAX without its end; interfaces have 15 at most

std::string_view trimmed(std::string_view text)
{
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kBlank);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<std::string> parse_name(std::string_view text)
{
    const auto fits = [](unsigned char c) { return std::isgraph(c) != 0 && c != '/' && c != '^'; };
    if (text.empty() || text.size() > kMaxName || !std::ranges::all_of(text, fits))
        return std::nullopt;
    return std::string(text);
}

// Empty, or what is wrong.
template <typename Item, typename Parse>
std::string parse_list(const char *value, const char *expected, Parse parse, List<Item> &list)
{
    std::string_view text = trimmed(value != nullptr ? value : "");
    list = {};
    if (text.empty())
        return {};
    list.all_but = text.front() == '^';
    if (list.all_but)
        text.remove_prefix(1);
    for (;;) {
        const std::size_t comma = text.find(',');
        const std::string_view item = trimmed(text.substr(0, comma));
        std::optional<Item> parsed = parse(item);
        if (!parsed)
            return quoted(item) + " is not " + expected +
                   ", or several separated by commas, after one ^ for all but these";
        list.items.push_back(std::move(*parsed));
        if (comma == text.npos)
            return {};
        text.remove_prefix(comma + 1);
    }
}

std::string parse_ports(const char *value, std::optional<PortRange> &ports)
{
    const std::string_view text = trimmed(value != nullptr ? value : "");
    ports.reset();
    if (text.empty())
        return {};
    const std::size_t dash = text.find('-');
    unsigned low = 0;
    unsigned high = 0;
    const bool numbers = parse_number(text.substr(0, dash), UINT16_MAX, low) &&
                         parse_number(dash != text.npos ? text.substr(dash + 1) : text, UINT16_MAX, high);
    if (!numbers || low == 0 || high < low)
        return quoted(text) + " is not a port, 1 to 65535, or a range of them, as 5000-5009";
    ports = PortRange{static_cast<std::uint16_t>(low), static_cast<std::uint16_t>(high)};
    return {};
}

} // namespace

std::optional<in6_addr> ip_of(const sockaddr *address) noexcept
{
    if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return std::nullopt;
    in6_addr ip{};
    if (address->sa_family == AF_INET6) {
        std::memcpy(&ip, &reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr, sizeof(ip));
        return ip;
    }
    ip.s6_addr[10] = ip.s6_addr[11] = 0xff;
    std::memcpy(&ip.s6_addr[12], &reinterpret_cast<const sockaddr_in *>(address)->sin_addr, sizeof(in_addr));
    return ip;
}

std::optional<Prefix> Prefix::parse(std::string_view text) noexcept
{
    const std::size_t slash = text.find('/');
    const std::string host(text.substr(0, slash));
    Prefix prefix;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    const bool is_v4 = ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1;
    if (is_v4)
        prefix.address_ = *ip_of(reinterpret_cast<const sockaddr *>(&v4));
    else if (::inet_pton(AF_INET6, host.c_str(), &prefix.address_) != 1)
        return std::nullopt;
    const unsigned most = is_v4 ? kAllBits - kMappedBits : kAllBits;
    unsigned length = most;
    if (slash != text.npos && !parse_number(text.substr(slash + 1), most, length))
        return std::nullopt;
    prefix.bits_ = is_v4 ? length + kMappedBits : length;
    return prefix;
}

bool Prefix::contains(const in6_addr &address) const noexcept
{
    if (IN6_IS_ADDR_V4MAPPED(&address_) != IN6_IS_ADDR_V4MAPPED(&address))
        return false; // ::/0 is not about IPv4
    const unsigned bytes = bits_ / 8;
    const unsigned rest = bits_ % 8;
    if (std::memcmp(&address, &address_, bytes) != 0)
        return false;
    return rest == 0 || ((address.s6_addr[bytes] ^ address_.s6_addr[bytes]) >> (8 - rest)) == 0;
}

bool Filters::admits_device(std::string_view name) const noexcept
{
    return devices.admits([&](const std::string &item) { return item == name; });
}

bool Filters::admits(std::string_view interface, const in6_addr &address) const noexcept
{
    return interfaces.admits([&](const std::string &item) { return item == interface; }) &&
           addresses.admits([&](const Prefix &item) { return item.contains(address); });
}

bool Filters::admits(const Interface &interface) const noexcept
{
    if (addresses.items.empty())
        return admits(interface.name, in6_addr{});
    return std::ranges::any_of(interface.addresses,
                               [&](const in6_addr &address) { return admits(interface.name, address); });
}

FilterError parse_filters(const FilterTexts &texts, Filters &filters) noexcept
{
    constexpr const char *kDevice = "a device's name (local, mlx5_0)";
    constexpr const char *kInterface = "a network interface's name (eth0)";
    constexpr const char *kAddress = "an IPv4 or IPv6 address or prefix (192.0.2.7, 2001:db8::/32)";
    std::string what = parse_list(texts.devices, kDevice, parse_name, filters.devices);
    if (!what.empty())
        return {&FilterTexts::devices, std::move(what)};
    what = parse_list(texts.interfaces, kInterface, parse_name, filters.interfaces);
    if (!what.empty())
        return {&FilterTexts::interfaces, std::move(what)};
    what = parse_list(texts.addresses, kAddress, Prefix::parse, filters.addresses);
    if (!what.empty())
        return {&FilterTexts::addresses, std::move(what)};
    what = parse_ports(texts.ports, filters.ports);
    if (!what.empty())
        return {&FilterTexts::ports, std::move(what)};
    return {};
}

} // namespace vma::core
