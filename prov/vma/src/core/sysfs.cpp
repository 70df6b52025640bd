// SPDX-License-Identifier: BSD-2-Clause
#include "core/sysfs.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>
#include <unistd.h>

#include "core/fd.hpp"
#include "core/folder.hpp"
#include "core/kernel.hpp"

namespace vma::core {
namespace {

// As a single step of a path. The kernel gives no other names; who asks for "../x" gets nothing.
bool is_file_name(std::string_view name)
{
    return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::string path_of(std::string_view device, const char *root, const char *kind = "/class/infiniband/")
{
    return is_file_name(device) ? std::string(root) + kind + std::string(device) : std::string();
}

// The first line, without its end; empty where it can't be read.
std::string read_line(const std::string &path)
{
    const UniqueFd file = make_fd([&] { return kernel::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    std::array<char, NAME_MAX + 2> text;
    const ssize_t length = file ? kernel::read(file.get(), text.data(), text.size()) : 0;
    const std::string_view all(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    return std::string(all.substr(0, all.find('\n')));
}

std::vector<std::string> entries(const std::string &path)
{
    std::vector<std::string> names;
    Folder folder(path.c_str());
    while (const char *const name = folder.next())
        if (name[0] != '.')
            names.emplace_back(name);
    return names;
}

// All of `text` as a number.
template <typename Number> bool parse(std::string_view text, Number &number, int base)
{
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    return error == std::errc() && end == text.data() + text.size();
}

int numa_node(const std::string &path)
{
    int node = -1;
    return !path.empty() && parse(read_line(path + "/device/numa_node"), node, 10) && node >= 0 ? node : -1;
}

} // namespace

bool has_one_numa_node(const char *root) noexcept
{
    const std::string online = read_line(std::string(root) + "/devices/system/node/online"); // "0", "0-3", "0,2"
    return online.find_first_of("-,") == online.npos;
}

std::optional<PciAddress> parse_pci_address(std::string_view text) noexcept
{
    PciAddress address;
    constexpr std::size_t kLength = std::string_view("0000:00:00.0").size();
    if (text.size() != kLength || text[4] != ':' || text[7] != ':' || text[10] != '.')
        return std::nullopt;
    if (!parse(text.substr(0, 4), address.domain, 16) || !parse(text.substr(5, 2), address.bus, 16) ||
        !parse(text.substr(8, 2), address.device, 16) || !parse(text.substr(11), address.function, 16))
        return std::nullopt;
    return address;
}

std::optional<PciAddress> rdma_pci_address(std::string_view device, const char *root) noexcept
{
    std::array<char, 1024> target; // below /sys: the buses on the way to the device
    const std::string path_of_device = path_of(device, root);
    if (path_of_device.empty())
        return std::nullopt;
    const ssize_t length = kernel::readlink((path_of_device + "/device").c_str(), target.data(), target.size());
    if (length <= 0)
        return std::nullopt;
    const std::string_view path(target.data(), static_cast<std::size_t>(length));
    return parse_pci_address(path.substr(path.rfind('/') + 1));
}

int rdma_numa_node(std::string_view device, const char *root) noexcept
{
    return numa_node(path_of(device, root));
}

int net_numa_node(std::string_view interface, const char *root) noexcept
{
    return numa_node(path_of(interface, root, "/class/net/"));
}

bool has_rdma_devices(const char *root) noexcept
{
    return !entries(std::string(root) + "/class/infiniband").empty();
}

std::optional<RdmaPort> rdma_port_of(std::string_view interface, const char *root) noexcept
{
    if (!is_file_name(interface))
        return std::nullopt; // entries of the table that have no address are empty
    std::vector<std::string> devices = entries(std::string(root) + "/class/infiniband");
    std::ranges::sort(devices);
    for (const std::string &device : devices) {
        const std::string ports = path_of(device, root) + "/ports";
        for (const std::string &port : entries(ports)) {
            std::uint8_t number = 0;
            if (!parse(port, number, 10))
                continue;
            std::string table = ports;
            table.append("/").append(port).append("/gid_attrs/ndevs/");
            for (const std::string &gid : entries(table)) {
                if (read_line(table + gid) == interface)
                    return RdmaPort{device, number};
            }
        }
    }
    return std::nullopt;
}

} // namespace vma::core
