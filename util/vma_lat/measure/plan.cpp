// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_lat/measure/plan.hpp"

#include <array>

namespace vma::lat {

namespace {

constexpr std::array<const char *, 4> kKinds = {"udp", "tcp", "msg", "dgram"};
constexpr std::array<const char *, 3> kTests = {"ping-pong", "throughput", "under-load"};
constexpr std::array<const char *, 5> kWaits = {"recvfrom", "spin", "select", "poll", "epoll"};

} // namespace

const char *name_of(Kind kind)
{
    return kKinds[static_cast<std::size_t>(kind)];
}

const char *name_of(Test test)
{
    return kTests[static_cast<std::size_t>(test)];
}

const char *name_of(Wait wait)
{
    return kWaits[static_cast<std::size_t>(wait)];
}

bool wait_from(std::string_view name, Wait &wait)
{
    return find_name(kWaits, name, wait);
}

bool test_from(std::string_view name, Test &test)
{
    return find_name(kTests, name, test);
}

Failure fault_of(const Plan &plan)
{
    const std::uint32_t most = plan.kind == Kind::kUdp ? kMaxDatagram : kMaxSize;
    if (plan.size < kMinSize || plan.size > most)
        return error(kExitUsage, "a %s message can't have %u bytes: %u to %u are possible", name_of(plan.kind),
                     plan.size, kMinSize, most);
    if (plan.sockets < 1 || plan.sockets > kMaxSockets)
        return error(kExitUsage, "%u sockets are not possible: 1 to %u are", plan.sockets, kMaxSockets);
    if (plan.wait == Wait::kRecvfrom && plan.sockets > 1 && !fabric(plan.kind))
        return error(kExitUsage,
                     "waiting in recvfrom waits for one socket, not for %u: use --wait spin, select, poll or epoll",
                     plan.sockets);
    if (!plan.group.empty() && plan.kind != Kind::kUdp)
        return error(kExitUsage, "a multicast group is for udp, and this test is %s: leave --group or take --udp",
                     name_of(plan.kind));
    if (!plan.group.empty() && (plan.data_port == 0 || plan.data_port + plan.sockets - 1 > UINT16_MAX))
        return error(kExitUsage, "%u multicast ports from %u on do not exist: name a lower --data-port", plan.sockets,
                     plan.data_port);
    if (fabric(plan.kind) == plan.provider.empty())
        return error(kExitUsage, "a %s test %s", name_of(plan.kind),
                     plan.provider.empty() ? "needs a libfabric provider" : "uses no libfabric provider");
    return {};
}

} // namespace vma::lat
