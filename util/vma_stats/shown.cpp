// SPDX-License-Identifier: BSD-2-Clause
// What the views show, out of one copy or two.
#include <algorithm>
#include <cmath>

#include "util/vma_stats/views.hpp"

namespace vma_stats {

namespace {

using namespace vma::stats;

double seconds_between(const Shown &shown)
{
    return std::max(shown.now->seconds - shown.before->seconds, 0.001);
}

std::uint64_t rate(std::uint64_t count, double seconds)
{
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(count) / seconds));
}

void make_rates(Counters &c, double seconds)
{
    for (std::uint64_t *counter :
         {&c.rx.packets,       &c.rx.bytes,      &c.rx.poll_hit,   &c.rx.poll_miss, &c.rx.poll_os_hit,
          &c.rx.errors,        &c.rx.eagain,     &c.rx.os_packets, &c.rx.os_bytes,  &c.rx.os_errors,
          &c.rx.os_eagain,     &c.rx.migrations, &c.in.packets,    &c.in.bytes,     &c.in.dropped_packets,
          &c.in.dropped_bytes, &c.tx.packets,    &c.tx.bytes,      &c.tx.errors,    &c.tx.eagain,
          &c.tx.retransmits,   &c.tx.dummies,    &c.tx.os_packets, &c.tx.os_bytes,  &c.tx.os_errors,
          &c.tx.os_eagain,     &c.tx.migrations, &c.tx.held,       &c.tx.held_ns,   &c.tx.paced_bytes})
        *counter = rate(*counter, seconds);
}

SocketView view_of(const Shown &shown, std::size_t place)
{
    const Slot &slot = shown.now->slots[place];
    SocketView view = vma::stats::view_of(slot);
    if (shown.before == nullptr)
        return view;
    const std::vector<Slot> &before = shown.before->slots;
    const bool same = place < before.size() && before[place].facts.use == slot.facts.use;
    view.counters = since(slot.now, same ? before[place].now : Counters{});
    view.paced_bytes = rate(paced_bytes(slot, view.counters), seconds_between(shown));
    view.per = "/s";
    make_rates(view.counters, seconds_between(shown));
    return view;
}

bool did_something(const MuxCounters &c)
{
    return (c.poll_hit | c.poll_miss | c.timeouts | c.errors | c.ready | c.os_ready) != 0;
}

// What threads or sets count in these records, as one.
void add_mux(const Shown &shown, const std::string &name, const Mux *now, const Mux *before, std::size_t count,
             std::vector<ShownMux> &out)
{
    ShownMux sum = {name, {}, 0, 0};
    for (std::size_t i = 0; i < count; ++i) {
        const bool same = before != nullptr && before[i].fd == now[i].fd;
        const MuxCounters c = since(now[i].now, before == nullptr ? now[i].zero : same ? before[i].now : MuxCounters{});
        sum.counters = {sum.counters.poll_hit + c.poll_hit, sum.counters.poll_miss + c.poll_miss,
                        sum.counters.timeouts + c.timeouts, sum.counters.errors + c.errors,
                        sum.counters.ready + c.ready,       sum.counters.os_ready + c.os_ready};
        if (now[i].thread != 0)
            sum.thread = now[i].thread;
        sum.polling = std::max(sum.polling, std::min(now[i].polling, 100U));
    }
    MuxCounters &c = sum.counters;
    if (before != nullptr)
        for (std::uint64_t *counter : {&c.poll_hit, &c.poll_miss, &c.timeouts, &c.errors, &c.ready, &c.os_ready})
            *counter = rate(*counter, seconds_between(shown));
    if (did_something(c))
        out.push_back(sum);
}

} // namespace

std::vector<SocketView> sockets_of(const Shown &shown)
{
    std::vector<SocketView> views;
    for (std::size_t i = 0; i < shown.now->slots.size(); ++i) {
        const int fd = shown.now->slots[i].facts.fd;
        if (fd >= 0 && shows(*shown.options, fd))
            views.push_back(view_of(shown, i));
    }
    std::stable_sort(views.begin(), views.end(),
                     [](const SocketView &a, const SocketView &b) { return a.facts->fd < b.facts->fd; });
    return views;
}

std::vector<ShownMux> muxes_of(const Shown &shown)
{
    std::vector<ShownMux> all;
    const Header &now = shown.now->header;
    const Header *const before = shown.before != nullptr ? &shown.before->header : nullptr;
    add_mux(shown, "select", now.select, before != nullptr ? before->select : nullptr, kThreadGroups, all);
    add_mux(shown, "poll", now.poll, before != nullptr ? before->poll : nullptr, kThreadGroups, all);
    for (std::size_t i = 0; i < kEpollSets; ++i)
        if (now.epoll[i].fd >= 0)
            add_mux(shown, "epoll[" + std::to_string(now.epoll[i].fd) + "]", &now.epoll[i],
                    before != nullptr ? &before->epoll[i] : nullptr, 1, all);
    return all;
}

} // namespace vma_stats
