// SPDX-License-Identifier: BSD-2-Clause
// The protocol of streams: TCP sockets, which a transport carries or the kernel does.
#include <poll.h>

#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma.h>

#include "compat/src/engine/device.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/places.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/offload/offload_habit.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/tcp/calls.hpp"
#include "compat/src/transport/kernel_counts.hpp"

namespace vma::sock {

namespace tcp {

namespace {

bool sends_by_endpoint(const Stream &s)
{
    return s.tx.path.load(std::memory_order_acquire) == Path::kEndpoint;
}

bool receives_by_endpoint(const Stream &s)
{
    return s.endpoint != nullptr && transport(s).wakes_sleepers && !tcp::waits_for_kernel(s, POLLIN);
}

// A port takes the connection away from under a call, and so does a peer that attaches before it sends.
Carrier kernel_only_carrier(const Stream &s)
{
    return s.port != nullptr || may_attach_first(s) ? Carrier::kOurs : Carrier::kStream;
}

std::uint32_t place(const Stream &s, std::uint32_t)
{
    std::uint32_t place = kNoPlace;
    std::size_t size = sizeof place;
    fid_ep *const endpoint = s.endpoint;
    if (endpoint == nullptr ||
        fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_PLACE), &place, &size) != 0)
        return kNoPlace;
    return place;
}

bool may_have_peer(const Stream &s)
{
    return s.endpoint != nullptr || s.cookie != 0 || s.attempt.open;
}

void begin_in_child(Stream &s)
{
    set_if_other(s.attempt.open, false);
    set_if_other(s.attempt.listener, nullptr);
    set_if_other(s.attempt.listens, false);
    set_if_other(s.attempt.asked, 0U);
}

bool take_alone(Stream &s)
{
    return s.port != nullptr || take_kernel_counts(s); // else perhaps the next time: bytes may have been under way
}

// Of one that is the kernel's for good, all of recvmmsg() is.
bool receive_messages_at_once(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout,
                              int &n)
{
    const Stream &stream = as_stream(s);
    const bool may_be_lost = stream.aborted.load(std::memory_order_relaxed) || stream.remote ||
                             stream.rx.kernel_owes.load(std::memory_order_relaxed) != 0;
    if (s.mode.load(std::memory_order_acquire) != Mode::kKernel || may_be_lost) // the end has to be looked at
        return false;
    n = by_os_received(s, messages, libc::real.recvmmsg(fd, messages, count, flags, timeout), flags);
    return true;
}

const char *device_name(const Stream &s)
{
    return s.device != nullptr ? s.device->name : "";
}

const char *queue_name(const Stream &s)
{
    return transport(s).way == stats::Way::kLocal ? name_of_ring(s) : device_name(s);
}

} // namespace

} // namespace tcp

namespace {

// A function for streams as one that the table has: of a socket that is a stream.
template <auto kFunction> struct Of;
template <typename Result, typename... Rest, Result (*kFunction)(Stream &, Rest...)> struct Of<kFunction> {
    static Result call(Socket &s, Rest... rest) { return kFunction(as_stream(s), rest...); }
};
template <typename Result, typename... Rest, Result (*kFunction)(const Stream &, Rest...)> struct Of<kFunction> {
    static Result call(const Socket &s, Rest... rest) { return kFunction(as_stream(s), rest...); }
};

} // namespace

[[VMA_STARTUP_DATA]] constinit Protocol storage::streams = {
    .name = "TCP",
    .messages = false,
    .send = tcp::send,
    .send_to = Of<tcp::send_to>::call,
    .send_msg = tcp::send_message,
    .send_file = Of<tcp::send_file>::call,
    .receive = tcp::receive,
    .receive_from = Of<tcp::receive_from>::call,
    .receive_msg = tcp::receive_message,
    .send_messages_at_once = [](Socket &, int, mmsghdr *, unsigned, int, int &) { return false; },
    .receive_messages_at_once = tcp::receive_messages_at_once,
    .only_kernel_brings = [](const Socket &) { return false; },
    .bytes_readable = Of<tcp::bytes_readable>::call,
    .bytes_unsent = Of<tcp::bytes_unsent>::call,
    .at_mark = Of<tcp::at_mark>::call,
    .shut_down = Of<tcp::shut_down>::call,
    .admits_option = Of<tcp::admits_option>::call,
    .set_option = Of<tcp::set_option>::call,
    .get_option = Of<tcp::get_option>::call,
    .ready_events = tcp::ready_events,
    .ready_events_fast = tcp::ready_events_fast,
    .note_kernel_events = Of<tcp::note_kernel_events>::call,
    .has_input = [](const Socket &s) { return has_input(as_stream(s)); },
    .waits_for_kernel = tcp::waits_for_kernel,
    .sends_by_endpoint = Of<tcp::sends_by_endpoint>::call,
    .receives_by_endpoint = Of<tcp::receives_by_endpoint>::call,
    .tells_what_came_before = [](const Socket &s) { return transport(as_stream(s)).spans; },
    .kernel_only_carrier = Of<tcp::kernel_only_carrier>::call,
    .place = Of<tcp::place>::call,
    .begin = [](Socket &, int, int) {},
    .begin_foreign = tcp::begin_foreign,
    .end = Of<tcp::end>::call,
    .begin_linger = Of<begin_linger>::call,
    .start_leaving = [](Socket &s, Heir heir) { transport(as_stream(s)).start_leaving(as_stream(s), heir); },
    .finish_leaving = Of<tcp::finish_leaving>::call,
    .fall_back = Of<tcp::fall_back>::call,
    .stop_offloading = Of<tcp::stop_offloading>::call,
    .may_have_peer = Of<tcp::may_have_peer>::call,
    .try_ready = Of<tcp::try_ready>::call,
    .share_unread = Of<tcp::share_unread>::call,
    .take_alone = Of<tcp::take_alone>::call,
    .begin_in_child = Of<tcp::begin_in_child>::call,
    .leave_in_child = [](Socket &) {},
    .print_name = Of<tcp::print_name>::call,
    .has_to_explain = Of<tcp::has_to_explain>::call,
    .calls_before_offload = Of<calls_before_offload>::call,
    .device_name = Of<tcp::device_name>::call,
    .queue_name = Of<tcp::queue_name>::call,
    .way = [](const Socket &s) { return transport(as_stream(s)).way; },
};

} // namespace vma::sock
