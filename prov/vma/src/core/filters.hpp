// SPDX-License-Identifier: BSD-2-Clause
// What a user allows: which devices, over which network interfaces and addresses, and on which ports to listen. Here
// is the meaning of the texts; where they come from is the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace vma::core {

// An IPv4 address as its v4-mapped IPv6 one. Nothing for another family.
std::optional<in6_addr> ip_of(const sockaddr *address) noexcept;

// A block of addresses: "192.0.2.0/24", "2001:db8::/32", or one address. Bits beyond the length don't matter.
class Prefix
{
public:
    static std::optional<Prefix> parse(std::string_view text) noexcept;
    bool contains(const in6_addr &address) const noexcept;

private:
    in6_addr address_{}; // v4-mapped: it contains nothing but IPv4 addresses
    unsigned bits_ = 0;  // 0..128
};

// "a,b" admits a and b; "^a,b" all but these two; nothing at all admits everything.
template <typename Item> struct List {
    bool all_but = false;
    std::vector<Item> items;

    template <typename Matches> bool admits(Matches &&matches) const
    {
        for (const Item &item : items) {
            if (matches(item))
                return !all_but;
        }
        return all_but || items.empty();
    }
};

struct PortRange {
    std::uint16_t low = 1; // 1..high
    std::uint16_t high = 1;
};

struct Interface {
    std::string name;
    std::vector<in6_addr> addresses; // as ip_of() gives them
};

struct Filters {
    List<std::string> devices;
    List<std::string> interfaces;
    List<Prefix> addresses;
    std::optional<PortRange> ports;

    bool admits_device(std::string_view name) const noexcept;
    // Whether an address of an interface may be used.
    bool admits(std::string_view interface, const in6_addr &address) const noexcept;
    // Whether any of an interface's may; without a filter of addresses it needs none.
    bool admits(const Interface &interface) const noexcept;
    // Whether interfaces and addresses matter at all.
    bool choose_interfaces() const noexcept { return !interfaces.items.empty() || !addresses.items.empty(); }
};

// The four texts, nullptr or empty for what is not set.
struct FilterTexts {
    const char *devices = nullptr;
    const char *interfaces = nullptr;
    const char *addresses = nullptr;
    const char *ports = nullptr;
};
struct FilterError {
    const char *FilterTexts::*where = nullptr; // the text that means nothing; nullptr: all are good
    std::string what;                          // is wrong with it, and what was expected
};
// With an error the filters are not to be used.
FilterError parse_filters(const FilterTexts &texts, Filters &filters) noexcept;

} // namespace vma::core
