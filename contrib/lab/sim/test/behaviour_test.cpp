// SPDX-License-Identifier: BSD-2-Clause
// The behaviour suite against the simulated NIC, and that no case leaves anything behind there.
#include "fabtests/unit.hpp"

#include <cstdio>

#include "contrib/lab/sim/behaviour.hpp"
#include "contrib/lab/sim/sim.hpp"

using namespace vma::sim;

namespace {

void run_case(void **state)
{
    const auto &one = *static_cast<const behaviour::Case *>(*state);
    Config config;
    config.devices = {{.addresses = {"10.0.0.1"}}};
    reset(config);
    const std::string failure = behaviour::run(*table(), "10.0.0.1", one);
    if (!failure.empty())
        UNIT_FAIL(failure.c_str());
    assert_int_equal(stats().live.total(), 0);
}

} // namespace

int main()
{
    std::vector<behaviour::Case> cases = behaviour::cases();
    std::vector<CMUnitTest> tests;
    for (behaviour::Case &one : cases)
        tests.push_back({one.name, run_case, nullptr, nullptr, &one});
    return _cmocka_run_group_tests("behaviour", tests.data(), tests.size(), nullptr, nullptr);
}
