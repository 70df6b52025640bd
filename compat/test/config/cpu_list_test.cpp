// SPDX-License-Identifier: BSD-2-Clause
// Sets of processors: every form of the text, and what is none.
#include "fabtests/unit.hpp"

#include <string>

#include "compat/src/config/cpu_list.hpp"

using namespace vma::config;

namespace {

// The set as taskset(1) would list it, without ranges; "-" for a text that is none.
std::string listed(const std::string &text)
{
    CpuMask mask;
    if (!parse_cpus(text.c_str(), mask))
        return "-";
    std::string list;
    for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu)
        if (mask.has(cpu))
            list += (list.empty() ? "" : ",") + std::to_string(cpu);
    return list;
}

void masks(void **)
{
    assert_string_equal(listed("0x00000001").c_str(), "0");
    assert_string_equal(listed("0x00000007").c_str(), "0,1,2");
    assert_string_equal(listed("0XfF").c_str(), "0,1,2,3,4,5,6,7");
    assert_string_equal(listed(" 0xA00 ").c_str(), "9,11");
    assert_string_equal(listed("0x80000000000000008000000000000001").c_str(), "0,63,127");
    assert_string_equal(listed("0x" + std::string(3000, '0') + "4").c_str(), "2");
    assert_string_equal(listed("0x8" + std::string(kMaxCpus / 4 - 1, '0')).c_str(), "8191");
}

void lists(void **)
{
    assert_string_equal(listed("0").c_str(), "0"); // of VMA's latency profile
    assert_string_equal(listed("0,4,8").c_str(), "0,4,8");
    assert_string_equal(listed("0,1,7-10").c_str(), "0,1,7,8,9,10");
    assert_string_equal(listed("\t10,3-3 \n").c_str(), "3,10");
    assert_string_equal(listed("0-10:5,1-6:3").c_str(), "0,1,4,5,10");
    assert_string_equal(listed("2-3:8191").c_str(), "2");
    assert_string_equal(listed("8191,64,63").c_str(), "63,64,8191");
    CpuMask all;
    assert_true(parse_cpus("0-8191", all));
    for (const unsigned long word : all.words)
        assert_true(word == ~0UL);
}

void what_is_neither(void **)
{
    for (const char *wrong : {"",
                              " ",
                              "0x",
                              "0x0",
                              "0x00000000",
                              "0xg",
                              "0x1g",
                              "x1",
                              "0x-1",
                              "0x 1",
                              "0x1,2",
                              "0x1 2",
                              ",",
                              "1,",
                              ",1",
                              "1,,2",
                              "1-",
                              "-1",
                              "-2",
                              "1-2-3",
                              "5-4",
                              "1:2",
                              "1-2:",
                              "1-2:0",
                              "1-2:x",
                              "8192",
                              "0-8192",
                              "99999999999999999999",
                              "1-99999999999999999999",
                              "1 2",
                              "1, 2",
                              "1;2",
                              "+1",
                              "1.5",
                              "all",
                              "f"})
        assert_string_equal(listed(wrong).c_str(), "-");
    assert_string_equal(listed("0x1" + std::string(kMaxCpus / 4, '0')).c_str(), "-");
}

void an_old_value_does_not_stay(void **)
{
    CpuMask mask;
    CpuMask expected;
    expected.set(1);
    assert_true(parse_cpus("0-100", mask));
    assert_true(parse_cpus("1", mask));
    assert_true(mask == expected);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(masks),
        cmocka_unit_test(lists),
        cmocka_unit_test(what_is_neither),
        cmocka_unit_test(an_old_value_does_not_stay),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
