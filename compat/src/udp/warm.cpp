// SPDX-License-Identifier: BSD-2-Clause
// A send that sends nothing (VMA_SND_FLAGS_DUMMY): it goes the way of a real one as far as its receivers' memory.
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock::udp {

namespace {

void warm_receiver(const Receiver &receiver, std::size_t length)
{
    fid_ep *const endpoint = engine_datagrams().ep;
    if (receiver.own || endpoint == nullptr)
        return;
    const fi_vma_warm wanted = {receiver.endpoint, 0, length};
    fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_WARM), &wanted, sizeof wanted);
}

} // namespace

void warm(Socket &s, std::size_t length, const sockaddr *to, socklen_t to_length)
{
    Destination destination;
    State &u = state_of(s);
    if (!u.used_memory.load(std::memory_order_relaxed) || !destination.assign(to, to_length))
        return;
    const LockGuard guard(s.tx_lock);
    Route *const route = u.routes.find(destination);
    __builtin_prefetch(&record_of(s).now.tx, 1);
    if (route == nullptr || is_stale(*route)) // a real send would look it up: the kernel's tables are not for caches
        return;
    __builtin_prefetch(route->header, 1);
    length += route->header_length;
    if (route->way == Way::kReceiver)
        warm_receiver(route->receiver, length);
    if (route->way == Way::kGroup && route->group)
        for (const Receiver &receiver : route->group->receivers)
            warm_receiver(receiver, length);
}

} // namespace vma::sock::udp
