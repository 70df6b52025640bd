// SPDX-License-Identifier: BSD-2-Clause
// The table of the simulated NIC's functions, each behind a look for a fault that a test ordered for it; and the names
// of statuses and events.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>

namespace vma::sim {
namespace {

// Faults can be ordered for these too, which verbs.h calls inline and are in no table.
constexpr std::string_view kInlineCalls[] = {
    "alloc_dm",      "reg_dm_mr",     "create_cq_ex",    "create_qp_ex",    "create_flow",          "post_recv",
    "post_srq_recv", "req_notify_cq", "query_device_ex", "query_rt_values", "modify_qp_rate_limit", "modify_cq"};

constexpr std::string_view kTableCalls[] = {
#define VMA_SIM_NAME(member, symbol) #member,
    VMA_VERBS_FUNCTIONS(VMA_SIM_NAME)
#undef VMA_SIM_NAME
};

// Functions that tell of an error by -1 and errno; the others return the errno itself.
constexpr bool by_errno(std::string_view symbol)
{
    return symbol.starts_with("rdma_") || symbol.starts_with("ibv_get_");
}

int fault_of(std::string_view function)
{
    const std::lock_guard guard(world().mutex);
    return take_fault(function);
}

template <auto Function, std::size_t Place, bool ByErrno> struct Guarded;

template <typename Result, typename... Args, Result (*Function)(Args...), std::size_t Place, bool ByErrno>
struct Guarded<Function, Place, ByErrno> {
    static Result call(Args... args)
    {
        if constexpr (std::is_same_v<Result, int> || std::is_pointer_v<Result>) {
            if (const int error = fault_of(kTableCalls[Place])) {
                errno = error;
                if constexpr (std::is_pointer_v<Result>)
                    return nullptr;
                else
                    return ByErrno ? -1 : error;
            }
        }
        return Function(args...);
    }
};

constexpr std::size_t place_of(std::string_view member)
{
    return static_cast<std::size_t>(std::find(std::begin(kTableCalls), std::end(kTableCalls), member) -
                                    std::begin(kTableCalls));
}

constexpr verbs::Table kTable = {
#define VMA_SIM_MEMBER(member, symbol) &Guarded<&calls::member, place_of(#member), by_errno(#symbol)>::call,
    VMA_VERBS_FUNCTIONS(VMA_SIM_MEMBER)
#undef VMA_SIM_MEMBER
};

template <std::size_t Count> const char *pick(const char *const (&names)[Count], int number)
{
    return number >= 0 && static_cast<std::size_t>(number) < Count ? names[number] : "unknown";
}

} // namespace

const verbs::Table *table() noexcept
{
    return &kTable;
}

bool known_function(std::string_view function)
{
    return std::find(std::begin(kTableCalls), std::end(kTableCalls), function) != std::end(kTableCalls) ||
           std::find(std::begin(kInlineCalls), std::end(kInlineCalls), function) != std::end(kInlineCalls);
}

int take_fault(std::string_view function)
{
    auto &faults = world().faults;
    if (faults.empty())
        return 0;
    const auto found = faults.find(function);
    if (found == faults.end())
        return 0;
    if (found->second.after-- > 0)
        return 0;
    const int error = found->second.error;
    faults.erase(found);
    return error;
}

namespace calls {

const char *wc_status_str(ibv_wc_status status)
{
    static constexpr const char *kNames[] = {"success",
                                             "local length error",
                                             "local QP operation error",
                                             "local EE context operation error",
                                             "local protection error",
                                             "Work Request Flushed Error",
                                             "memory management operation error",
                                             "bad response error",
                                             "local access error",
                                             "remote invalid request error",
                                             "remote access error",
                                             "remote operation error",
                                             "transport retry counter exceeded",
                                             "RNR retry counter exceeded",
                                             "local RDD violation error",
                                             "remote invalid RD request",
                                             "aborted error",
                                             "invalid EE context number",
                                             "invalid EE context state",
                                             "fatal error",
                                             "response timeout error",
                                             "general error"};
    return pick(kNames, static_cast<int>(status));
}

const char *event_type_str(ibv_event_type event)
{
    static constexpr const char *kNames[] = {"CQ error",
                                             "local work queue catastrophic error",
                                             "invalid request local work queue error",
                                             "local access violation work queue error",
                                             "communication established",
                                             "send queue drained",
                                             "path migrated",
                                             "path migration request error",
                                             "local catastrophic error",
                                             "port active",
                                             "port error",
                                             "LID change",
                                             "P_Key change",
                                             "SM change",
                                             "SRQ catastrophic error",
                                             "SRQ limit reached",
                                             "last WQE reached",
                                             "client reregistration",
                                             "GID table change"};
    return pick(kNames, static_cast<int>(event));
}

const char *event_str(rdma_cm_event_type event)
{
    static constexpr const char *kNames[] = {
        "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
        "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
        "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
        "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
        "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
        "RDMA_CM_EVENT_TIMEWAIT_EXIT"};
    return pick(kNames, static_cast<int>(event));
}

} // namespace calls
} // namespace vma::sim
