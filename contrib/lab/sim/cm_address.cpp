// SPDX-License-Identifier: BSD-2-Clause
// Addresses of the simulated connection manager: binding, ports, resolving addresses and routes, listening, options.
#include "contrib/lab/sim/cm.hpp"

#include <algorithm>
#include <arpa/inet.h>

namespace vma::sim {
namespace {

constexpr int kMaxBacklog = 1024;
constexpr std::uint16_t kFirstPort = 32768;

// The errno of two ids on one port, or 0: the kernel tells a wildcard in another way than the same address twice.
int conflict(const CmId &a, const CmId &b)
{
    if (&a == &b || !b.owns_port || a.source.port != b.source.port)
        return 0;
    if (a.reuses && b.reuses && a.state != CmState::listening && b.state != CmState::listening)
        return 0;
    if (is_any(a.source) || is_any(b.source))
        return EADDRNOTAVAIL;
    return same_ip(a.source.ip, b.source.ip) ? EADDRINUSE : 0;
}

int port_taken(const CmId &id)
{
    for (const CmId *other : world().ids) {
        if (const int error = conflict(id, *other))
            return error;
    }
    return 0;
}

int take_port(CmId &id)
{
    if (id.source.port != 0)
        return port_taken(id);
    for (int tries = 0; tries < 65536 - kFirstPort; ++tries) {
        std::uint16_t &next = world().next_port;
        id.source.port = next;
        next = next == UINT16_MAX ? kFirstPort : static_cast<std::uint16_t>(next + 1);
        if (port_taken(id) == 0)
            return 0;
    }
    return EADDRNOTAVAIL;
}

int bind(CmId &id, const Endpoint &source)
{
    if (id.state != CmState::idle)
        return EINVAL;
    Device *device = is_any(source) ? nullptr : device_of(source.ip);
    if (device == nullptr && !is_any(source))
        return EADDRNOTAVAIL;
    id.source = source;
    if (const int error = take_port(id)) {
        id.source = {};
        return error;
    }
    id.owns_port = true;
    id.state = CmState::bound;
    settle(id, device);
    return 0;
}

// Which device the id leaves by: the one it is bound to, else the destination's own, as a host routes to itself.
void choose_device(CmId &id)
{
    if (id.nic != nullptr)
        return;
    id.source.ip = id.destination.ip;
    settle(id, device_of(id.destination.ip));
}

void fill_path(CmId &id)
{
    id.path = {};
    id.path.dgid = id.destination.ip;
    id.path.sgid = id.source.ip;
    id.path.hop_limit = 64;
    id.path.reversible = 1;
    id.path.numb_path = 1;
    id.path.pkey = htons(0xffff);
    id.path.mtu_selector = 2; // exactly
    id.path.mtu = static_cast<std::uint8_t>(id.nic->config.mtu);
    id.path.rate_selector = 2;
    id.path.rate = IBV_RATE_100_GBPS;
    id.path.packet_life_time_selector = 2;
    id.path.packet_life_time = static_cast<std::uint8_t>(id.ack_timeout - 1);
    id.route.path_rec = &id.path;
    id.route.num_paths = 1;
}

} // namespace

bool from_sockaddr(const sockaddr *from, Endpoint &to)
{
    to = {};
    if (from == nullptr)
        return false;
    to.family = from->sa_family;
    if (from->sa_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, from, sizeof(v4));
        to.ip.raw[10] = to.ip.raw[11] = 0xff;
        std::memcpy(to.ip.raw + 12, &v4.sin_addr, sizeof(v4.sin_addr));
        to.port = ntohs(v4.sin_port);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    sockaddr_in6 v6;
    std::memcpy(&v6, from, sizeof(v6));
    std::memcpy(to.ip.raw, &v6.sin6_addr, sizeof(v6.sin6_addr));
    to.port = ntohs(v6.sin6_port);
    return true;
}

void to_sockaddr(const Endpoint &from, sockaddr_storage &to)
{
    to = {};
    if (from.family == AF_INET) {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_port = htons(from.port);
        std::memcpy(&v4.sin_addr, from.ip.raw + 12, sizeof(v4.sin_addr));
        std::memcpy(&to, &v4, sizeof(v4));
    } else if (from.family == AF_INET6) {
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(from.port);
        std::memcpy(&v6.sin6_addr, from.ip.raw, sizeof(v6.sin6_addr));
        std::memcpy(&to, &v6, sizeof(v6));
    }
}

bool is_any(const Endpoint &endpoint)
{
    const std::uint8_t *begin = endpoint.ip.raw + (endpoint.family == AF_INET ? 12 : 0);
    return std::all_of(begin, endpoint.ip.raw + sizeof(endpoint.ip.raw), [](std::uint8_t byte) { return byte == 0; });
}

void show_addresses(CmId &id)
{
    to_sockaddr(id.source, id.route.addr.src_storage);
    to_sockaddr(id.destination, id.route.addr.dst_storage);
    id.route.addr.addr.ibaddr.sgid = id.source.ip;
    id.route.addr.addr.ibaddr.dgid = id.destination.ip;
    id.route.addr.addr.ibaddr.pkey = htons(0xffff);
}

void settle(CmId &id, Device *device)
{
    id.nic = device;
    if (device != nullptr) {
        if (device->cm_context == nullptr)
            device->cm_context = make_context(*device);
        id.verbs = &device->cm_context->context;
        id.port_num = 1;
    }
    show_addresses(id);
}

namespace calls {

int bind_addr(rdma_cm_id *handle, sockaddr *address)
{
    const std::lock_guard guard(world().mutex);
    Endpoint source;
    if (!from_sockaddr(address, source))
        return failed(EINVAL);
    const int error = bind(*of(handle), source);
    return error == 0 ? 0 : failed(error);
}

int resolve_addr(rdma_cm_id *handle, sockaddr *from, sockaddr *to, int timeout_ms)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    CmId &id = *of(handle);
    Endpoint source;
    Endpoint destination;
    if (!from_sockaddr(to, destination) || (from != nullptr && !from_sockaddr(from, source)))
        return failed(EINVAL);
    if (id.state == CmState::idle) {
        if (from == nullptr) {
            source.family = destination.family;
            if (source.family == AF_INET)
                source.ip.raw[10] = source.ip.raw[11] = 0xff;
        }
        if (const int error = bind(id, source))
            return failed(error);
    }
    if (id.state != CmState::bound || id.source.family != destination.family)
        return failed(EINVAL);
    id.destination = destination;
    if (device_of(destination.ip) == nullptr) {
        // Nobody answers who has it.
        id.state = CmState::resolving;
        id.timer = w.timers.at(w.timers.now() + std::chrono::milliseconds(timeout_ms), [&id] {
            id.timer = {};
            id.state = CmState::bound;
            tell(id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
        });
        return 0;
    }
    choose_device(id);
    id.state = CmState::address;
    show_addresses(id);
    tell(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}

int resolve_route(rdma_cm_id *handle, int)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    CmId &id = *of(handle);
    if (id.state != CmState::address)
        return failed(EINVAL);
    const auto &gid = id.destination.ip;
    const auto fault = w.route_faults.find(std::string(reinterpret_cast<const char *>(gid.raw), sizeof(gid.raw)));
    if (fault != w.route_faults.end() && fault->second != 0) {
        tell(id, RDMA_CM_EVENT_ROUTE_ERROR, fault->second);
        return 0;
    }
    id.state = CmState::route;
    fill_path(id);
    tell(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}

int listen(rdma_cm_id *handle, int backlog)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (id.state == CmState::idle) {
        Endpoint any;
        any.family = AF_INET;
        any.ip.raw[10] = any.ip.raw[11] = 0xff;
        if (const int error = bind(id, any))
            return failed(error);
    }
    if (id.state != CmState::bound)
        return failed(EINVAL);
    id.state = CmState::listening;
    if (const int error = port_taken(id)) {
        id.state = CmState::bound;
        return failed(error);
    }
    id.backlog = backlog <= 0 || backlog > kMaxBacklog ? kMaxBacklog : backlog;
    return 0;
}

int set_option(rdma_cm_id *handle, int level, int option, void *value, std::size_t size)
{
    const std::lock_guard guard(world().mutex);
    CmId &id = *of(handle);
    if (level != RDMA_OPTION_ID)
        return failed(ENOSYS);
    switch (option) {
    case RDMA_OPTION_ID_TOS:
        return size == sizeof(std::uint8_t) ? 0 : failed(EINVAL);
    case RDMA_OPTION_ID_AFONLY:
        return size == sizeof(int) ? 0 : failed(EINVAL);
    case RDMA_OPTION_ID_REUSEADDR:
        if (size != sizeof(int))
            return failed(EINVAL);
        id.reuses = *static_cast<const int *>(value) != 0;
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (size != sizeof(std::uint8_t) || *static_cast<const std::uint8_t *>(value) > 31)
            return failed(EINVAL);
        id.ack_timeout = *static_cast<const std::uint8_t *>(value);
        id.ack_timeout_set = true;
        return 0;
    default:
        return failed(ENOSYS);
    }
}

} // namespace calls
} // namespace vma::sim
