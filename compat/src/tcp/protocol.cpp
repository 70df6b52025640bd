// SPDX-License-Identifier: BSD-2-Clause
// The protocol of streams: TCP sockets, which a transport carries or the kernel does.
#include <poll.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/tcp/calls.hpp"
#include "compat/src/transport/kernel_counts.hpp"

namespace vma::sock {

namespace tcp {

namespace {

bool sends_by_endpoint(const Socket &s)
{
    return s.tx.path.load(std::memory_order_acquire) == Path::kEndpoint;
}

bool receives_by_endpoint(const Socket &s)
{
    return s.endpoint != nullptr && transport(s).wakes_sleepers && !tcp::waits_for_kernel(s, POLLIN);
}

// A port takes the connection away from under a call.
Carrier kernel_only_carrier(const Socket &s)
{
    return s.port != nullptr ? Carrier::kOurs : Carrier::kStream;
}

std::uint32_t place(const Socket &s, std::uint32_t)
{
    std::uint32_t place = kNoPlace;
    std::size_t size = sizeof place;
    fid_ep *const endpoint = s.endpoint;
    if (endpoint == nullptr ||
        fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PLACE), &place, &size) != 0)
        return kNoPlace;
    return place;
}

bool is_offered(const Socket &s)
{
    return s.cookie != 0 || s.attempt.open;
}

bool take_alone(Socket &s)
{
    return s.port != nullptr || take_kernel_counts(s); // else perhaps the next time: bytes may have been under way
}

const char *device_name(const Socket &s)
{
    return s.device != nullptr ? s.device->name : "";
}

const char *queue_name(const Socket &s)
{
    return transport(s).way == stats::Way::kLocal ? name_of_ring(s) : device_name(s);
}

} // namespace

} // namespace tcp

[[VMA_STARTUP_DATA]] constinit Protocol storage::streams = {
    .name = "TCP",
    .messages = false,
    .send = tcp::send,
    .send_to = tcp::send_to,
    .send_msg = tcp::send_msg,
    .send_file = tcp::send_file,
    .receive = tcp::receive,
    .receive_from = tcp::receive_from,
    .receive_msg = tcp::receive_msg,
    .send_messages_at_once = [](Socket &, int, mmsghdr *, unsigned, int, int &) { return false; },
    .receive_messages_at_once = [](Socket &, int, mmsghdr *, unsigned, int, timespec *, int &) { return false; },
    .only_kernel_brings = [](const Socket &) { return false; },
    .bytes_readable = tcp::bytes_readable,
    .bytes_unsent = tcp::bytes_unsent,
    .at_mark = tcp::at_mark,
    .before_shutdown = tcp::before_shutdown,
    .admits_option = tcp::admits_option,
    .set_option = tcp::set_option,
    .get_option = tcp::get_option,
    .ready_events = tcp::ready_events,
    .ready_events_fast = tcp::ready_events_fast,
    .has_input = [](const Socket &s) { return has_input(s); },
    .waits_for_kernel = tcp::waits_for_kernel,
    .sends_by_endpoint = tcp::sends_by_endpoint,
    .receives_by_endpoint = tcp::receives_by_endpoint,
    .tells_what_came_before = [](const Socket &s) { return transport(s).spans; },
    .kernel_only_carrier = tcp::kernel_only_carrier,
    .place = tcp::place,
    .begin = [](Socket &, int, int) {},
    .begin_foreign = tcp::begin_foreign,
    .end = tcp::end,
    .start_leaving = [](Socket &s, Heir heir) { transport(s).start_leaving(s, heir); },
    .fall_back = tcp::fall_back,
    .stop_offloading = tcp::stop_offloading,
    .is_offered = tcp::is_offered,
    .try_ready = tcp::try_ready,
    .share_unread = tcp::share_unread,
    .take_alone = tcp::take_alone,
    .begin_in_child = [](Socket &) {},
    .leave_in_child = [](Socket &) {},
    .print_name = tcp::print_name,
    .has_to_explain = tcp::has_to_explain,
    .calls_before_offload = calls_before_offload,
    .device_name = tcp::device_name,
    .queue_name = tcp::queue_name,
    .way = [](const Socket &s) { return transport(s).way; },
};

} // namespace vma::sock
