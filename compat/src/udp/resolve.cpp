// SPDX-License-Identifier: BSD-2-Clause
// Where a destination is: asked of the kernel, then of the directory. It takes some 15 us, once a destination and
// whenever a name has changed.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fi_domain.h>

#include <algorithm>

#include "compat/src/base/addresses.hpp"
#include "compat/src/base/clock.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/engine/fork_handlers.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/engine/ports.hpp"
#include "compat/src/engine/sandbox.hpp"
#include "compat/src/engine/tables.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/interface.hpp"
#include "compat/src/rendezvous/offer.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/table/uring.hpp"
#include "compat/src/udp/backlog.hpp"
#include "compat/src/udp/memberships.hpp"
#include "compat/src/udp/rules.hpp"
#include "compat/src/udp/shared.hpp"

namespace vma::sock::udp {

namespace {

constexpr std::int32_t kKernelTicks = 20; // a second
constexpr std::int32_t kGroupTicks = 5;   // a quarter of it: its members on this host may have left
constexpr std::int64_t kPatienceNs = 100 * mux::kNanosPerMicro; // some look-ups of other senders

// offload lock held
fi_addr_t endpoint_of(std::uint16_t port)
{
    if (g_shared.endpoints[port] != 0)
        return g_shared.endpoints[port] - 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fi_addr_t endpoint = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(engine_datagrams().av, &address, 1, &endpoint, 0, nullptr) != 1)
        return FI_ADDR_NOTAVAIL;
    g_shared.endpoints[port] = static_cast<std::uint32_t>(endpoint) + 1;
    return endpoint;
}

void tell(Socket &s, int fd, const Flow &flow)
{
    char source[kAddressText];
    char destination[kAddressText];
    s.told = true;
    VMA_LOG(kDetails, "fd=%d UDP %s -> %s: accelerated: device local, after %u sends and receives", fd,
            print_address(flow.source, source), print_address(flow.destination, destination),
            s.operations.load(std::memory_order_relaxed));
}

void point_route(Socket &s, int fd, Route &route, const Flow &flow, const Identity &who, const Target &target)
{
    const bool known = cookie_of(route.receiver.data) == target.cookie;
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    wish_for(route, {});
    if (!point_to(route.receiver, who, target))
        return;
    if (!has_met(route.receiver)) {
        route.receiver.data = 0;
        route.way = Way::kUnknown;
        return;
    }
    route.header_length = static_cast<std::uint8_t>(write_header(describe_flow(fd, flow), v6, route.header));
    route.receiver.data |= v6 ? kToIpv6 : 0;
    route.way = Way::kReceiver;
    list(s);
    if (known)
        return;
    tell(s, fd, flow);
    // The same receiver may be named in another way, too: what goes there must not take turns with the kernel.
    state_of(s).routes.each([](Route &other) {
        if (other.way == Way::kKernel)
            other.way = Way::kUnknown;
    });
}

// Where the kernel has delivered all that this process has given it for the receiver, and that has read it, there is
// nothing to go after; a datagram that says so would wait for what the kernel gets later.
void forget_kernel_sends(const State &u, int fd, const Flow &flow, Route &route)
{
    Identity who;
    std::uint32_t unread = 0;
    const std::uint32_t kernel_sends = u.kernel_sends.load(std::memory_order_relaxed);
    const std::uint32_t sent = kernel_sent(route.sent_place);
    if ((!route.after_kernel && route.kernel_sends == kernel_sends && route.kernel_sent == sent) ||
        kernel_has_backlog() || find_receiver(fd, flow, who, &unread) != Answer::kFound || unread != 0)
        return;
    route.after_kernel = false;
    route.kernel_sends = kernel_sends;
    route.kernel_sent = sent;
}

void look_up(Socket &s, int fd, Route &route)
{
    Flow flow = {};
    Identity who;
    Target target = {};
    if (!flow_on_this_host(fd, route.to, flow) || find_receiver(fd, flow, who) != Answer::kFound)
        return wish_for(route, {});
    if (!find_name(who, target))
        return wish_for(route, {who});
    if (engine_start_datagrams())
        point_route(s, fd, route, flow, who, target);
    if (route.way == Way::kReceiver)
        forget_kernel_sends(state_of(s), fd, flow, route);
}

void stay_on_kernel(int fd, Route &route, bool is_new)
{
    sockaddr_in6 destination = {};
    char name[kNameMax];
    char text[kAddressText];
    wish_for(route, {});
    if (is_new && read_destination(fd, route.to, destination))
        VMA_LOG(kDetails, "%s -> %s: not accelerated: %s", name_of(fd, name), print_address(destination, text),
                rules::kReason);
}

void look_up_locked(Socket &s, int fd, Route &route)
{
    const bool is_new = route.way == Way::kUnknown;
    route.way = Way::kKernel;
    route.tick = current_tick();
    if (s.mode.load(std::memory_order_relaxed) == Mode::kFree || rings_forbid() || !open_offers())
        return;
    route.generation = generation();
    route.to_group = is_group(fd, route.to);
    route.is_watched = false;
    if (destination_is_kernels(fd, route.to))
        return stay_on_kernel(fd, route, is_new);
    if (route.to_group)
        return resolve_group(s, fd, route);
    look_up(s, fd, route);
    if (route.way == Way::kKernel)
        point_to_port(state_of(s), fd, route);
}

// In ticks. What goes by the kernel may find another way by then.
std::int32_t holds_for(const Route &route)
{
    if (route.way == Way::kPort)
        return !route.to_group || route.is_watched ? kKernelTicks : 1;
    if (route.way == Way::kKernel)
        return route.to_group && ports_are_named() ? kGroupTicks : kKernelTicks;
    return route.way == Way::kReceiver ? kReceiverTicks : 1;
}

// Since then somebody else may get it.
bool has_changed(const Route &route)
{
    return route.generation != generation() || (route.is_watched && membership_changed(route.members));
}

// What it says goes past the kernel, perhaps to one that is closed.
bool is_doubtful(const Route &route)
{
    const bool by_endpoint =
        route.way == Way::kReceiver || route.way == Way::kGroup || (route.way == Way::kPort && route.to_group);
    return by_endpoint && has_changed(route);
}

} // namespace

About describe_flow(int fd, const Flow &flow)
{
    const bool v6 = !IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
    const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    About about = {};
    about.source = flow.source.sin6_addr;
    about.source_port = flow.source.sin6_port;
    about.destination = flow.destination.sin6_addr;
    about.interface = kLoopbackInterface;
    about.ttl = static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, 64));
    about.tos = static_cast<std::uint8_t>(libc::read_option(fd, level, v6 ? IPV6_TCLASS : IP_TOS, 0));
    return about;
}

bool point_to(Receiver &receiver, const Identity &who, const Target &target)
{
    receiver.who = who;
    receiver.data = make_to(target.index, target.cookie);
    receiver.own = target.owner == this_process();
    if (!receiver.own)
        receiver.endpoint = endpoint_of(target.port);
    return receiver.own || receiver.endpoint != FI_ADDR_NOTAVAIL;
}

// A datagram is there for the receiver's next look, as by the kernel: not behind a ring that it has still to find.
bool has_met(const Receiver &receiver)
{
    return receiver.own || fi_setopt(&engine_datagrams().ep->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_MEET),
                                     &receiver.endpoint, sizeof receiver.endpoint) == 0;
}

// Another sender may have taken back what was left for the same receiver. Of our own changes the route need not hear;
// one of somebody else's in between, a receiver's that was quick, must not be missed.
void wish_for(Route &route, const std::vector<Identity> &who)
{
    for (const Identity &old : route.wished)
        if (std::find(who.begin(), who.end(), old) == who.end())
            withdraw_wish(old);
    route.wished = who;
    for (const Identity &wanted : who)
        if (!is_wished(wanted))
            route.generation += leave_wish(wanted) == route.generation + 1 ? 1 : 0;
}

void forget_endpoints()
{
    std::memset(g_shared.endpoints, 0, sizeof g_shared.endpoints);
}

bool read_destination(int fd, const Destination &to, sockaddr_in6 &out)
{
    return to.is_connected() ? read_address(fd, Side::kPeer, out) : to_v6(to.words, out);
}

bool flow_on_this_host(int fd, const Destination &to, Flow &flow)
{
    sockaddr_in6 way = {};
    if (!read_destination(fd, to, flow.destination) || !read_address(fd, Side::kLocal, flow.source) ||
        flow.source.sin6_port == 0 || flow.destination.sin6_port == 0 || flow.destination.sin6_scope_id != 0 ||
        !find_source(flow.destination, way))
        return false;
    const bool here = IN6_ARE_ADDR_EQUAL(&way.sin6_addr, &flow.destination.sin6_addr) ||
                      (is_loopback(way.sin6_addr) && is_loopback(flow.destination.sin6_addr));
    if (is_any(flow.source.sin6_addr))
        flow.source.sin6_addr = way.sin6_addr;
    return here && IN6_IS_ADDR_V4MAPPED(&flow.source.sin6_addr) == IN6_IS_ADDR_V4MAPPED(&flow.destination.sin6_addr);
}

namespace {

// Another thread has the lock for a look-up of its own, or for the helper's work of each tick. It may wait for this
// sender's lock, so this one doesn't sleep for it.
bool lock_for_a_look(const Route &route)
{
    const auto attempt = [] { return g_offload.lock.try_lock(); };
    return attempt() || (is_doubtful(route) && !sandboxed() && mux::try_until(mux::now_ns() + kPatienceNs, attempt));
}

bool look_up_in_turn(Socket &s, int fd, Route &route)
{
    bool looked_up = false;
    if (!lock_for_a_look(route))
        return false;
    if (g_forks.gate.try_lock()) {
        g_engine_tables.stack.run([&] { look_up_locked(s, fd, route); });
        looked_up = true;
        g_forks.gate.unlock();
    }
    g_offload.lock.unlock();
    return looked_up;
}

} // namespace

// Where a lock is held by another thread, the next send looks it up. If names have changed, the lock is waited for a
// little: else this one goes by the kernel, as the receiver may be closed, and those that follow have to go after it.
int resolve(Socket &s, int fd, Route &route)
{
    if (const int error = libc::read_option(fd, SOL_SOCKET, SO_ERROR, 0); error != 0)
        return -error; // of an earlier datagram that went by the kernel
    const Patience patience = patience_asked_for();
    const bool may_look = !is_loading_still(patience);
    bool was_loaded = is_loaded(Part::kProvider);
    bool looked_up = may_look && look_up_in_turn(s, fd, route);
    if (load_what_is_wanted(patience)) [[unlikely]] {
        looked_up = look_up_in_turn(s, fd, route);
        was_loaded = true;
    }
    if (!was_loaded && (is_loading(Part::kProvider) || is_loaded(Part::kProvider))) [[unlikely]]
        route.way = Way::kUnknown; // the next send looks again
    if (!looked_up && is_doubtful(route))
        route.way = Way::kUnknown;
    return 0;
}

bool is_stale(const Route &route)
{
    // Negative: it has been found to hold for the tick that is about to begin.
    const auto age = static_cast<std::int32_t>(current_tick() - route.tick);
    return route.way == Way::kUnknown || has_changed(route) || age >= holds_for(route);
}

} // namespace vma::sock::udp
