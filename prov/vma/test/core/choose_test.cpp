// SPDX-License-Identifier: BSD-2-Clause
// The order of devices: filters first, then nearness; and that nobody looks at the machine for nothing.
#include "fabtests/unit.hpp"

#include <string>

#include "core/choose.hpp"
#include "core/log.hpp"
#include "prov/vma/test/core/topology_probe.hpp"

using namespace vma::core;

namespace {

int g_looks = 0;
Topology g_topology;
int g_cpu = 0;

const Topology &counted_topology() noexcept
{
    ++g_looks;
    return g_topology;
}

const std::vector<Candidate> &machine()
{
    static const std::vector<Candidate> candidates = {
        {"rxe0", true, {{"eth0", {}}}, kNoNode}, {"near0", true, {{"eth1", {}}, {"eth2", {}}}, 0},
        {"near1", true, {{"eth3", {}}}, 1},      {"local", false, {}, kNoNode},
        {"also1", true, {{"eth4", {}}}, 1},
    };
    return candidates;
}

std::string chosen(const std::vector<Candidate> &candidates, const FilterTexts &texts)
{
    Filters filters;
    assert_true(parse_filters(texts, filters).where == nullptr);
    g_looks = 0;
    std::string names;
    Where anywhere; // and just now on g_cpu
    anywhere.cpus = CpuSet(0xff);
    anywhere.cpu = g_cpu;
    for (const std::size_t i : choose(candidates, filters, {counted_topology, &anywhere}))
        names += (names.empty() ? "" : " ") + candidates[i].name;
    return names;
}

int set_up(void **)
{
    const auto topology = Topology::from_synthetic("numa:2 pu:4");
    if (!topology)
        return -1;
    g_topology = *topology;
    return 0;
}

void the_nearest_is_first(void **)
{
    g_cpu = 1;
    assert_string_equal(chosen(machine(), {}).c_str(), "local near0 near1 also1 rxe0");
    assert_int_equal(g_looks, 1);
    g_cpu = 6;
    assert_string_equal(chosen(machine(), {}).c_str(), "local near1 also1 near0 rxe0");
}

void filters_come_before(void **)
{
    g_cpu = 1;
    assert_string_equal(chosen(machine(), {"also1,near1", nullptr, nullptr, nullptr}).c_str(), "near1 also1");
    assert_string_equal(chosen(machine(), {"^near0,local", nullptr, nullptr, nullptr}).c_str(), "near1 also1 rxe0");
    assert_string_equal(chosen(machine(), {nullptr, "eth2,eth3", nullptr, nullptr}).c_str(), "local near0 near1");
    assert_string_equal(chosen(machine(), {"^local", "^eth1", nullptr, nullptr}).c_str(), "near0 near1 also1 rxe0");
}

void filters_may_leave_nothing(void **)
{
    assert_string_equal(chosen(machine(), {"mlx5_0", nullptr, nullptr, nullptr}).c_str(), "");
    assert_string_equal(chosen(machine(), {"^local", "eth9", nullptr, nullptr}).c_str(), "");
    assert_string_equal(chosen(machine(), {nullptr, nullptr, "192.0.2.0/24", nullptr}).c_str(), "local");
    assert_string_equal(chosen({}, {}).c_str(), "");
    assert_int_equal(g_looks, 0);
}

void the_machine_is_not_looked_at_for_one(void **)
{
    for (const char *names : {"local", "near1", "near1,local", "near1,nothing"}) {
        assert_string_not_equal(chosen(machine(), {names, nullptr, nullptr, nullptr}).c_str(), "");
        assert_int_equal(g_looks, 0);
    }
    assert_string_equal(chosen(machine(), {"near1,local", nullptr, nullptr, nullptr}).c_str(), "local near1");
}

void it_is_for_the_calling_thread(void **)
{
    const std::vector<Candidate> candidates = {{"a", true, {}, 1}, {"b", true, {}, 0}};
    const Topology before = g_topology;
    for (const char *description : {"numa:2 pu:512", "numa:2(indexes=1,0) pu:512"}) {
        const auto topology = Topology::from_synthetic(description); // every processor of ours is in the first node
        assert_true(topology.has_value());
        g_topology = *topology;
        const auto order = choose(candidates, {}, {counted_topology, nullptr});
        assert_int_equal(order.size(), 2);
        assert_int_equal(order[0], TopologyProbe::cpus_of(g_topology, 0).test(0) ? 1 : 0);
    }
    g_topology = before;
}

void without_a_topology_the_order_stays(void **)
{
    const Topology before = g_topology;
    g_topology = Topology();
    assert_string_equal(chosen(machine(), {}).c_str(), "local rxe0 near0 near1 also1");
    g_topology = before;
}

void what_is_left_out_is_in_the_log(void **)
{
    static std::string lines;
    static constexpr LogSink kSink = {
        [](Level, Subsys) noexcept { return true; },
        [](Level, Subsys, const char *, int, const char *text) noexcept { lines += std::string(text) + "\n"; },
    };
    set_log_sink(&kSink);
    chosen(machine(), {"near0,rxe0", "eth1", nullptr, nullptr});
    set_log_sink(nullptr);
    assert_string_equal(lines.c_str(),
                        "device rxe0 is not used: its 1 interfaces and their addresses are filtered out\n"
                        "device near1 is not used: it is filtered out by its name\n"
                        "device local is not used: it is filtered out by its name\n"
                        "device also1 is not used: it is filtered out by its name\n");
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_is_first),           cmocka_unit_test(filters_come_before),
        cmocka_unit_test(filters_may_leave_nothing),      cmocka_unit_test(the_machine_is_not_looked_at_for_one),
        cmocka_unit_test(it_is_for_the_calling_thread),   cmocka_unit_test(without_a_topology_the_order_stays),
        cmocka_unit_test(what_is_left_out_is_in_the_log),
    };
    return cmocka_run_group_tests(tests, set_up, nullptr);
}
