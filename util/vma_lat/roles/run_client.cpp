// SPDX-License-Identifier: BSD-2-Clause
// The client's side of a test: the three kinds of load. Nothing here allocates once messages count.
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/measure/message.hpp"
#include "util/vma_lat/roles/run.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

namespace vma::lat {

namespace {

constexpr std::uint64_t kBehindNs = 100000; // so late, a message counts as behind its time
constexpr std::uint64_t kSpinNs = 80000;    // what a sleep may be late by; the rest of a pause is spun
constexpr std::size_t kInFlight = 1 << 20;  // under-load: messages whose times of sending are remembered

class Client
{
public:
    Client(const Load &load, Transport &transport, const std::vector<Control *> &servers, Outcome &outcome)
        : load_(load), transport_(transport), servers_(servers), out_(outcome), plan_(outcome.plan),
          message_(plan_.size)
    {
    }

    void run()
    {
        warm_up();
        start_ = now_ns();
        next_tick_ = start_ + kTickMs * kMillisecond;
        next_line_ = start_ + kSecond;
        if (plan_.test == Test::kPingPong)
            ping_pong();
        else if (plan_.test == Test::kThroughput)
            send_all();
        else
            under_load();
        out_.client.first_ns = start_;
        out_.client.last_ns = now_ns();
        out_.client.timed = out_.client.sent;
        out_.interrupted = stopped();
    }

private:
    bool over() const { return stopped() || failed_.load(std::memory_order_relaxed); }

    bool more(std::uint64_t index, std::uint64_t now) const
    {
        return !over() && (load_.count == 0 || index < load_.count) &&
               (load_.duration_ns == 0 || now - start_ < load_.duration_ns);
    }

    void warm_up()
    {
        constexpr unsigned kMostSilent = 3;
        unsigned silent = 0;
        for (std::uint64_t i = 0; i < load_.warm_up && !over(); ++i) {
            silent = exchange(i, kWarmUp | kReplyWanted) ? 0 : silent + 1;
            if (silent == kMostSilent)
                fail(error(
                    kExitServer,
                    "no reply to %u messages one after another: do they reach the server (a firewall? for a group: "
                    "--interface on both sides, --ttl)? The test ends; --warm-up 0 starts one without replies",
                    kMostSilent));
        }
    }

    // Two threads may find that it failed: the first one's word counts.
    void fail(Error why)
    {
        if (!failing_.exchange(true)) {
            out_.failure = std::move(why);
            failed_.store(true);
        }
    }

    // A server says nothing while a test runs: what comes is its end.
    bool servers_live()
    {
        for (const Control *server : servers_) {
            if (server->pending()) {
                fail(error(kExitServer, "the server ended the test; what was measured until then follows"));
                return false;
            }
        }
        return true;
    }

    // Every 50 ms: is the server there still? Every second: a line.
    void tick(std::uint64_t now, std::uint64_t sent)
    {
        if (now < next_tick_)
            return;
        next_tick_ = now + kTickMs * kMillisecond;
        servers_live();
        if (!load_.progress || now < next_line_)
            return;
        std::fprintf(stderr, "%s %s, %u bytes: %.0f s, %llu messages (%llu a second)\n", name_of(plan_.kind),
                     name_of(plan_.test), plan_.size, static_cast<double>(now - start_) / 1e9,
                     static_cast<unsigned long long>(sent), static_cast<unsigned long long>(sent - line_sent_));
        line_sent_ = sent;
        next_line_ += kSecond;
    }

    std::uint32_t channel_of(std::uint64_t index) const { return static_cast<std::uint32_t>(index % plan_.sockets); }

    bool send(std::uint64_t index, int flags)
    {
        const std::uint64_t sequence = index / plan_.sockets;
        write_header(message_.data(), plan_.session, static_cast<std::uint8_t>(flags), sequence);
        if (plan_.check)
            write_pattern(message_, sequence);
        const Got got = transport_.send(channel_of(index), message_);
        if (got == Got::kClosed)
            fail(
                error(kExitServer, "the server closed a connection of the test; what was measured until then follows"));
        if (got == Got::kFailed)
            fail(error(kExitFailed, "%s", transport_.fault().c_str()));
        return got == Got::kMessage;
    }

    // A reply of this test: true, with the index of what it answers. `flags`: as the message had them.
    bool receive(Got &got, int flags, std::uint64_t &index)
    {
        Arrival arrival;
        got = transport_.receive(arrival);
        if (got == Got::kFailed)
            fail(error(kExitFailed, "%s", transport_.fault().c_str()));
        if (got == Got::kClosed)
            fail(error(kExitServer, "the server closed the test's connections; what was measured until then follows"));
        if (got != Got::kMessage)
            return false;
        if (arrival.message.size() != plan_.size) {
            ++out_.client.damaged;
            return false;
        }
        const MessageHeader header = read_header(arrival.message.data());
        if (header.session != plan_.session) {
            ++out_.client.foreign;
            return false;
        }
        if (header.flags != (flags | kReply)) // of the warm-up: late, or of one more server
            return false;
        index = header.sequence() * plan_.sockets + arrival.channel;
        if (plan_.check && !pattern_holds(arrival.message, header.sequence())) {
            ++out_.client.damaged;
            return false;
        }
        return true;
    }

    // One round trip. False: no reply came.
    bool exchange(std::uint64_t index, int flags)
    {
        const std::uint64_t sent = now_ns();
        if (!send(index, flags))
            return false;
        const bool counts = (flags & kWarmUp) == 0;
        out_.client.sent += counts ? 1 : 0;
        while (!over()) {
            Got got = Got::kNothing;
            std::uint64_t answered = 0;
            if (receive(got, flags, answered)) {
                const std::uint64_t now = now_ns();
                if (answered == index) {
                    if (counts)
                        out_.samples.record(channel_of(index), index / plan_.sockets, sent - start_, now - sent);
                    now_ = now;
                    return true;
                }
                out_.client.reordered += counts ? 1 : 0; // of a message that was given up
            }
            if (got != Got::kMessage) {
                const std::uint64_t now = now_ns();
                tick(now, out_.client.sent);
                if (now - sent > load_.timeout_ns) {
                    out_.lost += counts ? 1 : 0;
                    return false;
                }
            }
        }
        return false;
    }

    void ping_pong()
    {
        now_ = start_;
        for (std::uint64_t i = 0; more(i, now_); ++i) {
            if (load_.rate != 0)
                now_ = pause_until(start_ + i * kSecond / load_.rate);
            if (exchange(i, kReplyWanted))
                ++out_.client.received;
            else
                now_ = now_ns();
            tick(now_, i + 1);
        }
        out_.asked = out_.client.sent;
    }

    std::uint64_t pause_until(std::uint64_t due)
    {
        std::uint64_t now = now_ns();
        while (now < due && !over()) {
            if (due - now > kSpinNs) {
                const std::uint64_t pause = std::min<std::uint64_t>(due - now - kSpinNs / 2, kTickMs * kMillisecond);
                const timespec time{0, static_cast<long>(pause)};
                nanosleep(&time, nullptr);
            }
            now = now_ns();
        }
        out_.behind += now > due + kBehindNs ? 1 : 0;
        return now;
    }

    // Sends until the end, at the rate wanted.
    void send_all()
    {
        std::uint64_t now = start_;
        for (std::uint64_t i = 0; more(i, now); ++i) {
            if (load_.rate != 0)
                now = pause_until(start_ + i * kSecond / load_.rate);
            else if (i % 32 == 0)
                now = now_ns();
            const bool asks = plan_.test == Test::kUnderLoad && i % load_.reply_every == 0;
            if (asks)
                sent_at_[i % kInFlight].store(now_ns(), std::memory_order_relaxed);
            if (!send(i, asks ? kReplyWanted : 0))
                break;
            out_.client.sent = i + 1;
            if (asks)
                asked_.fetch_add(1, std::memory_order_relaxed);
            tick(now, i + 1);
        }
    }

    // One thread sends, this one takes the replies: neither waits for the other.
    void under_load()
    {
        sent_at_ = std::vector<std::atomic<std::uint64_t>>(kInFlight);
        std::atomic<bool> sending{true};
        std::thread sender([&] {
            send_all();
            sending.store(false, std::memory_order_release);
        });
        std::uint64_t silent_since = now_ns();
        while (!over()) {
            Got got = Got::kNothing;
            std::uint64_t index = 0;
            if (receive(got, kReplyWanted, index))
                take_reply(index);
            if (got == Got::kMessage)
                silent_since = 0;
            else if (silent_since == 0)
                silent_since = now_ns();
            if (!sending.load(std::memory_order_acquire)) {
                if (out_.client.received >= asked_.load(std::memory_order_relaxed))
                    break;
                if (silent_since != 0 && now_ns() - silent_since > load_.timeout_ns)
                    break;
            }
        }
        sender.join();
        out_.asked = asked_.load(std::memory_order_relaxed);
        out_.lost = out_.asked - std::min(out_.asked, out_.client.received);
    }

    void take_reply(std::uint64_t index)
    {
        const std::uint64_t now = now_ns();
        // An exchange: a reply that comes twice finds no time.
        const std::uint64_t sent = sent_at_[index % kInFlight].exchange(0, std::memory_order_relaxed);
        if (sent == 0) {
            ++out_.client.duplicates;
            return;
        }
        ++out_.client.received;
        out_.samples.record(channel_of(index), index / plan_.sockets, sent - start_, now - sent);
    }

    const Load &load_;
    Transport &transport_;
    const std::vector<Control *> &servers_;
    Outcome &out_;
    const Plan &plan_;
    Bytes message_;
    std::uint64_t start_ = 0;
    std::uint64_t now_ = 0;
    std::uint64_t next_tick_ = 0;
    std::uint64_t next_line_ = 0;
    std::uint64_t line_sent_ = 0;
    std::vector<std::atomic<std::uint64_t>> sent_at_;
    std::atomic<std::uint64_t> asked_{0};
    std::atomic<bool> failing_{false};
    std::atomic<bool> failed_{false};
};

} // namespace

std::size_t room_for(const Plan &plan, const Load &load)
{
    if (plan.test == Test::kThroughput)
        return 0;
    constexpr double kFastest = 4e6; // round trips a second that no transport exceeds
    const double rate = load.rate != 0 ? static_cast<double>(load.rate) : kFastest;
    double wanted = load.duration_ns != 0 ? static_cast<double>(load.duration_ns) / 1e9 * rate : 1e18;
    if (load.count != 0)
        wanted = std::min(wanted, static_cast<double>(load.count));
    return static_cast<std::size_t>(std::min(wanted + 1, static_cast<double>(load.most_samples)));
}

void run_client(const Load &load, Transport &transport, const std::vector<Control *> &servers, Outcome &outcome)
{
    Client(load, transport, servers, outcome).run();
}

} // namespace vma::lat
