// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/describe.hpp"

#include <arpa/inet.h>
#include <bit>
#include <cstdio>
#include <cstring>

#include "core/sysfs.hpp"

namespace vma::verbs {
namespace {

// Bits per second. Both are sets of one bit: lanes, and what each carries (InfiniBand specification, PortInfo).
std::size_t link_speed(const ibv_port_attr &port)
{
    constexpr std::size_t kLanes[] = {1, 4, 8, 12, 2}; // of bits 0, 1, 2, 3, 4
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

// Texts of the description; what points to them lives no longer.
struct Texts {
    char name[IBV_SYSFS_NAME_MAX];
    char device_id[16];
    char version[16];
    char vendor[16];
    char firmware[64];
    char driver[16] = "verbs";
    char address[INET6_ADDRSTRLEN] = "";
    char network[16];
};

void fill_texts(const Nic &nic, const ofi::Address &address, Texts &texts)
{
    std::snprintf(texts.name, sizeof texts.name, "%s", nic.name);
    std::snprintf(texts.device_id, sizeof texts.device_id, "0x%04x", nic.attr.vendor_part_id);
    std::snprintf(texts.version, sizeof texts.version, "%u", nic.attr.hw_ver);
    std::snprintf(texts.vendor, sizeof texts.vendor, "0x%04x", nic.attr.vendor_id);
    std::snprintf(texts.firmware, sizeof texts.firmware, "%s", nic.attr.fw_ver);
    std::snprintf(texts.network, sizeof texts.network, "%s",
                  nic.port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
    const void *bytes = address.sa.sa_family == AF_INET6 ? static_cast<const void *>(&address.v6.sin6_addr)
                                                         : static_cast<const void *>(&address.v4.sin_addr);
    if (!address.empty())
        ::inet_ntop(address.sa.sa_family, bytes, texts.address, sizeof texts.address);
}

fi_bus_attr bus_attr(const Nic &nic)
{
    fi_bus_attr bus{};
    bus.bus_type = FI_BUS_UNKNOWN;
    if (const std::optional<core::PciAddress> place = core::rdma_pci_address(nic.name)) {
        bus.bus_type = FI_BUS_PCI;
        bus.attr.pci = {.domain_id = place->domain,
                        .bus_id = place->bus,
                        .device_id = place->device,
                        .function_id = place->function};
    }
    return bus;
}

} // namespace

void describe(const Nic &nic, const ofi::Address &address, fi_info &info) noexcept
{
    Texts texts;
    fill_texts(nic, address, texts);
    fi_device_attr device = {.name = texts.name,
                             .device_id = texts.device_id,
                             .device_version = texts.version,
                             .vendor_id = texts.vendor,
                             .driver = texts.driver,
                             .firmware = texts.firmware};
    fi_bus_attr bus = bus_attr(nic);
    fi_link_attr link = {.address = texts.address,
                         .mtu = std::size_t{128} << nic.port.active_mtu, // IBV_MTU_256 is 1
                         .speed = link_speed(nic.port),
                         .state = link_state(nic.port.state),
                         .network_type = texts.network};
    fid_nic model{};
    model.fid.fclass = FI_CLASS_NIC;
    model.device_attr = &device;
    model.bus_attr = &bus;
    model.link_attr = &link;
    ofi::set_nic(info, model);
}

} // namespace vma::verbs
