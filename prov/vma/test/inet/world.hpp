// SPDX-License-Identifier: BSD-2-Clause
// Programs over the simulated network: each sends its stream, checks what it reads byte for byte, and closes. After a
// run nothing may be left in either engine.
#pragma once

#include "fabtests/unit.hpp"

#include <errno.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "prov/vma/test/inet/sim.hpp"

namespace vma::inet::sim {

inline constexpr std::uint16_t kPort = 7;
inline constexpr Nanos kLong = 3600 * kSecond;

// A program at one end: sends `to_send` bytes of its stream and closes its side, reads and checks the other's to the
// end.
struct Program {
    std::uint64_t out_seed = 0, in_seed = 0;
    std::uint64_t to_send = 0, sent = 0, received = 0, to_receive = 0;
    bool checks = true;    // what it reads
    bool finished = false; // its own side is shut down
    bool closed = false;
    bool failed = false;
    ConnectionId id;
    std::function<std::int64_t(Tcp &, const Program &, Nanos, std::span<std::uint8_t>)> read; // instead of receive()

    void act(Network &net, unsigned side)
    {
        Tcp &tcp = net.tcp(side);
        std::uint8_t buffer[16384];
        while (sent < to_send) {
            const std::size_t n = std::min<std::uint64_t>(sizeof buffer, to_send - sent);
            fill(out_seed, sent, {buffer, n});
            const std::int64_t taken = tcp.send(net.now(), id, {buffer, n});
            if (taken < 0) {
                failed = failed || taken != -EAGAIN;
                break;
            }
            sent += static_cast<std::uint64_t>(taken);
            if (static_cast<std::size_t>(taken) < n)
                break;
        }
        if (sent == to_send && !finished) {
            finished = true;
            assert_int_equal(tcp.shutdown(net.now(), id), 0);
        }
        for (;;) {
            const std::int64_t n = read ? read(tcp, *this, net.now(), buffer) : tcp.receive(net.now(), id, buffer);
            if (n <= 0) {
                failed = failed || (n != -EAGAIN && n != 0);
                if (n == 0 && finished && !closed) {
                    closed = true;
                    tcp.close(net.now(), id);
                }
                break;
            }
            assert_true(!checks || check(in_seed, received, {buffer, static_cast<std::size_t>(n)}));
            received += static_cast<std::uint64_t>(n);
        }
        if (failed && !closed) {
            closed = true;
            tcp.close(net.now(), id);
        }
    }
};

// Clients on side 0, a server on side 1; who is who is told by the client's port.
struct World {
    World(std::uint64_t seed, const LinkSettings &link, const TcpLimits &limits = {}, std::uint16_t mtu = 1500,
          const TcpSettings &server_settings = {}, std::uint32_t backlog = 128)
        : net(seed, link, limits, mtu), listener(net.listen(1, kPort, server_settings, backlog))
    {
    }

    void start(std::uint16_t port, std::uint64_t up, std::uint64_t down, const TcpSettings &settings = {})
    {
        Program &client = programs[0][port];
        client.out_seed = port;
        client.in_seed = std::uint64_t{port} << 16;
        client.to_send = up;
        client.to_receive = down;
        client.id = net.connect(0, port, kPort, settings, port);
        Program &server = programs[1][port];
        server.out_seed = client.in_seed;
        server.in_seed = client.out_seed;
        server.to_send = down;
        server.to_receive = up;
    }

    void act()
    {
        for (unsigned side = 0; side < 2; ++side) {
            TcpEvent event;
            while (net.tcp(side).next_event(event)) {
                if ((event.what & kAcceptable) != 0) {
                    accept_all();
                    continue;
                }
                Program &p = programs[side][static_cast<std::uint16_t>(event.user)];
                if ((event.what & kFailed) != 0)
                    p.failed = true;
                if (!p.closed)
                    p.act(net, side);
            }
        }
    }

    void accept_all()
    {
        ConnectionId id;
        while (net.tcp(1).accept(listener, id)) {
            const std::uint16_t port = net.tcp(1).find(id)->flow.remote.port;
            Program &server = programs[1][port];
            if (server.id !=
                // a late duplicate with a cookie that is still good: whoever sends cookies lives with it
                ConnectionId()) {
                net.tcp(1).abort(net.now(), id);
                continue;
            }
            server.id = id;
            net.tcp(1).set_user(id, port);
            server.act(net, 1);
        }
    }

    bool all_closed() const
    {
        for (const auto &side : programs)
            for (const auto &[port, p] : side)
                if (!p.closed)
                    return false;
        return true;
    }

    // All bytes there, no error, nothing left.
    void run_to_the_end()
    {
        const bool done = net.run(
            net.now() + kLong, [this] { return all_closed(); }, [this] { act(); });
        if (!done)
            describe();
        assert_true(done);
        net.run(
            net.now() + kLong, [this] { return empty(); }, [this] { act(); });
        for (const auto &side : programs) {
            for (const auto &[port, p] : side) {
                assert_false(p.failed);
                assert_int_equal(p.received, p.to_receive);
            }
        }
        assert_true(empty());
    }

    // Who is not done, for whoever has to find out why.
    void describe()
    {
        for (unsigned side = 0; side < 2; ++side) {
            const TcpCounters &n = net.tcp(side).counters();
            print_message("# side %u: %u connections open, %llu timeouts, %llu without memory, %llu cookies out, %llu "
                          "in, %llu bad; %llu resets out\n",
                          side, net.tcp(side).open_connections(), static_cast<unsigned long long>(n.timeouts),
                          static_cast<unsigned long long>(n.no_memory), static_cast<unsigned long long>(n.cookies_out),
                          static_cast<unsigned long long>(n.cookies_in), static_cast<unsigned long long>(n.cookies_bad),
                          static_cast<unsigned long long>(n.resets_out));
            for (const auto &[port, p] : programs[side]) {
                if (p.closed)
                    continue;
                const Connection *const c = net.tcp(side).find(p.id);
                print_message("#  port %u: sent %llu of %llu, received %llu of %llu, %s, state %d\n", port,
                              static_cast<unsigned long long>(p.sent), static_cast<unsigned long long>(p.to_send),
                              static_cast<unsigned long long>(p.received),
                              static_cast<unsigned long long>(p.to_receive), p.failed ? "failed" : "alive",
                              c != nullptr ? static_cast<int>(c->state) : -1);
            }
        }
    }

    bool empty()
    {
        for (unsigned side = 0; side < 2; ++side)
            if (net.tcp(side).open_connections() != 0 ||
                net.tcp(side).blocks().available() != net.tcp(side).blocks().total())
                return false;
        return true;
    }

    Network net;
    ListenerId listener;
    std::map<std::uint16_t, Program> programs[2];
};

inline LinkSettings bad_link()
{
    LinkSettings link;
    link.rate = 1e9;
    link.delay = 200 * kMicrosecond;
    link.loss = 0.01;
    link.duplicate = 0.01;
    link.reorder = 0.01;
    link.corrupt = 0.002;
    return link;
}

} // namespace vma::inet::sim
