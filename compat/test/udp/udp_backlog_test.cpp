// SPDX-License-Identifier: BSD-2-Clause
// What /proc/net/softnet_stat says of packets that the kernel has taken and not delivered, as several versions write
// it, and as none does.
#include "fabtests/unit.hpp"

#include <string>

#include "compat/src/udp/backlog.hpp"

using vma::sock::udp::tells_backlog;

namespace {

constexpr char kQuiet[] = "3a6dfe13 00000000 0000258f 00000000 00000000 00000000 00000000 00000000 00000000 00000000 "
                          "00000000 00000000 00000000 00000000 00000000\n";
constexpr char kBusy[] = "3c179bf3 00000000 000026a7 00000000 00000000 00000000 00000000 00000000 00000000 00000000 "
                         "00000000 00000010 00000001 00000010 00000000\n";
constexpr char kOfLinux4[] =
    "3c179bf3 00000000 000026a7 00000000 00000000 00000000 00000000 00000000 00000000 00000000 "
    "00000000\n";

void of_any_processor(void **)
{
    const std::string quiet = kQuiet;
    assert_false(tells_backlog(quiet + quiet));
    assert_true(tells_backlog(kBusy + quiet));
    assert_true(tells_backlog(quiet + kBusy));
}

void without_the_word(void **)
{
    assert_false(tells_backlog(std::string(kOfLinux4) + kOfLinux4));
    assert_false(tells_backlog(""));
    assert_false(tells_backlog("\n\n \t\n"));
    assert_false(tells_backlog("no such file"));
}

void cut_in_a_line(void **)
{
    const std::string line = kBusy;
    for (std::size_t n = 0; n < line.find("00000010"); ++n)
        assert_false(tells_backlog(line.substr(0, n)));
    assert_true(tells_backlog(line.substr(0, line.size() - 1)));
}

} // namespace

int main()
{
    static const CMUnitTest tests[] = {
        cmocka_unit_test(of_any_processor),
        cmocka_unit_test(without_the_word),
        cmocka_unit_test(cut_in_a_line),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
