// SPDX-License-Identifier: BSD-2-Clause
// Devices, contexts, ports, attributes and async events of the simulated NIC.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <endian.h>

namespace vma::sim {
namespace {

constexpr int kCompVectors = 4;
constexpr std::uint8_t kSpeed25Gbit = 32;
constexpr std::uint8_t kLinkUp = 5;
constexpr std::uint8_t kLinkDisabled = 3;

std::uint64_t guid(const Device &device)
{
    return device.config.guid != 0 ? device.config.guid : 0x0250'56ff'fe00'0001 + device.place;
}

std::uint64_t clock_mask(const Device &device)
{
    return UINT64_MAX >> (64 - device.config.clock_bits);
}

int query_port_ex(ibv_context *context, std::uint8_t port, ibv_port_attr *attr, std::size_t size)
{
    const std::lock_guard guard(world().mutex);
    const Device &device = nic(context);
    if (device.removed)
        return EIO;
    if (port != 1)
        return EINVAL;
    ibv_port_attr made{};
    made.state = device.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    made.max_mtu = IBV_MTU_4096;
    made.active_mtu = device.config.mtu;
    made.gid_tbl_len = static_cast<int>(device.gids.size());
    made.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    made.max_msg_sz = device.config.max_message;
    made.pkey_tbl_len = 1;
    made.max_vl_num = 1;
    made.active_width = 2; // 4 lanes
    made.active_speed = kSpeed25Gbit;
    made.phys_state = device.up ? kLinkUp : kLinkDisabled;
    made.link_layer = IBV_LINK_LAYER_ETHERNET;
    std::memcpy(attr, &made, std::min(size, sizeof(made)));
    return 0;
}

void describe(const Device &device, ibv_device_attr &attr)
{
    const DeviceConfig &config = device.config;
    attr = {};
    std::strcpy(attr.fw_ver, "1.0.0");
    attr.node_guid = htobe64(guid(device));
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = UINT64_MAX;
    attr.page_size_cap = 4096;
    attr.max_qp = config.max_qp;
    attr.max_qp_wr = config.max_qp_wr;
    attr.device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                            static_cast<unsigned>(IBV_DEVICE_MANAGED_FLOW_STEERING);
    if (config.raw_packets && config.ip_csum)
        attr.device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM;
    attr.max_sge = config.max_sge;
    attr.max_sge_rd = config.max_sge;
    attr.max_cq = 65536;
    attr.max_cqe = config.max_cqe;
    attr.max_mr = config.max_mr;
    attr.max_pd = 65536;
    attr.max_qp_rd_atom = config.max_rd_atomic;
    attr.max_res_rd_atom = config.max_rd_atomic * config.max_qp;
    attr.max_qp_init_rd_atom = config.max_rd_atomic;
    attr.max_ah = 65536;
    attr.max_srq = 65536;
    attr.max_srq_wr = config.max_srq_wr;
    attr.max_srq_sge = config.max_sge;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = 15;
    attr.phys_port_cnt = 1;
}

int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input, ibv_device_attr_ex *attr,
                    std::size_t size)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("query_device_ex"))
        return error;
    const Device &device = nic(context);
    if (device.removed)
        return EIO;
    if (input != nullptr && input->comp_mask != 0)
        return EINVAL;
    ibv_device_attr_ex made{};
    describe(device, made.orig_attr);
    made.phys_port_cnt_ex = 1;
    made.device_cap_flags_ex = made.orig_attr.device_cap_flags;
    made.max_dm_size = device.config.dm_size;
    if (device.config.clock_khz != 0) {
        made.completion_timestamp_mask = clock_mask(device);
        made.hca_core_clock = device.config.clock_khz;
    }
    if (device.config.raw_packets && device.config.ip_csum)
        made.raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
    if (device.config.raw_packets && device.config.max_tso != 0) {
        made.tso_caps.max_tso = device.config.max_tso;
        made.tso_caps.supported_qpts = 1U << IBV_QPT_RAW_PACKET;
    }
    if (device.config.rate_max != 0) {
        made.packet_pacing_caps.qp_rate_limit_min = device.config.rate_min;
        made.packet_pacing_caps.qp_rate_limit_max = device.config.rate_max;
        made.packet_pacing_caps.supported_qpts = (1U << IBV_QPT_RC) | (1U << IBV_QPT_UD) | (1U << IBV_QPT_RAW_PACKET);
    }
    std::memcpy(attr, &made, std::min(size, sizeof(made)));
    return 0;
}

int query_rt_values(ibv_context *context, ibv_values_ex *values)
{
    const std::lock_guard guard(world().mutex);
    if (const int error = take_fault("query_rt_values"))
        return error;
    const Device &device = nic(context);
    if (device.removed)
        return EIO;
    if (device.config.clock_khz == 0)
        return EOPNOTSUPP;
    const std::uint32_t asked = values->comp_mask;
    values->comp_mask = 0;
    if ((asked & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
        // The field holds ticks of the device's clock; providers put them into a timespec like this.
        values->raw_clock = {0, static_cast<long>(ticks(device, world().timers.now()))};
        values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    }
    return 0;
}

} // namespace

std::uint64_t ticks(const Device &device, Ns time)
{
    constexpr std::uint64_t kMillisecond = 1'000'000; // in ns
    const auto ns = static_cast<std::uint64_t>(time.count());
    const std::uint64_t khz = device.config.clock_khz;
    return (ns / kMillisecond * khz + ns % kMillisecond * khz / kMillisecond) & clock_mask(device);
}

Context *make_context(Device &device)
{
    auto *made = new Context;
    static_cast<verbs_context &>(*made) = {};
    made->nic = &device;
    made->sz = sizeof(verbs_context);
    made->query_port = query_port_ex;
    made->query_device_ex = query_device_ex;
    made->query_rt_values = query_rt_values;
    made->alloc_dm = alloc_dm;
    made->free_dm = free_dm;
    made->reg_dm_mr = reg_dm_mr;
    made->create_cq_ex = create_cq_ex;
    made->create_qp_ex = create_qp_ex;
    made->modify_cq = modify_cq;
    made->modify_qp_rate_limit = modify_qp_rate_limit;
    made->ibv_create_flow = create_flow;
    made->ibv_destroy_flow = destroy_flow;
    ibv_context &plain = made->context;
    plain.device = &device;
    plain.cmd_fd = -1;
    plain.async_fd = made->events.fd();
    plain.num_comp_vectors = kCompVectors;
    plain.abi_compat = __VERBS_ABI_IS_EXTENDED;
    ::pthread_mutex_init(&plain.mutex, nullptr);
    plain.ops.poll_cq = poll_cq;
    plain.ops.req_notify_cq = req_notify_cq;
    plain.ops.post_send = post_send;
    plain.ops.post_recv = post_recv;
    plain.ops.post_srq_recv = post_srq_recv;
    world().contexts.insert(made);
    return made;
}

bool gid_of(const std::string &address, ibv_gid &gid)
{
    gid = {};
    if (::inet_pton(AF_INET6, address.c_str(), gid.raw) == 1)
        return true;
    gid.raw[10] = gid.raw[11] = 0xff;
    return ::inet_pton(AF_INET, address.c_str(), gid.raw + 12) == 1;
}

Device *device_of(const ibv_gid &gid)
{
    for (const auto &device : world().devices) {
        for (const ibv_gid &own : device->gids) {
            if (!device->removed && std::memcmp(own.raw, gid.raw, sizeof(gid.raw)) == 0)
                return device.get();
        }
    }
    return nullptr;
}

bool reachable(const Device &from, const Device &to)
{
    if (!from.up || !to.up || from.removed || to.removed)
        return false;
    return !world().cuts.contains(std::minmax(from.place, to.place));
}

void async_event(ibv_context *context, ibv_event_type type, void *element)
{
    AsyncEvent made{};
    made.event.event_type = type;
    made.element = element;
    if (element != nullptr)
        made.event.element.qp = static_cast<ibv_qp *>(element); // all members of the union are pointers but port_num
    else
        made.event.element.port_num = 1;
    of(context)->events.push(made);
}

void forget_async(ibv_context *context, const void *element)
{
    of(context)->events.remove([element](const AsyncEvent &event) { return event.element == element; });
}

namespace calls {

int fork_init()
{
    return 0;
}

ibv_device **get_device_list(int *count)
{
    const std::lock_guard guard(world().mutex);
    const auto &all = world().devices;
    auto **list = new ibv_device *[all.size() + 1];
    int found = 0;
    for (const auto &device : all) {
        if (!device->removed)
            list[found++] = device.get();
    }
    list[found] = nullptr;
    if (count != nullptr)
        *count = found;
    return list;
}

void free_device_list(ibv_device **list)
{
    delete[] list;
}

const char *get_device_name(ibv_device *device)
{
    return device->name;
}

ibv_context *open_device(ibv_device *device)
{
    const std::lock_guard guard(world().mutex);
    auto &opened = *static_cast<Device *>(device);
    if (opened.removed)
        return null_errno(ENODEV);
    return &make_context(opened)->context;
}

int close_device(ibv_context *context)
{
    const std::lock_guard guard(world().mutex);
    Context *closed = of(context);
    // The kernel would free what is left, and the caller's pointers would dangle: here it is a fault that is told.
    for (const Pd *pd : world().pds) {
        if (pd->context == context) {
            std::fprintf(stderr, "sim: ibv_close_device(%s) with objects left\n", context->device->name);
            return EBUSY;
        }
    }
    for (const Cq *cq : world().cqs) {
        if (cq->context == context)
            return EBUSY;
    }
    world().contexts.erase(closed);
    delete closed;
    return 0;
}

int query_device(ibv_context *context, ibv_device_attr *attr)
{
    const std::lock_guard guard(world().mutex);
    if (nic(context).removed)
        return EIO;
    describe(nic(context), *attr);
    return 0;
}

// As rdma-core does for callers that know only the old, shorter structure.
int query_port(ibv_context *context, std::uint8_t port, _compat_ibv_port_attr *attr)
{
    return query_port_ex(context, port, reinterpret_cast<ibv_port_attr *>(attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

int query_gid(ibv_context *context, std::uint8_t port, int index, ibv_gid *gid)
{
    const std::lock_guard guard(world().mutex);
    const Device &device = nic(context);
    if (device.removed || port != 1 || index < 0 || static_cast<std::size_t>(index) >= device.gids.size())
        return -1;
    *gid = device.gids[static_cast<std::size_t>(index)];
    return 0;
}

int get_async_event(ibv_context *context, ibv_async_event *event)
{
    const bool taken = of(context)->events.take(world().mutex, [event](const AsyncEvent &next) {
        *event = next.event;
        if (next.element != nullptr)
            world().unacked.insert(next.element);
    });
    return taken ? 0 : -1;
}

void ack_async_event(ibv_async_event *event)
{
    const std::lock_guard guard(world().mutex);
    const auto found = world().unacked.find(event->element.qp);
    if (found != world().unacked.end())
        world().unacked.erase(found);
    world().acknowledged.notify_all();
}

} // namespace calls
} // namespace vma::sim
