// SPDX-License-Identifier: BSD-2-Clause
// The functions of libibverbs and librdmacm that the verbs device calls, in one table that is filled when the first of
// them is needed: so the provider loads on a machine without rdma-core, and tests put a simulated NIC in their place.
// Calls that verbs.h makes inline (post, poll, device memory, flow rules) go through the context and need no entry.
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/library.hpp"

namespace vma::verbs {

// name of the member, name of the symbol
#define VMA_VERBS_FUNCTIONS(X)                                                                                         \
    X(fork_init, ibv_fork_init)                                                                                        \
    X(get_device_list, ibv_get_device_list)                                                                            \
    X(free_device_list, ibv_free_device_list)                                                                          \
    X(get_device_name, ibv_get_device_name)                                                                            \
    X(open_device, ibv_open_device)                                                                                    \
    X(close_device, ibv_close_device)                                                                                  \
    X(query_device, ibv_query_device)                                                                                  \
    X(query_port, ibv_query_port)                                                                                      \
    X(query_gid, ibv_query_gid)                                                                                        \
    X(get_async_event, ibv_get_async_event)                                                                            \
    X(ack_async_event, ibv_ack_async_event)                                                                            \
    X(event_type_str, ibv_event_type_str)                                                                              \
    X(alloc_pd, ibv_alloc_pd)                                                                                          \
    X(dealloc_pd, ibv_dealloc_pd)                                                                                      \
    X(reg_mr, ibv_reg_mr)                                                                                              \
    X(dereg_mr, ibv_dereg_mr)                                                                                          \
    X(create_comp_channel, ibv_create_comp_channel)                                                                    \
    X(destroy_comp_channel, ibv_destroy_comp_channel)                                                                  \
    X(create_cq, ibv_create_cq)                                                                                        \
    X(resize_cq, ibv_resize_cq)                                                                                        \
    X(destroy_cq, ibv_destroy_cq)                                                                                      \
    X(get_cq_event, ibv_get_cq_event)                                                                                  \
    X(ack_cq_events, ibv_ack_cq_events)                                                                                \
    X(wc_status_str, ibv_wc_status_str)                                                                                \
    X(create_srq, ibv_create_srq)                                                                                      \
    X(modify_srq, ibv_modify_srq)                                                                                      \
    X(destroy_srq, ibv_destroy_srq)                                                                                    \
    X(create_qp, ibv_create_qp)                                                                                        \
    X(modify_qp, ibv_modify_qp)                                                                                        \
    X(query_qp, ibv_query_qp)                                                                                          \
    X(destroy_qp, ibv_destroy_qp)                                                                                      \
    X(create_ah, ibv_create_ah)                                                                                        \
    X(destroy_ah, ibv_destroy_ah)                                                                                      \
    X(create_event_channel, rdma_create_event_channel)                                                                 \
    X(destroy_event_channel, rdma_destroy_event_channel)                                                               \
    X(create_id, rdma_create_id)                                                                                       \
    X(destroy_id, rdma_destroy_id)                                                                                     \
    X(bind_addr, rdma_bind_addr)                                                                                       \
    X(resolve_addr, rdma_resolve_addr)                                                                                 \
    X(resolve_route, rdma_resolve_route)                                                                               \
    X(init_qp_attr, rdma_init_qp_attr)                                                                                 \
    X(connect, rdma_connect)                                                                                           \
    X(listen, rdma_listen)                                                                                             \
    X(accept, rdma_accept)                                                                                             \
    X(reject, rdma_reject)                                                                                             \
    X(establish, rdma_establish)                                                                                       \
    X(disconnect, rdma_disconnect)                                                                                     \
    X(migrate_id, rdma_migrate_id)                                                                                     \
    X(set_option, rdma_set_option)                                                                                     \
    X(get_cm_event, rdma_get_cm_event)                                                                                 \
    X(ack_cm_event, rdma_ack_cm_event)                                                                                 \
    X(event_str, rdma_event_str)

// verbs.h makes macros of some of its functions, which would change the names here.
#pragma push_macro("ibv_query_port")
#pragma push_macro("ibv_reg_mr")
#undef ibv_query_port
#undef ibv_reg_mr
struct Table {
    VMA_VERBS_FUNCTIONS(VMA_LIBRARY_MEMBER)
};
#pragma pop_macro("ibv_reg_mr")
#pragma pop_macro("ibv_query_port")

// The table, or nullptr where rdma-core is not installed: found out once, and logged then. Thread-safe. The libraries
// stay loaded.
const Table *table() noexcept;

// It, and the drivers that rdma-core opens with the first list of devices.
void open_drivers() noexcept;

// For tests, before the first call of table(): what it gives from now on. It must stay for ever; nullptr: as on a
// machine without rdma-core.
void use_table(const Table *other) noexcept;
bool is_replaced() noexcept;

// Interrupts of a completion queue are held back until there are so many completions, or for so many microseconds; both
// 0: not. 0 or a negative errno, -EOPNOTSUPP where the device or its library can't.
inline int moderate_queue(ibv_cq *cq, std::uint16_t completions, std::uint16_t microseconds) noexcept
{
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate = {completions, microseconds};
    const int error = ::ibv_modify_cq(cq, &attr); // an errno, of some libraries its negative
    return error < 0 ? error : -error;
}

} // namespace vma::verbs
