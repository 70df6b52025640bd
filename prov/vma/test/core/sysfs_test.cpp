// SPDX-License-Identifier: BSD-2-Clause
// RDMA devices in sysfs, read from a folder that looks like one.
#include "fabtests/unit.hpp"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <ftw.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "core/sysfs.hpp"

using namespace vma::core;

namespace {

// A sysfs: mlx5_0 is a PCI function with two ports, rxe0 is software over eth0.
class Tree
{
public:
    Tree()
    {
        char path[] = "/tmp/vma-sysfs-XXXXXX";
        const char *const made = ::mkdtemp(path);
        assert_non_null(made);
        root_ = made != nullptr ? made : "";
    }
    ~Tree()
    {
        ::nftw(
            root_.c_str(), [](const char *path, const struct stat *, int, struct FTW *) { return ::remove(path); }, 8,
            FTW_DEPTH | FTW_PHYS);
    }
    Tree(const Tree &) = delete;
    Tree &operator=(const Tree &) = delete;

    const char *root() const { return root_.c_str(); }
    void folder(const std::string &name) const
    {
        for (std::size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1))
            ::mkdir((root_ + "/" + name.substr(0, end)).c_str(), 0755);
        assert_true(::mkdir((root_ + "/" + name).c_str(), 0755) == 0 || errno == EEXIST);
    }
    void file(const std::string &folder_name, const std::string &name, const std::string &text) const
    {
        folder(folder_name);
        std::ofstream(root_ + "/" + folder_name + "/" + name) << text;
    }
    void link(const std::string &folder_name, const std::string &name, const std::string &target) const
    {
        folder(folder_name);
        assert_int_equal(::symlink(target.c_str(), (root_ + "/" + folder_name + "/" + name).c_str()), 0);
    }

private:
    std::string root_;
};

const std::string kDevices = "class/infiniband/";

void a_card(const Tree &tree)
{
    const std::string function = "devices/pci0000:3a/0000:3b:00.1";
    tree.file(function, "numa_node", "1\n");
    tree.folder(function + "/net/eth0");
    tree.folder(function + "/net/ib0");
    tree.link(kDevices + "mlx5_0", "device", "../../../" + function);
    tree.file(kDevices + "mlx5_0/ports/1/gid_attrs/ndevs", "0", "eth0\n");
    tree.file(kDevices + "mlx5_0/ports/1/gid_attrs/ndevs", "1", "eth0.100\n");
    tree.file(kDevices + "mlx5_0/ports/1/gid_attrs/ndevs", "2", "");
    tree.file(kDevices + "mlx5_0/ports/2/gid_attrs/ndevs", "0", "eth1\n");
}

void a_card_is_read(void **)
{
    const Tree tree;
    a_card(tree);
    const auto address = rdma_pci_address("mlx5_0", tree.root());
    assert_true(address.has_value());
    assert_true(address == (PciAddress{0, 0x3b, 0, 1}));
    assert_int_equal(rdma_numa_node("mlx5_0", tree.root()), 1);
}

void software_is_no_pci_function(void **)
{
    const Tree tree;
    tree.file(kDevices + "rxe0/ports/1/gid_attrs/ndevs", "0", "eth0\n");
    assert_false(rdma_pci_address("rxe0", tree.root()).has_value());
    assert_int_equal(rdma_numa_node("rxe0", tree.root()), -1);
    tree.link(kDevices + "vdev0", "device", "../../../devices/virtual/thing");
    assert_false(rdma_pci_address("vdev0", tree.root()).has_value());
}

void unknown_nodes(void **)
{
    const Tree tree;
    const char *const texts[] = {"-1\n", "", "many\n", "1x\n", "99999999999\n", " 1\n", "-7\n"};
    for (std::size_t i = 0; i < std::size(texts); ++i) {
        const std::string name = "mlx5_" + std::to_string(i);
        tree.file(kDevices + name + "/device", "numa_node", texts[i]);
        assert_int_equal(rdma_numa_node(name, tree.root()), -1);
    }
    tree.file(kDevices + "good/device", "numa_node", "12\n");
    assert_int_equal(rdma_numa_node("good", tree.root()), 12);
}

void names_are_single_steps(void **)
{
    const Tree tree;
    a_card(tree);
    tree.link("class/elsewhere", "device", "0000:00:01.0");
    tree.file("class/elsewhere/ports/1/gid_attrs/ndevs", "0", "eth0\n");
    const std::string cut("mlx5_0\0/../x", 12);
    const std::string endless(5000, 'x');
    for (const std::string_view name :
         {std::string_view("../elsewhere"), std::string_view("."), std::string_view(".."), std::string_view(),
          std::string_view("mlx5_0/"), std::string_view(cut), std::string_view(endless), std::string_view("mlx5_9")}) {
        assert_false(rdma_pci_address(name, tree.root()).has_value());
        assert_int_equal(rdma_numa_node(name, tree.root()), -1);
    }
}

void nodes_of_the_machine(void **)
{
    const Tree tree;
    assert_true(has_one_numa_node(tree.root())); // a kernel without NUMA
    const std::string folder = "devices/system/node";
    for (const char *one : {"0\n", "", "3\n"}) {
        tree.file(folder, "online", one);
        assert_true(has_one_numa_node(tree.root()));
    }
    for (const char *several : {"0-1\n", "0,8\n", "0-1,4\n"}) {
        tree.file(folder, "online", several);
        assert_false(has_one_numa_node(tree.root()));
    }
}

void pci_addresses(void **)
{
    assert_true(parse_pci_address("0000:3b:00.0") == (PciAddress{0, 0x3b, 0, 0}));
    assert_true(parse_pci_address("ffff:ff:1f.7") == (PciAddress{0xffff, 0xff, 0x1f, 7}));
    for (const char *bad :
         {"", "3b:00.0", "0000:3b:00", "0000:3b:00.", "0000:3b:00.00", "10000:3b:00.0", "0000-3b:00.0", "0000:3g:00.0",
          "000x:3b:00.0", "0000:3b:-1.0", "0000:3b:00.g", " 000:3b:00.0", "mlx5_core.eth.0"})
        assert_false(parse_pci_address(bad).has_value());
}

void the_port_behind_an_interface(void **)
{
    const Tree tree;
    a_card(tree);
    tree.file(kDevices + "rxe0/ports/1/gid_attrs/ndevs", "0", "eth0\n"); // behind it in the order of names
    tree.file(kDevices + "mlx5_0/ports/nonsense/gid_attrs/ndevs", "0", "eth7\n");
    const std::optional<RdmaPort> first = rdma_port_of("eth0", tree.root());
    assert_true(first && first->device == "mlx5_0" && first->port == 1);
    const std::optional<RdmaPort> second = rdma_port_of("eth1", tree.root());
    assert_true(second && second->device == "mlx5_0" && second->port == 2);
    for (const char *name : {"eth7", "eth", "ib0", "", "../eth0"})
        assert_false(rdma_port_of(name, tree.root()).has_value());
    assert_false(rdma_port_of("eth0", "/nonexistent").has_value());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_card_is_read),
        cmocka_unit_test(software_is_no_pci_function),
        cmocka_unit_test(unknown_nodes),
        cmocka_unit_test(names_are_single_steps),
        cmocka_unit_test(nodes_of_the_machine),
        cmocka_unit_test(pci_addresses),
        cmocka_unit_test(the_port_behind_an_interface),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
