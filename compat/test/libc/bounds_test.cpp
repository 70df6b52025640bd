// SPDX-License-Identifier: BSD-2-Clause
// How many streams are accelerated under which limits, and what happens to those beyond.
#include "fabtests/unit.hpp"

#include <sys/resource.h>

#include <memory>
#include <vector>

#include "compat/src/base/bounds.hpp"
#include "compat/src/offload/connections.hpp"
#include "compat/src/table/stream.hpp"
#include "compat/test/tcp/stream_pair.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kRing = 256 << 10;

void each_limit_counts(void **)
{
    sock::ProcessLimits limits;
    limits.mappings = 65530;
    assert_int_equal(sock::most_streams(limits, kRing), 65530 / 4);
    limits.mapped = 65000;
    assert_int_equal(sock::most_streams(limits, kRing), 530 / 4);
    limits = {};
    limits.memory = std::uint64_t{512} << 20;
    assert_int_equal(sock::most_streams(limits, kRing), (256 << 20) / (328 << 10));
    limits = {};
    limits.address_space = std::uint64_t{1} << 30;
    assert_int_equal(sock::most_streams(limits, kRing), (256 << 20) / (656 << 10));
}

void no_limit_leaves_less_than_none(void **)
{
    sock::ProcessLimits limits;
    limits.mappings = 100;
    limits.mapped = 200; // they were made before the limit was lowered
    assert_int_equal(sock::most_streams(limits, kRing), 16);
}

void limits_of_groups_are_numbers(void **)
{
    assert_int_equal(sock::parse_limit("536870912\n"), 536870912);
    assert_true(sock::parse_limit("max\n") == UINT64_MAX);
    assert_true(sock::parse_limit("") == UINT64_MAX);
    assert_true(sock::parse_limit("-1\n") == UINT64_MAX);
}

void this_process_has_limits(void **)
{
    const sock::ProcessLimits limits = sock::read_process_limits(0);
    assert_true(limits.mappings > 1000 && limits.mappings != UINT64_MAX);
    assert_true(limits.mapped > 5 && limits.mapped < limits.mappings);
    assert_true(limits.memory > (8 << 20) && limits.memory != UINT64_MAX);
}

// Both ends of a pair are streams of this process. The addresses that it may have leave room for 16.
void further_streams_stay_on_the_kernel(void **)
{
    const rlimit little = {rlim_t{8} << 20, RLIM_INFINITY};
    rlimit before = {};
    assert_int_equal(::getrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(::setrlimit(RLIMIT_AS, &little), 0);
    assert_true(sock::room_for_stream(sock::g_connections.room, 0)); // read here
    assert_int_equal(::setrlimit(RLIMIT_AS, &before), 0);
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < 8; ++i) {
        pairs.push_back(std::make_unique<Pair>());
        assert_true(offload(*pairs.back()));
    }
    Pair beyond;
    for (int i = 0; i < 100; ++i) {
        send_some(beyond.a, 10);
        send_some(beyond.b, 10);
        drain(beyond);
    }
    assert_false(sock::is_offloaded(*beyond.a.s));
    assert_false(sock::is_offloaded(*beyond.b.s));
    assert_string_equal(beyond.a.s->kernel_reason.load(), "too many connections are accelerated");
    pairs.clear(); // there is room again
    Pair later;
    assert_true(offload(later));
}

} // namespace

int main()
{
    const StreamLibrary library;
    static const CMUnitTest tests[] = {
        cmocka_unit_test(each_limit_counts),
        cmocka_unit_test(no_limit_leaves_less_than_none),
        cmocka_unit_test(limits_of_groups_are_numbers),
        cmocka_unit_test(this_process_has_limits),
        cmocka_unit_test(further_streams_stay_on_the_kernel),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
