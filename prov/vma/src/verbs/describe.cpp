// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/describe.hpp"

#include <arpa/inet.h>
#include <bit>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include <rdma/fi_errno.h>

#include "core/sysfs.hpp"
#include "ofi/ops.hpp"

namespace vma::verbs {
namespace {

// A description with all that it points to. libfabric copies, prints and closes it through its operations.
struct Description {
    fid_nic fid{}; // first
    fi_device_attr device{};
    fi_bus_attr bus{};
    fi_link_attr link{};
    char name[IBV_SYSFS_NAME_MAX] = "";
    char device_id[16] = "";
    char version[16] = "";
    char vendor[16] = "";
    char firmware[64] = "";
    char driver[16] = "verbs";
    char address[INET6_ADDRSTRLEN] = "";
    char network[16] = "";

    Description() noexcept;
    Description(const Description &other) noexcept { *this = other; }
    Description &operator=(const Description &other) noexcept
    {
        if (this != &other) {
            std::memcpy(static_cast<void *>(this), static_cast<const void *>(&other), sizeof other);
            point();
        }
        return *this;
    }

private:
    void point() noexcept
    {
        fid.device_attr = &device;
        fid.bus_attr = &bus;
        fid.link_attr = &link;
        device.name = name;
        device.device_id = device_id;
        device.device_version = version;
        device.vendor_id = vendor;
        device.driver = driver;
        device.firmware = firmware;
        link.address = address;
        link.network_type = network;
    }
};

int close(fid *fid)
{
    delete reinterpret_cast<Description *>(fid);
    return 0;
}

int control(fid *fid, int command, void *argument)
{
    if (command != FI_DUP || argument == nullptr)
        return -FI_ENOSYS;
    auto *copy = new (std::nothrow) Description(*reinterpret_cast<const Description *>(fid));
    if (copy == nullptr)
        return -FI_ENOMEM;
    *static_cast<fid_nic **>(argument) = &copy->fid;
    return 0;
}

// Behind what `buffer` holds already; `room` counts from its beginning (fi_tostr(3) of an fi_info).
int print(const fid *fid, char *buffer, std::size_t room)
{
    const Description &d = *reinterpret_cast<const Description *>(fid);
    char pci[32] = "unknown";
    if (d.bus.bus_type == FI_BUS_PCI) {
        const fi_pci_attr &at = d.bus.attr.pci;
        std::snprintf(pci, sizeof pci, "%04x:%02x:%02x.%x", unsigned{at.domain_id}, unsigned{at.bus_id},
                      unsigned{at.device_id}, unsigned{at.function_id});
    }
    const std::size_t used = ::strnlen(buffer, room);
    std::snprintf(buffer + used, room - used,
                  "    nic:\n        name: %s\n        device_id: %s\n        device_version: %s\n"
                  "        vendor_id: %s\n        driver: %s\n        firmware: %s\n        pci: %s\n"
                  "        address: %s\n        mtu: %zu\n        speed: %zu\n        state: %s\n"
                  "        network_type: %s\n",
                  d.name, d.device_id, d.version, d.vendor, d.driver, d.firmware, pci, d.address, d.link.mtu,
                  d.link.speed, d.link.state == FI_LINK_UP ? "up" : "down", d.network);
    return 0;
}

constinit fi_ops g_ops = ofi::FidOps{.close = close, .control = control, .tostr = print};

Description::Description() noexcept
{
    fid.fid.fclass = FI_CLASS_NIC;
    fid.fid.ops = &g_ops;
    point();
}

// Bits per second. Both are sets of one bit: lanes, and what each carries (InfiniBand specification, PortInfo).
std::size_t link_speed(const ibv_port_attr &port)
{
    constexpr std::size_t kLanes[] = {1, 4, 8, 12, 2};                                           // of bits 0 to 4
    constexpr std::size_t kMegabits[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000}; // of bits 0 to 7
    const auto width = static_cast<unsigned>(std::countr_zero(port.active_width));
    const auto speed = static_cast<unsigned>(std::countr_zero(port.active_speed));
    if (width >= std::size(kLanes) || speed >= std::size(kMegabits))
        return 0;
    return kLanes[width] * kMegabits[speed] * 1'000'000;
}

fi_link_state link_state(ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? FI_LINK_UP : state == IBV_PORT_NOP ? FI_LINK_UNKNOWN : FI_LINK_DOWN;
}

void fill_bus(const Nic &nic, fi_bus_attr &bus)
{
    bus.bus_type = FI_BUS_UNKNOWN;
    if (const std::optional<core::PciAddress> place = core::rdma_pci_address(nic.name)) {
        bus.bus_type = FI_BUS_PCI;
        bus.attr.pci = {.domain_id = place->domain,
                        .bus_id = place->bus,
                        .device_id = place->device,
                        .function_id = place->function};
    }
}

} // namespace

void describe(const Nic &nic, const ofi::Address &address, fi_info &info) noexcept
{
    auto *made = new (std::nothrow) Description;
    if (made == nullptr)
        return;
    std::snprintf(made->name, sizeof made->name, "%s", nic.name);
    std::snprintf(made->device_id, sizeof made->device_id, "0x%04x", nic.attr.vendor_part_id);
    std::snprintf(made->version, sizeof made->version, "%u", nic.attr.hw_ver);
    std::snprintf(made->vendor, sizeof made->vendor, "0x%04x", nic.attr.vendor_id);
    std::snprintf(made->firmware, sizeof made->firmware, "%s", nic.attr.fw_ver);
    std::snprintf(made->network, sizeof made->network, "%s",
                  nic.port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    if (address.sa.sa_family == AF_INET6)
        ::inet_ntop(AF_INET6, &address.v6.sin6_addr, made->address, sizeof made->address);
    else if (address.sa.sa_family == AF_INET)
        ::inet_ntop(AF_INET, &address.v4.sin_addr, made->address, sizeof made->address);
    fill_bus(nic, made->bus);
    made->link.mtu = std::size_t{128} << nic.port.active_mtu; // IBV_MTU_256 is 1
    made->link.speed = link_speed(nic.port);
    made->link.state = link_state(nic.port.state);
    info.nic = &made->fid;
}

} // namespace vma::verbs
