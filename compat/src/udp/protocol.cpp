// SPDX-License-Identifier: BSD-2-Clause
// The protocol of datagrams: UDP sockets.
#include <errno.h>
#include <sys/ioctl.h>

#include "compat/src/config/params.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/rings.hpp"
#include "compat/src/libc/kernel_acts.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/sharing/holders.hpp"
#include "compat/src/udp/state.hpp"

namespace vma::sock {

namespace udp {

namespace {

ssize_t send_now(Socket &s, int fd, const void *buf, std::size_t len, int flags)
{
    return send(s, fd, buf, len, flags, nullptr, 0);
}

ssize_t receive_now(Socket &s, int fd, void *buf, std::size_t len, int flags)
{
    return receive(s, fd, buf, len, flags, nullptr, nullptr);
}

ssize_t send_file(Socket &, int fd, int in_fd, off64_t *offset, std::size_t count)
{
    return libc::real.sendfile(fd, in_fd, offset, count);
}

bool send_messages_at_once(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, int &n)
{
    if (!only_kernel_sends(s))
        return false;
    n = send_messages_kernel_only(s, fd, messages, count, flags);
    return true;
}

int bytes_unsent(Socket &, int fd, unsigned long request, int *count)
{
    return libc::real.ioctl(fd, request, count);
}

int at_mark(Socket &, int fd, int *mark)
{
    return libc::real.ioctl(fd, SIOCATMARK, mark);
}

int shut_down(Socket &s, int fd, int how)
{
    if (how == SHUT_WR || how == SHUT_RDWR) // also while what is unread keeps the socket from the kernel
        state_of(s).sends_by_kernel.store(true, std::memory_order_relaxed);
    pin_to_kernel(s, "shutdown()");
    return libc::by_kernel(libc::real.shutdown(fd, how));
}

bool receives_by_endpoint(const Socket &s)
{
    const State &u = state_of(s);
    const bool last_by_kernel = u.kernel_brings.load(std::memory_order_relaxed) && u.since_turn == 0;
    return !u.has_groups && u.port_count == 0 && !last_by_kernel;
}

void finish_leaving(Socket &s, std::int64_t, Heir, Closing)
{
    const LockGuard guard(g_offload.lock);
    udp::fall_back(s, true);
}

bool may_have_peer(const Socket &s)
{
    return offloaded(s) && state_of(s).cookie.load() != 0;
}

void leave_in_child(Socket &s)
{
    if (s.unread.load(std::memory_order_relaxed) == nullptr)
        udp::fall_back(s, false); // the datagrams that are left are the parent's
}

void end_socket(Socket &s, int)
{
    if (!s.told && s.kernel_reason == nullptr && ports_state() == PortsState::kAsked)
        s.kernel_reason = "closed before its Ethernet port was open";
    explain(s);
    end(s);
    leave_holders(s);
}

bool has_to_explain(Socket &s)
{
    return s.operations.load(std::memory_order_relaxed) != 0 || s.kernel_reason != nullptr; // else it was not used
}

const char *print_name(const Socket &s, char (&out)[kNameMax])
{
    return name_of(s.any_fd.load(std::memory_order_relaxed), out);
}

const char *device_name(const Socket &s)
{
    const State &u = state_of(s);
    return is_on_port(u) ? u.ports[0].device->name : "local";
}

stats::Way way(const Socket &s)
{
    return is_on_port(state_of(s)) ? stats::Way::kPort : stats::Way::kLocal;
}

const char *queue_name(const Socket &s)
{
    return is_on_port(state_of(s)) ? device_name(s) : name_of_ring(s);
}

} // namespace

} // namespace udp

[[VMA_STARTUP_DATA]] constinit Protocol storage::datagrams = {
    .name = "UDP",
    .messages = true,
    .send = udp::send_now,
    .send_to = udp::send,
    .send_msg = udp::send_msg,
    .send_file = udp::send_file,
    .receive = udp::receive_now,
    .receive_from = udp::receive,
    .receive_msg = udp::receive_msg,
    .send_messages_at_once = udp::send_messages_at_once,
    .receive_messages_at_once = udp::receive_messages_kernel_only,
    .only_kernel_brings = udp::only_kernel_brings,
    .bytes_readable = udp::bytes_readable,
    .bytes_unsent = udp::bytes_unsent,
    .at_mark = udp::at_mark,
    .shut_down = udp::shut_down,
    .admits_option = [](Socket &, int, int) { return true; }, // set_option() looks at them
    .set_option = udp::set_option,
    .get_option = udp::get_option,
    .ready_events = udp::ready_events,
    .ready_events_fast = udp::ready_events_fast,
    .note_kernel_events = udp::note_kernel_events,
    .has_input = [](const Socket &s) { return !udp::state_of(s).queue.empty(); },
    .waits_for_kernel = [](const Socket &, std::uint32_t) { return false; }, // its own look sees to both ways
    .sends_by_endpoint = [](const Socket &) { return true; },
    .receives_by_endpoint = udp::receives_by_endpoint,
    .tells_what_came_before = [](const Socket &) { return false; },
    .kernel_only_carrier = [](const Socket &) { return Carrier::kOurs; },
    .place = [](const Socket &s, std::uint32_t count) { return s.index % count; },
    .begin = udp::begin,
    .begin_foreign = udp::begin_foreign,
    .end = udp::end_socket,
    .begin_linger = [](Socket &, int) { return false; },
    .start_leaving = [](Socket &s, Heir) { udp::withdraw(s); },
    .finish_leaving = udp::finish_leaving,
    .fall_back = [](Socket &s, bool keep_unread, Closing) { udp::fall_back(s, keep_unread); },
    .stop_offloading = [](Socket &) {},
    .may_have_peer = udp::may_have_peer,
    .try_ready = udp::publish_if_due,
    .share_unread = udp::share_queue,
    .take_alone = [](Socket &) { return true; },
    .begin_in_child = udp::after_fork_in_child,
    .leave_in_child = udp::leave_in_child,
    .print_name = udp::print_name,
    .has_to_explain = udp::has_to_explain,
    .calls_before_offload = [](const Socket &) { return config::params().lift_after; },
    .device_name = udp::device_name,
    .queue_name = udp::queue_name,
    .way = udp::way,
};

} // namespace vma::sock
