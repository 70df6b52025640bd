// SPDX-License-Identifier: BSD-2-Clause
// The simulated provider. On one host it is as prov/vma/src/local behaves: what is written is in the peer's memory at
// once, and is told when its process looks. Between hosts it is on its way first, in order, but in none that has to do
// with the kernel's; and is lost with whoever ends. The functions of the engine that the streams call stand here, too
// (the linker puts them in the place of the others: compat/Makefile.inc).
#include <poll.h>
#include <string.h>

#include <algorithm>

#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>
#include <rdma/fi_rma.h>

#include "compat/src/transport/pacing.hpp"
#include "compat/test/tcp/stream_sim.hpp"

namespace vma::test::sim {

namespace {

unsigned side_of(const fid *endpoint)
{
    return endpoint == &g_world.endpoints[0].ep.fid ? 0 : 1;
}

bool is_fault(Fault fault)
{
    return g_world.fault == fault;
}

void push(Endpoint &to, std::uint64_t tag, std::uint32_t length)
{
    if (to.count < kEntries)
        to.entries[to.count++] = {tag, length};
    if (!g_world.between_hosts)
        to.arrived = to.count;
}

Entry pop(Endpoint &from)
{
    const Entry entry = from.entries[0];
    std::move(from.entries + 1, from.entries + from.count, from.entries);
    --from.arrived;
    from.entries[--from.count] = {}; // of the same world there is one form
    return entry;
}

// The faults of what is told.
void publish(Endpoint &to, std::uint64_t data, std::uint32_t length)
{
    const auto type = static_cast<sock::Tag>(data);
    constexpr std::uint64_t kOne = std::uint64_t{1} << sock::kTagTypeBits;
    const std::uint64_t value = data >> sock::kTagTypeBits;
    if (type == sock::Tag::kStart && is_fault(Fault::kEarlyStart) && value != 0)
        data -= kOne;
    if (type == sock::Tag::kCredit && is_fault(Fault::kMoreCredit))
        data += kOne * 2;
    if (type == sock::Tag::kCredit && is_fault(Fault::kNoCredit))
        return;
    if (type == sock::Tag::kEnd && is_fault(Fault::kEndLost))
        return;
    if (type == sock::Tag::kEnd && is_fault(Fault::kEndMore))
        data += kOne;
    if (type == sock::Tag::kReturn && is_fault(Fault::kReturnLess) && value != 0)
        data -= kOne;
    if ((type == sock::Tag::kSeen && is_fault(Fault::kNoSeen)) ||
        (type == sock::Tag::kFinal && is_fault(Fault::kNoFinal)) ||
        (type == sock::Tag::kHere && is_fault(Fault::kNoHere)))
        return;
    push(to, data, length);
    if ((type == sock::Tag::kEnd && is_fault(Fault::kEndTwice)) ||
        (type == sock::Tag::kReady && is_fault(Fault::kReadyTwice)) ||
        (type == sock::Tag::kData && is_fault(Fault::kDataTwice)))
        push(to, data, length);
    if (to.count < 2)
        return;
    const bool started = static_cast<sock::Tag>(to.entries[to.count - 2].data) == sock::Tag::kStart;
    const bool ended = type == sock::Tag::kEnd && length == 0;
    if ((is_fault(Fault::kLateStart) && started) || (is_fault(Fault::kReordered) && ended))
        std::swap(to.entries[to.count - 1], to.entries[to.count - 2]);
}

} // namespace

void lose_on_the_way(unsigned p)
{
    Endpoint &to = g_world.endpoints[p];
    while (to.count > to.arrived)
        to.entries[--to.count] = {};
}

namespace {

// ---- the operations of an endpoint

ssize_t write(fid_ep *ep, const void *bytes, std::size_t length, std::uint64_t data, fi_addr_t, std::uint64_t offset,
              std::uint64_t)
{
    const unsigned p = side_of(&ep->fid);
    Endpoint &to = g_world.endpoints[peer_of(p)];
    if (!g_world.endpoints[p].open)
        report("a write to an endpoint that is closed");
    const bool dead = g_world.programs[peer_of(p)].dead;
    if (g_world.between_hosts && (!to.open || dead))
        return 0; // nobody knows yet that it is lost
    if (to.cut || (!to.open && !dead))
        return is_fault(Fault::kCutLate) && length != 0 ? 0 : -FI_ESHUTDOWN;
    if (to.count >= kSlots)
        return -FI_EAGAIN;
    if (offset + length > kRing)
        report("a write behind the end of the ring");
    else
        memcpy(to.region + offset, bytes, length);
    if (static_cast<sock::Tag>(data) == sock::Tag::kStart)
        ++g_world.spans;
    publish(to, data, static_cast<std::uint32_t>(length));
    return 0;
}

ssize_t slots_left(fid_ep *ep)
{
    const unsigned p = side_of(&ep->fid);
    const Endpoint &to = g_world.endpoints[peer_of(p)];
    if (g_world.between_hosts && !to.open)
        return kSlots;
    if (to.cut || (!to.open && !g_world.programs[peer_of(p)].dead))
        return -FI_ENOTCONN;
    return to.count < kSlots ? kSlots - to.count : 0;
}

int set_option(fid_t fid, int, int name, const void *, std::size_t)
{
    Endpoint &e = g_world.endpoints[side_of(fid)];
    if (static_cast<unsigned>(name) != FI_OPT_VMA_CUT)
        return 0; // FI_OPT_VMA_NUDGE: the peer looks at any time
    if (e.claimed)
        return -FI_EBUSY;
    e.cut = true;
    return 0;
}

int get_option(fid_t fid, int, int name, void *value, std::size_t *size)
{
    Endpoint &of = g_world.endpoints[peer_of(side_of(fid))];
    if (static_cast<unsigned>(name) != FI_OPT_VMA_PEER_VIEW)
        return -FI_ENOPROTOOPT;
    if (of.cut && !is_fault(Fault::kClaimIgnored))
        return -FI_ESHUTDOWN;
    of.claimed = !g_world.between_hosts; // there it is a mirror
    const void *const view = of.region;
    memcpy(value, &view, sizeof view);
    *size = sizeof view;
    return 0;
}

int close(fid *fid)
{
    const unsigned p = side_of(fid);
    Endpoint &e = g_world.endpoints[p];
    if (!e.open)
        report("an endpoint is closed twice");
    e.open = false;
    e.connecting = false;
    e.down_due = false;
    e.arrived = e.count;
    while (e.count != 0)
        pop(e);
    lose_on_the_way(peer_of(p));
    Endpoint &peer = g_world.endpoints[peer_of(p)];
    peer.down_due = peer.open && !is_fault(Fault::kDownLost);
    return 0;
}

fi_ops make_object()
{
    fi_ops ops = {};
    ops.size = sizeof ops;
    ops.close = close;
    return ops;
}

fi_ops_ep make_options()
{
    fi_ops_ep ops = {};
    ops.size = sizeof ops;
    ops.getopt = get_option;
    ops.setopt = set_option;
    ops.tx_size_left = slots_left;
    return ops;
}

fi_ops_rma make_writes()
{
    fi_ops_rma ops = {};
    ops.size = sizeof ops;
    ops.injectdata = write;
    return ops;
}

fi_ops g_object = make_object();
fi_ops_ep g_options = make_options();
fi_ops_rma g_writes = make_writes();

void open_endpoint(unsigned p)
{
    Endpoint &e = g_world.endpoints[p];
    e = {};
    e.ep.fid.fclass = FI_CLASS_EP;
    e.ep.fid.ops = &g_object;
    e.ep.ops = &g_options;
    e.ep.rma = &g_writes;
    e.open = true;
    e.connecting = true;
    sock::Stream &s = socket_of(p);
    e.ep.fid.context = &s;
    s.rx.base = e.region;
    s.rx.ring = kRing;
    s.device = &g_world.device;
    ++g_world.device.users;
    sock::put_endpoint(s, &e.ep);
    s.connecting = true;
}

unsigned side_of(sock::RingMask rings)
{
    return rings == sock::kMainRing ? 0 : 1;
}

} // namespace

void open_endpoints()
{
    ++g_world.offloads;
    open_endpoint(0);
    open_endpoint(1);
}

// Who waits is in the middle of a step of his own: what is on its way arrives, and the helper threads look.
int pass_time()
{
    for (unsigned p = 0; p < 2; ++p) {
        Endpoint &e = g_world.endpoints[p];
        e.arrived = e.count;
        while (!e.polled && deliver(p)) {
        }
        if (e.open && sock::offloaded(socket_of(p)))
            sock::tick(socket_of(p));
    }
    return 0;
}

// As on_connected() has it, of a ring that is larger.
void connected(unsigned p)
{
    sock::Stream &s = socket_of(p);
    g_world.endpoints[p].connecting = false;
    s.tx.ring = kRing;
    s.connecting = false;
    sock::Mode kernel_only = sock::Mode::kKernelOnly;
    if (!s.mode.compare_exchange_strong(kernel_only, sock::Mode::kOffloaded)) {
        sock::discard_endpoint(s);
        return;
    }
    for (Sleep *sleep : {&g_world.programs[p].in, &g_world.programs[p].out}) // kick_sleepers()
        sleep->woken = sleep->events != 0;
    sock::transport(s).offloaded(s);
    if (s.send_shut) {
        s.tx_lock.lock();
        sock::end_transmit(s, true);
        sock::unlock_tx(s);
    } else {
        sock::try_tx_work(s);
    }
    const sock::LockGuard guard(s.rx_lock);
    s.ready_due = true;
    sock::try_ready(s);
}

bool deliver(unsigned p)
{
    Endpoint &e = g_world.endpoints[p];
    if (e.arrived == 0 || !e.open)
        return false;
    if (e.polled) {
        report("who polls the queue waits for who polls the queue");
        return false;
    }
    constexpr std::uint32_t kMostInStep = 1000;
    if (++g_world.told > kMostInStep) {
        report("one completion follows the other for ever");
        return false;
    }
    const Entry entry = pop(e);
    e.polled = true;
    sock::handle_tag(socket_of(p), entry.data, entry.length);
    e.polled = false;
    return true;
}

} // namespace vma::test::sim

// ---- the engine's functions

using vma::test::sim::deliver;
using vma::test::sim::side_of;

extern "C" {

unsigned sim_drain(vma::sock::RingMask rings) asm("__wrap__ZN3vma4sock12engine_drainEm");
unsigned sim_drain(vma::sock::RingMask rings)
{
    unsigned n = 0;
    while (deliver(side_of(rings)))
        ++n;
    return n;
}

unsigned sim_poll(vma::sock::RingMask rings) asm("__wrap__ZN3vma4sock11engine_pollEm");
unsigned sim_poll(vma::sock::RingMask rings)
{
    return deliver(side_of(rings)) ? 1 : 0;
}

void sim_leave(vma::sock::RingMask) asm("__wrap__ZN3vma4sock12engine_leaveEm");
void sim_leave(vma::sock::RingMask) {}

void sim_exclude(bool, vma::sock::RingMask) asm("__wrap__ZN3vma4sock22engine_exclude_pollingEbm");
void sim_exclude(bool, vma::sock::RingMask) {}

// A clock that only those move who look at it.
std::int64_t sim_now() asm("__wrap__ZN3vma4sock6now_nsEv");
std::int64_t sim_now()
{
    return vma::test::sim::g_world.now += 1'000'000;
}
}
