// SPDX-License-Identifier: BSD-2-Clause
// When a device that could not be opened is tried again.
#include "fabtests/unit.hpp"

#include <string>

#include "compat/src/engine/refusals.hpp"

using namespace vma::sock;

namespace {

using Some = Refusals<2, 8>;

void each_pause_is_twice_the_last(void **)
{
    Some refused;
    assert_false(refused.is_too_early("eth0", 5));
    std::int64_t now = 5;
    for (std::int64_t pause = Some::kFirst; pause <= 2 * Some::kLongest; pause *= 2) {
        refused.note("eth0", now);
        const std::int64_t wanted = std::min(pause, Some::kLongest);
        assert_true(refused.is_too_early("eth0", now + wanted - 1));
        now += wanted;
        assert_false(refused.is_too_early("eth0", now));
    }
    refused.forget("eth0");
    refused.note("eth0", now);
    assert_false(refused.is_too_early("eth0", now + Some::kFirst));
}

void names_are_told_apart(void **)
{
    Some refused;
    refused.note("eth0", 1);
    assert_false(refused.is_too_early("eth1", 2));
    refused.note("eth1", 2);
    assert_true(refused.is_too_early("eth0", 3));
    assert_true(refused.is_too_early("eth1", 3));
    refused.note("a-long-name", 3); // for the one that may be tried first
    assert_true(refused.is_too_early("a-long-name", 4));
    assert_false(refused.is_too_early("eth0", 4));
    assert_true(refused.is_too_early("eth1", 4));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_pause_is_twice_the_last),
        cmocka_unit_test(names_are_told_apart),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
