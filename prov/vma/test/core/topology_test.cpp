// SPDX-License-Identifier: BSD-2-Clause
// Topologies, recorded and synthetic: where devices are, what is near to whom, and what bad descriptions come to.
#include "fabtests/unit.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "core/hwloc_table.hpp"
#include "core/topology.hpp"
#include "prov/vma/test/core/topology_probe.hpp"

using namespace vma::core;

// hwloc 2.9 loses the objects it has read when the rest of a file is broken.
extern "C" [[gnu::visibility("default"), gnu::used]] const char *__lsan_default_suppressions(); // NOLINT
const char *__lsan_default_suppressions()                                                       // NOLINT
{
    return "leak:libhwloc";
}

namespace {

// `make check` names the source folder; by hand the test is run from where it was compiled.
std::string recorded(const char *name)
{
    const char *const srcdir = std::getenv("srcdir");
    const std::string source = __FILE__;
    const std::string folder =
        srcdir != nullptr ? std::string(srcdir) + "/prov/vma/test/core" : source.substr(0, source.rfind('/'));
    return folder + "/topologies/" + name;
}

Topology read(const char *name)
{
    const auto topology = Topology::from_xml(recorded(name).c_str());
    assert_true(topology.has_value());
    return topology.value_or(Topology());
}

Topology synthetic(const char *description)
{
    const auto topology = Topology::from_synthetic(description);
    assert_true(topology.has_value());
    return topology.value_or(Topology());
}

CpuSet cpus(std::initializer_list<std::size_t> list)
{
    CpuSet set;
    for (const std::size_t cpu : list)
        set.set(cpu);
    return set;
}

std::string ranked(const Topology &topology, std::initializer_list<DeviceRef> devices, const Where &where)
{
    std::string names;
    for (const std::size_t i : topology.rank({devices.begin(), devices.size()}, where))
        names.append(names.empty() ? "" : " ").append((devices.begin() + i)->name);
    return names;
}

void devices_are_on_nodes(void **)
{
    const Topology two = read("two_sockets.xml");
    assert_int_equal(TopologyProbe::nodes(two), 2);
    assert_int_equal(TopologyProbe::node_of(two, "mlx5_0"), 0);
    assert_int_equal(TopologyProbe::node_of(two, "mlx5_1"), 1);
    assert_int_equal(TopologyProbe::node_of(two, "eth0"), 0);
    assert_int_equal(TopologyProbe::node_of(two, "eth1"), 1);
    assert_int_equal(TopologyProbe::node_of(two, "0000:3b:00.0"), 0);
    assert_int_equal(TopologyProbe::node_of(two, "0000:b0:00.0"), 1);
    for (const char *unknown : {"", "mlx5_", "mlx5_00", "MLX5_0", "0000:3b:00.1", "lo"})
        assert_int_equal(TopologyProbe::node_of(two, unknown), kNoNode);
    assert_true(TopologyProbe::cpus_of(two, 0) == cpus({0, 1, 2, 3}));
    assert_true(TopologyProbe::cpus_of(two, 1) == cpus({4, 5, 6, 7}));
    assert_true(TopologyProbe::cpus_of(two, 2).none() && TopologyProbe::cpus_of(two, kNoNode).none());
}

void a_machine_of_one_node(void **)
{
    const Topology one = read("one_node_no_pci.xml");
    assert_int_equal(TopologyProbe::nodes(one), 1);
    assert_int_equal(TopologyProbe::node_of(one, "mlx5_0"), kNoNode);
    assert_true(TopologyProbe::cpus_of(one, 0) == cpus({0, 1, 2, 3}));
    assert_false(one.distance("mlx5_0", cpus({0})).has_value());
    assert_string_equal(ranked(one, {{"b"}, {"a"}, {"c", 0}, {"d", 0}}, {cpus({1}), 1}).c_str(), "c d b a");
}

void a_device_on_none_of_four_nodes(void **)
{
    const Topology four = read("four_nodes.xml");
    assert_int_equal(TopologyProbe::nodes(four), 4); // node 0 has no processors
    assert_true(TopologyProbe::cpus_of(four, 0).none());
    assert_true(TopologyProbe::cpus_of(four, 1) == cpus({0, 1}));
    assert_int_equal(TopologyProbe::node_of(four, "mlx5_2"), 3);
    assert_int_equal(TopologyProbe::node_of(four, "mlx5_9"), kNoNode);
    assert_int_equal(TopologyProbe::node_of(four, "0001:01:00.0"), kNoNode);
    assert_false(four.distance("mlx5_9", cpus({0})).has_value());
    for (std::size_t cpu = 0; cpu < 8; ++cpu)
        assert_string_equal(ranked(four, {{"mlx5_9"}, {"mlx5_2"}}, {cpus({cpu}), -1}).c_str(), "mlx5_2 mlx5_9");
}

void distances_are_the_firmware_s(void **)
{
    const Topology four = read("four_nodes.xml");
    const unsigned from[] = {2200, 1600, 1000, 1600}; // of node 3, which stands opposite to node 1
    for (std::size_t node = 0; node < 4; ++node) {
        assert_int_equal(four.distance("mlx5_2", cpus({2 * node})).value_or(0), from[node]);
        assert_int_equal(four.distance(3, cpus({2 * node, 2 * node + 1})).value_or(0), from[node]);
    }
    assert_int_equal(four.distance("mlx5_2", cpus({0, 4})).value_or(0), 1600);
    assert_int_equal(four.distance("mlx5_2", cpus({0, 1, 4})).value_or(0), 1800);
    assert_false(four.distance("mlx5_2", CpuSet()).has_value());
    assert_false(four.distance("mlx5_2", cpus({8, 9})).has_value()); // there are no such
    assert_false(four.distance(0, cpus({0})).has_value());
    assert_false(four.distance(kNoNode, cpus({0})).has_value());
}

void threads_get_the_nearest(void **)
{
    const Topology two = read("two_sockets.xml");
    for (std::size_t cpu = 0; cpu < 8; ++cpu) {
        const char *expected = cpu < 4 ? "mlx5_0 mlx5_1" : "mlx5_1 mlx5_0";
        assert_string_equal(ranked(two, {{"mlx5_1"}, {"mlx5_0"}}, {cpus({cpu}), -1}).c_str(), expected);
        // where it runs now counts more than where it may run
        assert_string_equal(
            ranked(two, {{"mlx5_0"}, {"mlx5_1"}}, {cpus({0, 1, 2, 3, 4, 5, 6, 7}), static_cast<int>(cpu)}).c_str(),
            expected);
    }
}

void sets_that_span_nodes(void **)
{
    const Topology two = read("two_sockets.xml");
    assert_int_equal(two.distance("mlx5_0", cpus({0, 1, 2, 4})).value_or(0), 1275);
    assert_int_equal(two.distance("mlx5_1", cpus({0, 1, 2, 4})).value_or(0), 1825);
    assert_string_equal(ranked(two, {{"mlx5_1"}, {"mlx5_0"}}, {cpus({0, 1, 2, 4}), -1}).c_str(), "mlx5_0 mlx5_1");
    assert_string_equal(ranked(two, {{"mlx5_0"}, {"mlx5_1"}}, {cpus({0, 5, 6, 7}), -1}).c_str(), "mlx5_1 mlx5_0");
}

void equals_stay_in_order(void **)
{
    const Topology two = read("two_sockets.xml");
    const Where both = {cpus({0, 1, 4, 5}), -1};
    assert_string_equal(ranked(two, {{"mlx5_0"}, {"mlx5_1"}}, both).c_str(), "mlx5_0 mlx5_1");
    assert_string_equal(ranked(two, {{"mlx5_1"}, {"mlx5_0"}}, both).c_str(), "mlx5_1 mlx5_0");
    assert_string_equal(ranked(two, {{"eth1"}, {"mlx5_1"}, {"eth0"}, {"mlx5_0"}}, {cpus({2}), 2}).c_str(),
                        "eth0 mlx5_0 eth1 mlx5_1");
    assert_string_equal(ranked(two, {{"x"}, {"mlx5_1"}, {"y"}}, {}).c_str(), "x mlx5_1 y"); // of nobody known
    assert_true(two.rank({}, both).empty());
}

void unknown_devices_are_last(void **)
{
    const Topology two = read("two_sockets.xml");
    const Where there = {cpus({6}), 6};
    assert_string_equal(ranked(two, {{"rxe0"}, {"mlx5_0"}, {"rxe1"}, {"mlx5_1"}}, there).c_str(),
                        "mlx5_1 mlx5_0 rxe0 rxe1");
    // sysfs may know the node of what hwloc doesn't list; of what it lists hwloc is right
    assert_string_equal(ranked(two, {{"rxe0"}, {"mlx5_0", 1}, {"irdma0", 1}}, there).c_str(), "irdma0 mlx5_0 rxe0");
    assert_string_equal(ranked(two, {{"rxe0", 7}, {"rxe1", -5}, {"mlx5_0"}}, there).c_str(), "mlx5_0 rxe0 rxe1");
    assert_string_equal(ranked(Topology(), {{"mlx5_1"}, {"mlx5_0", 0}}, there).c_str(), "mlx5_1 mlx5_0");
}

void without_a_matrix_the_tree_decides(void **)
{
    const Topology tree = synthetic("pack:2 group:2 [numa] pu:2");
    assert_int_equal(TopologyProbe::nodes(tree), 4);
    assert_int_equal(tree.distance(0, cpus({0})).value_or(0), 1000);
    assert_int_equal(tree.distance(0, cpus({2})).value_or(0), 1200);
    assert_int_equal(tree.distance(0, cpus({4})).value_or(0), 2000);
    assert_string_equal(ranked(tree, {{"c", 3}, {"b", 1}, {"a", 0}}, {cpus({1}), 1}).c_str(), "a b c");
}

void two_kinds_of_memory_are_one_place(void **)
{
    const Topology tree = synthetic("pack:2 [numa] [numa] pu:2");
    assert_int_equal(TopologyProbe::nodes(tree), 2);
    assert_int_equal((TopologyProbe::cpus_of(tree, 0) | TopologyProbe::cpus_of(tree, 2)).count(), 4);
}

void processors_past_the_last_are_left_out(void **)
{
    const Topology big = synthetic("numa:2 pu:2(indexes=0,8191,8192,1)");
    assert_true(TopologyProbe::cpus_of(big, 0) == cpus({0, kMaxCpus - 1}));
    assert_true(TopologyProbe::cpus_of(big, 1) == cpus({1}));
    assert_int_equal(big.distance(0, cpus({kMaxCpus - 1})).value_or(0), 1000);
}

void bad_descriptions_are_errors(void **)
{
    for (const char *bad : {"", "numa", "numa:0", "numa:-1", "numa:2", "pu:", "cow:3 pu:2", "numa:2 pu:99999999999",
                            "numa:2 pu:2)", "\xff\xfe", "[numa]", "pu:2 numa:2"})
        assert_false(Topology::from_synthetic(bad).has_value());
    const std::string deep = "numa:2" + [] {
        std::string levels;
        for (int i = 0; i < 1000; ++i)
            levels += " core:1";
        return levels;
    }();
    assert_false(Topology::from_synthetic(deep.c_str()).has_value());
    assert_false(Topology::from_xml("").has_value());
    assert_false(Topology::from_xml(recorded("none.xml").c_str()).has_value());
    assert_false(Topology::from_xml("/").has_value());
    assert_false(Topology::from_xml("/dev/null").has_value());
}

// A file that only exists while a case runs.
class File
{
public:
    File()
    {
        const int fd = ::mkstemp(path_);
        assert_true(fd >= 0);
        ::close(fd);
    }
    ~File() { ::unlink(path_); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    const char *hold(const std::string &text) const
    {
        std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
        return path_;
    }

private:
    char path_[32] = "/tmp/vma-topology-XXXXXX";
};

std::string text_of(const char *name)
{
    std::ifstream file(recorded(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void broken_files_are_errors(void **)
{
    const File file;
    const std::string whole = text_of("two_sockets.xml");
    assert_true(whole.size() > 1000);
    assert_true(Topology::from_xml(file.hold(whole)).has_value());
    const std::size_t needed = whole.find("</topology>");
    for (std::size_t length = 0; length < needed; length += 37)
        assert_false(Topology::from_xml(file.hold(whole.substr(0, length))).has_value());
}

std::string replaced(std::string text, const std::string &old, const std::string &with)
{
    const std::size_t at = text.find(old);
    assert_true(at != text.npos);
    return text.replace(at, old.size(), with);
}

// hwloc 2.9 itself doesn't survive every file whose parts contradict each other, which is why this machine is all that
// the provider reads. What it does hand on is checked.
void values_out_of_range_are_not_taken(void **)
{
    const File file;
    std::string far = replaced(text_of("two_sockets.xml"), "\"6\">10 21 <", "\"24\">10 18446744073709551615 <");
    const auto distant = Topology::from_xml(file.hold(far));
    assert_true(distant.has_value());
    assert_int_equal(distant->distance(0, cpus({7})).value_or(0), 6553500);
    const auto numbered = Topology::from_synthetic("numa:2(indexes=3,1024) pu:2"); // 1024 is one too many
    assert_true(numbered.has_value());
    assert_int_equal(TopologyProbe::nodes(*numbered), 1);
    assert_true(TopologyProbe::cpus_of(*numbered, 3) == cpus({0, 1}));
    assert_true(TopologyProbe::cpus_of(*numbered, 1024).none());
    assert_false(numbered->distance(3, cpus({2})).has_value());
}

// In a process of its own, for it is read once.
int nodes_of_the_machine(const char *variable, const std::string &value)
{
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv(variable, value.c_str(), 1);
        _exit(static_cast<int>(TopologyProbe::nodes(machine_topology())));
    }
    int status = -1;
    assert_int_equal(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void hwloc_s_variables_are_followed(void **)
{
    assert_int_equal(nodes_of_the_machine("HWLOC_SYNTHETIC", "numa:3 pu:2"), 3);
    assert_int_equal(nodes_of_the_machine("HWLOC_XMLFILE", recorded("four_nodes.xml")), 4);
}

void without_hwloc(void **)
{
    use_hwloc_library("libnothing-of-that-name.so.15");
    assert_false(Topology::from_xml(recorded("two_sockets.xml").c_str()).has_value());
    assert_false(Topology::from_synthetic("numa:2 pu:2").has_value());
    assert_false(Topology::this_machine().has_value());
    use_hwloc_library("libm.so.6"); // has none of the functions
    assert_false(Topology::this_machine().has_value());
    ::setenv("HWLOC_SYNTHETIC", "numa:2 pu:2", 1); // else it may be known without hwloc that there is one node
    const Topology &machine = machine_topology();  // read now, and never again
    ::unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(TopologyProbe::nodes(machine), 0);
    use_hwloc_library(nullptr);
    assert_true(Topology::from_synthetic("numa:2 pu:2").has_value());
    assert_ptr_equal(&machine_topology(), &machine);
    assert_int_equal(TopologyProbe::nodes(machine_topology()), 0);
    assert_string_equal(ranked(machine, {{"b"}, {"a"}}, calling_thread()).c_str(), "b a");
}

void this_machine_has_this_thread(void **)
{
    const auto machine = Topology::this_machine();
    assert_true(machine.has_value());
    if (!machine)
        return;
    assert_true(TopologyProbe::nodes(*machine) >= 1);
    const Where here = calling_thread();
    assert_true(here.cpus.any());
    assert_true(here.cpu >= 0);
    CpuSet all;
    for (int node = 0; node < kMaxNodes; ++node)
        all |= TopologyProbe::cpus_of(*machine, node);
    assert_true((here.cpus & ~all).none());
    assert_true(all.test(static_cast<std::size_t>(here.cpu)));
}

void a_thread_s_set_is_its_own(void **)
{
    cpu_set_t before;
    cpu_set_t one;
    assert_int_equal(::sched_getaffinity(0, sizeof(before), &before), 0);
    int cpu = CPU_SETSIZE - 1;
    while (!CPU_ISSET(cpu, &before))
        --cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(::sched_setaffinity(0, sizeof(one), &one), 0);
    const Where here = calling_thread();
    assert_int_equal(::sched_setaffinity(0, sizeof(before), &before), 0);
    assert_true(here.cpus == cpus({static_cast<std::size_t>(cpu)}));
    assert_int_equal(here.cpu, cpu);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_on_nodes),
        cmocka_unit_test(a_machine_of_one_node),
        cmocka_unit_test(a_device_on_none_of_four_nodes),
        cmocka_unit_test(distances_are_the_firmware_s),
        cmocka_unit_test(threads_get_the_nearest),
        cmocka_unit_test(sets_that_span_nodes),
        cmocka_unit_test(equals_stay_in_order),
        cmocka_unit_test(unknown_devices_are_last),
        cmocka_unit_test(without_a_matrix_the_tree_decides),
        cmocka_unit_test(two_kinds_of_memory_are_one_place),
        cmocka_unit_test(processors_past_the_last_are_left_out),
        cmocka_unit_test(bad_descriptions_are_errors),
        cmocka_unit_test(broken_files_are_errors),
        cmocka_unit_test(values_out_of_range_are_not_taken),
        cmocka_unit_test(hwloc_s_variables_are_followed),
        cmocka_unit_test(without_hwloc),
        cmocka_unit_test(this_machine_has_this_thread),
        cmocka_unit_test(a_thread_s_set_is_its_own),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
