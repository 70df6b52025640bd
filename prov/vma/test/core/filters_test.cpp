// SPDX-License-Identifier: BSD-2-Clause
// Filters of devices: every form of the texts, what they admit, and what is said of one that means nothing.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/filters.hpp"
#include "core/log.hpp"
#include "ofi/info/device_filters.hpp"

using namespace vma;
using namespace vma::core;

namespace {

Filters parsed(const FilterTexts &texts)
{
    Filters filters;
    const FilterError error = parse_filters(texts, filters);
    assert_true(error.where == nullptr);
    assert_string_equal(error.what.c_str(), "");
    return filters;
}

in6_addr ip(const char *text)
{
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return ip_of(reinterpret_cast<const sockaddr *>(&v4)).value_or(in6_addr{});
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    assert_int_equal(::inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return ip_of(reinterpret_cast<const sockaddr *>(&v6)).value_or(in6_addr{});
}

bool contains(const char *prefix, const char *address)
{
    const auto block = Prefix::parse(prefix);
    assert_true(block.has_value());
    return block && block->contains(ip(address));
}

void nothing_set_admits_everything(void **)
{
    for (const FilterTexts &texts : {FilterTexts{}, FilterTexts{"", " ", "\t", "\n"}}) {
        const Filters filters = parsed(texts);
        assert_true(filters.admits_device("local") && filters.admits_device("mlx5_0"));
        assert_true(filters.admits("eth0", ip("192.0.2.1")));
        assert_true(filters.admits(Interface{"eth0", {}}));
        assert_false(filters.choose_interfaces());
        assert_false(filters.ports.has_value());
    }
}

void lists_of_names(void **)
{
    for (const char *text : {"mlx5_0,rxe0", " mlx5_0 , rxe0 ", "rxe0,mlx5_0,rxe0"}) {
        const Filters filters = parsed({text, nullptr, nullptr, nullptr});
        assert_true(filters.admits_device("mlx5_0") && filters.admits_device("rxe0"));
        for (const char *other : {"local", "mlx5_1", "mlx5_", "mlx5_00", "MLX5_0", ""})
            assert_false(filters.admits_device(other));
        assert_false(filters.choose_interfaces());
    }
    for (const char *text : {"^mlx5_0,rxe0", " ^ mlx5_0,rxe0"}) {
        const Filters filters = parsed({text, nullptr, nullptr, nullptr});
        assert_false(filters.admits_device("mlx5_0") || filters.admits_device("rxe0"));
        assert_true(filters.admits_device("local") && filters.admits_device("mlx5_1"));
    }
    const Filters filters = parsed({nullptr, "^eth0,eth1.100:2", nullptr, nullptr});
    assert_true(filters.choose_interfaces());
    assert_true(filters.admits(Interface{"eth1", {}}));
    assert_false(filters.admits(Interface{"eth0", {ip("192.0.2.1")}}) || filters.admits(Interface{"eth1.100:2", {}}));
}

void prefixes(void **)
{
    assert_true(contains("192.0.2.7", "192.0.2.7") && contains("192.0.2.7", "::ffff:192.0.2.7"));
    assert_false(contains("192.0.2.7", "192.0.2.6"));
    assert_true(contains("192.0.2.7/24", "192.0.2.255") && contains("192.0.2.0/24", "192.0.2.0"));
    assert_false(contains("192.0.2.0/24", "192.0.3.0"));
    assert_true(contains("192.0.2.128/25", "192.0.2.129"));
    assert_false(contains("192.0.2.128/25", "192.0.2.127"));
    assert_true(contains("192.0.2.6/31", "192.0.2.7") && contains("192.0.2.6/32", "192.0.2.6"));
    assert_false(contains("192.0.2.6/31", "192.0.2.8") || contains("192.0.2.6/32", "192.0.2.7"));
    assert_true(contains("0.0.0.0/0", "203.0.113.9"));
    assert_false(contains("0.0.0.0/0", "2001:db8::1") || contains("0.0.0.0/0", "::"));
    assert_true(contains("::/0", "2001:db8::1"));
    assert_false(contains("::/0", "192.0.2.1")); // IPv6 means IPv6
    assert_true(contains("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(contains("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(contains("fe80::1", "fe80::1") && contains("fe80::1/128", "fe80::1"));
    assert_false(contains("fe80::1", "fe80::2"));
    assert_true(contains("::ffff:192.0.2.0/120", "192.0.2.9"));
}

void addresses_of_other_families(void **)
{
    sockaddr unix_address{};
    unix_address.sa_family = AF_UNIX;
    assert_false(ip_of(&unix_address).has_value());
    assert_false(ip_of(nullptr).has_value());
}

void interface_and_address_must_fit_together(void **)
{
    const Interface eth0 = {"eth0", {ip("192.0.2.1"), ip("fe80::1")}};
    const Interface eth1 = {"eth1", {ip("198.51.100.1")}};
    const Filters address = parsed({nullptr, nullptr, "192.0.2.0/24,fe80::/10", nullptr});
    assert_true(address.choose_interfaces());
    assert_true(address.admits(eth0));
    assert_false(address.admits(eth1) || address.admits(Interface{"eth2", {}}));
    const Filters both = parsed({nullptr, "eth1", "192.0.2.0/24", nullptr});
    assert_false(both.admits(eth0) || both.admits(eth1));
    assert_true(both.admits("eth1", ip("192.0.2.9")));
    const Filters all_but = parsed({nullptr, "eth0", "^192.0.2.0/24", nullptr});
    assert_true(all_but.admits(eth0)); // by its IPv6 address
    assert_true(all_but.admits("eth0", ip("fe80::1")));
    assert_false(all_but.admits("eth0", ip("192.0.2.1")));
}

void ports(void **)
{
    const struct {
        const char *text;
        int low;
        int high;
    } good[] = {
        {"1", 1, 1}, {"65535", 65535, 65535}, {"5000-5009", 5000, 5009}, {" 7-7 ", 7, 7}, {"1-65535", 1, 65535}};
    for (const auto &each : good) {
        const Filters filters = parsed({nullptr, nullptr, nullptr, each.text});
        assert_true(filters.ports.has_value());
        assert_int_equal(filters.ports->low, each.low);
        assert_int_equal(filters.ports->high, each.high);
        assert_false(filters.choose_interfaces());
    }
}

void expect_fault(const char *FilterTexts::*where, const char *text, const char *said)
{
    FilterTexts texts;
    Filters filters;
    texts.*where = text;
    const FilterError error = parse_filters(texts, filters);
    assert_true(error.where == where);
    assert_true(error.what.starts_with(said));
    assert_non_null(std::strstr(error.what.c_str(), " is not a"));
}

void what_means_nothing_is_named(void **)
{
    const std::string long_name(64, 'x');
    const std::string cut = "\"" + long_name.substr(1) + "...\"";
    expect_fault(&FilterTexts::devices, ",", "\"\"");
    expect_fault(&FilterTexts::devices, "^", "\"\"");
    expect_fault(&FilterTexts::devices, "mlx5_0,", "\"\"");
    expect_fault(&FilterTexts::devices, "mlx5_0,,rxe0", "\"\"");
    expect_fault(&FilterTexts::devices, "mlx5_0,^rxe0", "\"^rxe0\"");
    expect_fault(&FilterTexts::devices, "mlx5_0 rxe0", "\"mlx5_0 rxe0\"");
    expect_fault(&FilterTexts::devices, "../x", "\"../x\"");
    expect_fault(&FilterTexts::devices, "a,b\x01\xff", "\"b??\"");
    expect_fault(&FilterTexts::devices, long_name.c_str(), cut.c_str());
    expect_fault(&FilterTexts::interfaces, "eth0,/", "\"/\"");
    for (const char *bad :
         {"192.0.2", "192.0.2.256", "192.0.2.0/33", "192.0.2.0/-1", "192.0.2.0/", "192.0.2.0/8x", "/8", "::/129",
          "fe80::1%eth0", "[::1]", "::1/", "host.example", "192.0.2.1:80", "1.2.3.4/4294967296"})
        expect_fault(&FilterTexts::addresses, bad, ("\"" + std::string(bad) + "\"").c_str());
    for (const char *bad : {"0", "65536", "-1", "5000-", "-5000", "5009-5000", "5000-65536", "0-10", "5000 - 5009",
                            "http", "+5", "5000,5001", "99999999999999999999", "5000-5009-1"})
        expect_fault(&FilterTexts::ports, bad, ("\"" + std::string(bad) + "\"").c_str());
}

int g_warnings = 0;
std::string g_text;
constexpr LogSink kCounting = {
    [](Level level, Subsys) noexcept { return level == Level::warn; },
    [](Level, Subsys, const char *, int, const char *text) noexcept {
        ++g_warnings;
        g_text = text;
    },
};

void the_environment(void **)
{
    set_log_sink(&kCounting);
    ::setenv("FI_VMA_DEVICE", "rxe0", 1);
    ::setenv("FI_VMA_INTERFACE", "eth7", 1);
    ::setenv("FI_VMA_ADDRESS", "192.0.2.0/24", 1);
    ::setenv("FI_VMA_PORT", "5000-5009", 1);
    const auto filters = ofi::device_filters();
    assert_true(filters.has_value());
    assert_true(filters->admits_device("rxe0") && !filters->admits_device("local"));
    assert_true(filters->admits("eth7", ip("192.0.2.1")));
    assert_false(filters->admits("eth8", ip("192.0.2.1")) || filters->admits("eth7", ip("192.0.3.1")));
    assert_int_equal(filters->ports->high, 5009);
    assert_int_equal(g_warnings, 0);
    ::setenv("FI_VMA_ADDRESS", "192.0.2.0/99", 1);
    assert_false(ofi::device_filters().has_value());
    assert_false(ofi::device_filters().has_value());
    assert_int_equal(g_warnings, 1);
    assert_string_equal(
        g_text.c_str(),
        "FI_VMA_ADDRESS: \"192.0.2.0/99\" is not an IPv4 or IPv6 address or prefix (192.0.2.7, 2001:db8::/32), "
        "or several separated by commas, after one ^ for all but these: no device of this provider is used");
    for (const char *name : {"FI_VMA_DEVICE", "FI_VMA_INTERFACE", "FI_VMA_ADDRESS", "FI_VMA_PORT"})
        ::unsetenv(name);
    assert_true(ofi::device_filters().has_value());
    set_log_sink(nullptr);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set_admits_everything),
        cmocka_unit_test(lists_of_names),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(addresses_of_other_families),
        cmocka_unit_test(interface_and_address_must_fit_together),
        cmocka_unit_test(ports),
        cmocka_unit_test(what_means_nothing_is_named),
        cmocka_unit_test(the_environment),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
