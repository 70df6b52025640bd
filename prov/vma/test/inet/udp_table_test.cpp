// SPDX-License-Identifier: BSD-2-Clause
// UDP's sockets: which of them gets a datagram, what it is told, what is dropped and counted, and whose an ICMP error
// is.
#include "prov/vma/test/inet/frames.hpp"

#include <cerrno>

#include "prov/vma/src/inet/udp/table.hpp"

namespace {

using namespace frames;

const IpAddress kAny4 = IpAddress::v4(0u);
const IpAddress kAny6{};
const IpAddress kOther4 = IpAddress::v4(0x0a000009);
const IpAddress kGroup4 = IpAddress::v4(0xe0000105);
const IpAddress kGroup6 = v6(0xff02, 0x105);

struct Sockets {
    explicit Sockets(std::uint32_t blocks = 256, std::uint32_t sockets = 16, std::uint32_t records = 16)
        : pool(blocks, 8), table({sockets, records}, pool)
    {
    }

    UdpSocketId bound(const IpAddress &local, std::uint16_t port, const UdpOptions &options = {})
    {
        const UdpSocketId id = table.open(options);
        assert_int_not_equal(id, kNoUdpSocket);
        assert_int_equal(table.bind(id, {local, port}), 0);
        return id;
    }

    UdpDelivered send(const Endpoint &source, const Endpoint &target, const Frame &data = {1, 2, 3},
                      bool broadcast = false)
    {
        IpOut ip;
        ip.source = source.address;
        ip.target = target.address;
        ip.protocol = Protocol::kUdp;
        ip.hop_limit = 44;
        ip.traffic_class = 0x20;
        const auto header = udp_header(ip, {source.port, target.port}, std::array{Bytes(data)});
        Frame payload(header.begin(), header.end());
        payload.insert(payload.end(), data.begin(), data.end());
        Packet packet;
        packet.source = ip.source;
        packet.target = ip.target;
        packet.protocol = ip.protocol;
        packet.hop_limit = ip.hop_limit;
        packet.traffic_class = ip.traffic_class;
        packet.info.arrived = 77;
        packet.payload = payload;
        return table.deliver(packet, broadcast);
    }

    // Who got the last datagram; each that did is emptied.
    std::vector<UdpSocketId> takers()
    {
        std::vector<UdpSocketId> ids;
        for (UdpSocketId id; (id = table.next_event()) != kNoUdpSocket;) {
            ids.push_back(id);
            assert_int_equal(table.receive(id, {}).error, 0);
            assert_false(table.readable(id));
        }
        return ids;
    }

    void assert_goes(const Endpoint &source, const Endpoint &target, UdpSocketId wanted)
    {
        const bool none = wanted == kNoUdpSocket;
        assert_int_equal(send(source, target), none ? UdpDelivered::kNoSocket : UdpDelivered::kDelivered);
        assert_true(takers() == (none ? std::vector<UdpSocketId>{} : std::vector{wanted}));
    }

    BlockPool pool;
    UdpTable table;
};

void the_nearest_gets_it(void **)
{
    Sockets s;
    UdpOptions reuse;
    reuse.reuse_address = true;
    UdpOptions only;
    only.v6_only = true;
    only.reuse_address = true;
    const UdpSocketId dual = s.bound(kAny6, 7, reuse);
    s.assert_goes({kPeer4, 9}, {kOurs4, 7}, dual);
    const UdpSocketId any4 = s.bound(kAny4, 7, reuse);
    s.assert_goes({kPeer4, 9}, {kOurs4, 7}, any4);
    const UdpSocketId bound4 = s.bound(kOurs4, 7, reuse);
    s.assert_goes({kPeer4, 9}, {kOurs4, 7}, bound4);
    s.assert_goes({kPeer4, 9}, {kOther4, 7}, any4);
    const UdpSocketId connected = s.bound(kAny4, 7, reuse);
    assert_int_equal(s.table.connect(connected, kOurs4, {kPeer4, 9}), 0);
    s.assert_goes({kPeer4, 9}, {kOurs4, 7}, connected);
    s.assert_goes({kPeer4, 10}, {kOurs4, 7}, bound4);
    s.assert_goes({kOther4, 9}, {kOurs4, 7}, bound4);
    s.assert_goes({kPeer6, 9}, {kOurs6, 7}, dual);
    const UdpSocketId six = s.bound(kAny6, 7, only);
    s.assert_goes({kPeer6, 9}, {kOurs6, 7}, six); // of equals the last
    s.assert_goes({kPeer4, 9}, {kOurs4, 8}, kNoUdpSocket);
    s.assert_goes({kPeer4, 9}, {kOurs4, static_cast<std::uint16_t>(7 + 16)}, kNoUdpSocket); // of the same hash
    s.table.disconnect(connected);
    s.assert_goes({kPeer4, 9}, {kOther4, 7}, connected); // bound to any again
    for (const UdpSocketId id : {connected, any4, bound4, dual})
        s.table.close(id);
    s.assert_goes({kPeer4, 9}, {kOurs4, 7}, kNoUdpSocket); // `six` takes no IPv4
    assert_int_equal(s.table.counters().no_socket, 3);
}

void addresses_in_use(void **)
{
    Sockets s;
    UdpOptions only;
    only.v6_only = true;
    s.bound(kAny4, 7);
    const UdpSocketId id = s.table.open({});
    for (const IpAddress &address : {kAny4, kOurs4, kAny6})
        assert_int_equal(s.table.bind(id, {address, 7}), -EADDRINUSE);
    assert_int_equal(s.table.bind(id, {kAny4, 0}), -EINVAL);
    assert_int_equal(s.table.bind(id, {kAny4, 8}), 0);
    assert_int_equal(s.table.bind(id, {kAny4, 9}), -EINVAL);
    s.bound(kOurs6, 7);
    const UdpSocketId six = s.table.open(only);
    assert_int_equal(s.table.bind(six, {kAny6, 7}), -EADDRINUSE);
    assert_int_equal(s.table.bind(six, {kOther4, 8}), -EADDRINUSE);
    assert_int_equal(s.table.bind(six, {kAny6, 8}), 0);
    UdpOptions port;
    port.reuse_port = true;
    s.bound(kOurs4, 10, port);
    s.bound(kOurs4, 10, port);
    UdpOptions address;
    address.reuse_address = true;
    const UdpSocketId other = s.table.open(address);
    assert_int_equal(s.table.bind(other, {kOurs4, 10}), -EADDRINUSE); // both must say the same
    assert_int_equal(s.table.bind(other, {kOther4, 10}), 0);
}

void connecting(void **)
{
    Sockets s;
    UdpOptions only;
    only.v6_only = true;
    const UdpSocketId id = s.table.open(only);
    assert_int_equal(s.table.connect(id, kOurs6, {kPeer6, 9}), -EINVAL); // not bound
    assert_int_equal(s.table.bind(id, {kAny6, 7}), 0);
    assert_int_equal(s.table.connect(id, kOurs4, {kPeer4, 9}), -EAFNOSUPPORT);
    assert_int_equal(s.table.connect(id, kOurs6, {kPeer6, 0}), -EINVAL);
    assert_int_equal(s.table.connect(id, kOurs6, {kAny6, 9}), -EINVAL);
    assert_int_equal(s.table.connect(id, kOurs4, {kPeer6, 9}), -EINVAL);
    assert_int_equal(s.table.connect(id, kOurs6, {kPeer6, 9}), 0);
    assert_true((s.table.flow(id) == Flow{{kOurs6, 7}, {kPeer6, 9}}));
    const UdpSocketId dual = s.bound(kAny6, 8);
    assert_int_equal(s.table.connect(dual, kOurs4, {kPeer4, 9}), 0);
    s.assert_goes({kPeer4, 9}, {kOurs4, 8}, dual);
    const UdpSocketId four = s.bound(kOurs4, 9);
    assert_int_equal(s.table.connect(four, kOurs6, {kPeer6, 9}), -EAFNOSUPPORT);
    assert_int_equal(s.table.connect(four, kAny4, {kPeer4, 9}), 0); // its own address
}

void one_port_many_sockets(void **)
{
    Sockets s(1024, 64);
    UdpOptions reuse;
    reuse.reuse_port = true;
    unsigned got[4] = {};
    UdpSocketId ids[4];
    for (UdpSocketId &id : ids)
        id = s.bound(kOurs4, 7, reuse);
    for (std::uint16_t port = 1000; port < 1400; ++port) {
        assert_int_equal(s.send({kPeer4, port}, {kOurs4, 7}), UdpDelivered::kDelivered);
        assert_int_equal(s.send({kPeer4, port}, {kOurs4, 7}), UdpDelivered::kDelivered);
        for (unsigned i = 0; i < 4; ++i)
            if (s.table.readable(ids[i])) { // both
                ++got[i];
                assert_int_equal(s.table.receive(ids[i], {}).error, 0);
                assert_int_equal(s.table.receive(ids[i], {}).error, 0);
            }
    }
    assert_int_equal(got[0] + got[1] + got[2] + got[3], 400);
    for (const unsigned count : got)
        assert_true(count > 50);
}

void what_is_told_of_it(void **)
{
    Sockets s;
    const UdpSocketId id = s.bound(kAny4, 7);
    const Frame data = bytes_of(1000);
    assert_int_equal(s.table.first_length(id), 0);
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}, data), UdpDelivered::kDelivered);
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}, {}), UdpDelivered::kDelivered);
    assert_int_equal(s.table.first_length(id), 1000);
    Frame out(600);
    const std::span<std::uint8_t> room[] = {std::span(out).first(50), std::span(out).subspan(50)};
    for (const auto read : {UdpTable::Read::kPeek, UdpTable::Read::kTake}) {
        const UdpTable::Received r = s.table.receive(id, room, read);
        assert_int_equal(r.error, 0);
        assert_int_equal(r.copied, 600); // truncated
        assert_int_equal(r.info.length, 1000);
        assert_memory_equal(out.data(), data.data(), 600);
        assert_true((r.info.source == Endpoint{kPeer4, 9}));
        assert_true(r.info.target == kOurs4);
        assert_int_equal(r.info.hop_limit, 44);
        assert_int_equal(r.info.traffic_class, 0x20);
        assert_int_equal(r.info.arrived, 77);
        out.assign(600, 0);
    }
    const UdpTable::Received empty = s.table.receive(id, room);
    assert_int_equal(empty.error, 0);
    assert_int_equal(empty.info.length, 0);
    assert_int_equal(s.table.receive(id, room).error, -EAGAIN);
    assert_int_equal(s.pool.available(), s.pool.total());
}

void drops_are_counted(void **)
{
    Sockets s(64);
    UdpOptions small;
    small.receive_bytes = 1024; // four blocks
    const UdpSocketId id = s.bound(kAny4, 7, small);
    const UdpSocketId greedy = s.bound(kAny4, 8);
    for (unsigned i = 0; i < 10; ++i)
        assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}), i < 4 ? UdpDelivered::kDelivered : UdpDelivered::kDropped);
    assert_int_equal(s.table.dropped(id), 6);
    assert_int_equal(s.table.counters().dropped_full, 6);
    assert_int_equal(s.table.receive(id, {}).info.dropped, 0);
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}, bytes_of(5000)),
                     UdpDelivered::kDelivered); // the last may be longer
    for (unsigned i = 0; i < 3; ++i)
        assert_int_equal(s.table.receive(id, {}).error, 0);
    assert_int_equal(s.table.receive(id, {}).info.dropped, 6);
    unsigned taken = 0;
    while (s.send({kPeer4, 9}, {kOurs4, 8}) == UdpDelivered::kDelivered)
        ++taken;
    assert_int_equal(taken, 64);
    assert_int_equal(s.table.dropped(greedy), 1);
    assert_int_equal(s.table.counters().dropped_pool, 1);
    assert_int_equal(s.table.counters().delivered, 5 + 64);
    s.table.close(greedy);
    assert_int_equal(s.pool.available(), s.pool.total());
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}), UdpDelivered::kDelivered);
}

void groups_and_sources(void **)
{
    Sockets s;
    UdpOptions strict;
    strict.reuse_address = true;
    strict.multicast_all = false;
    const UdpSocketId all = s.bound(kAny4, 7, strict);
    const UdpSocketId chosen = s.bound(kGroup4, 7, strict);
    const UdpSocketId stranger = s.bound(kAny4, 7, strict);
    const UdpSocketId unicast = s.bound(kOurs4, 7, strict);
    const auto got = [&](const IpAddress &source) {
        s.send({source, 9}, {kGroup4, 7});
        std::uint32_t set = 0;
        for (const UdpSocketId id : s.takers())
            set |= 1u << id;
        return set;
    };
    const auto change = [&](UdpSocketId id, GroupChange what, const IpAddress &source = {}) {
        return s.table.change_group(id, what, kGroup4, source);
    };
    assert_int_equal(got(kPeer4), 0);
    assert_int_equal(change(all, GroupChange::kJoin), 0);
    assert_int_equal(change(all, GroupChange::kJoin), -EADDRINUSE);
    assert_int_equal(change(all, GroupChange::kAddSource, kPeer4), -EINVAL);
    assert_int_equal(change(chosen, GroupChange::kBlockSource, kPeer4), -EINVAL);
    assert_int_equal(change(chosen, GroupChange::kDropSource, kPeer4), -EINVAL);
    assert_int_equal(change(chosen, GroupChange::kAddSource, kPeer4), 0);
    assert_int_equal(change(chosen, GroupChange::kAddSource, kPeer4), -EADDRNOTAVAIL);
    assert_int_equal(change(chosen, GroupChange::kJoin), -EADDRINUSE);
    assert_int_equal(change(stranger, GroupChange::kLeave), -EADDRNOTAVAIL);
    assert_int_equal(change(unicast, GroupChange::kJoin), 0);
    assert_int_equal(s.table.change_group(all, GroupChange::kJoin, kOurs4), -EINVAL);
    assert_int_equal(got(kPeer4), 1u << all | 1u << chosen);
    assert_int_equal(got(kOther4), 1u << all);
    assert_int_equal(change(all, GroupChange::kBlockSource, kOther4), 0);
    assert_int_equal(change(all, GroupChange::kBlockSource, kOther4), -EADDRNOTAVAIL);
    assert_int_equal(got(kOther4), 0);
    assert_int_equal(got(kPeer4), 1u << all | 1u << chosen);
    assert_int_equal(change(all, GroupChange::kUnblockSource, kOther4), 0);
    assert_int_equal(got(kOther4), 1u << all);
    assert_int_equal(change(chosen, GroupChange::kDropSource, kOther4), -EADDRNOTAVAIL);
    assert_int_equal(change(chosen, GroupChange::kDropSource, kPeer4), 0);
    assert_int_equal(got(kPeer4), 1u << all);
    s.table.options(stranger).multicast_all = true;
    assert_int_equal(got(kPeer4), 1u << all | 1u << stranger);
    assert_int_equal(s.table.connect(all, kOurs4, {kOther4, 9}), 0);
    assert_int_equal(got(kPeer4), 1u << stranger);
    assert_int_equal(got(kOther4), 1u << all | 1u << stranger);
    assert_int_equal(change(all, GroupChange::kLeave), 0);
    assert_int_equal(got(kOther4), 1u << stranger);
}

void groups_alone(void **)
{
    Sockets s;
    UdpOptions shared;
    shared.reuse_address = true;
    const UdpSocketId whole = s.bound(kAny4, 7, shared);
    shared.groups_only = true;
    const UdpSocketId last = s.bound(kAny4, 7, shared);
    const auto taken_by = [&s](UdpSocketId id) { return s.table.receive(id, {}).error == 0; };
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}), UdpDelivered::kDelivered);
    assert_true(taken_by(whole));
    assert_false(taken_by(last));
    assert_int_equal(s.send({kPeer4, 9}, {kGroup4, 7}), UdpDelivered::kDelivered);
    assert_true(taken_by(whole));
    assert_true(taken_by(last));
    s.table.close(whole);
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}), UdpDelivered::kNoSocket);
}

void group_records_are_bounded(void **)
{
    Sockets s(16, 4, 3);
    UdpOptions options;
    options.multicast_all = false;
    const UdpSocketId id = s.bound(kAny6, 7, options);
    assert_int_equal(s.table.change_group(id, GroupChange::kJoin, kGroup6), 0);
    assert_int_equal(s.send({kPeer6, 9}, {kGroup6, 7}), UdpDelivered::kDelivered);
    assert_int_equal(s.send({kPeer6, 9}, {v6(0xff02, 0x106), 7}), UdpDelivered::kNoSocket);
    assert_int_equal(s.table.change_group(id, GroupChange::kBlockSource, kGroup6, kPeer6), 0);
    assert_int_equal(s.table.change_group(id, GroupChange::kJoin, kGroup4), 0);
    assert_int_equal(s.table.change_group(id, GroupChange::kBlockSource, kGroup6, kOurs6), -ENOBUFS);
    assert_int_equal(s.table.change_group(id, GroupChange::kLeave, kGroup6), 0); // with what is blocked
    assert_int_equal(s.table.change_group(id, GroupChange::kAddSource, kGroup6, kPeer6), 0);
    assert_int_equal(s.table.change_group(id, GroupChange::kAddSource, kGroup6, kOurs6), 0);
    s.table.close(id);
    const UdpSocketId again = s.bound(kAny6, 7, options);
    assert_int_equal(s.send({kPeer6, 9}, {kGroup6, 7}), UdpDelivered::kNoSocket);
    for (const std::uint16_t last : {std::uint16_t{1}, std::uint16_t{2}, std::uint16_t{3}})
        assert_int_equal(s.table.change_group(again, GroupChange::kJoin, v6(0xff02, last)), 0);
}

void broadcast(void **)
{
    Sockets s;
    UdpOptions reuse;
    reuse.reuse_address = true;
    const IpAddress all = IpAddress::v4(0x0a0000ff);
    const UdpSocketId first = s.bound(kAny4, 7, reuse);
    const UdpSocketId second = s.bound(all, 7, reuse);
    s.bound(kOurs4, 7, reuse);
    assert_int_equal(s.send({kPeer4, 9}, {all, 7}, {1}, true), UdpDelivered::kDelivered);
    assert_true((s.takers() == std::vector{second, first}));
}

IcmpError refused(const Flow &flow, Bytes quoted)
{
    IcmpError error;
    error.flow = flow;
    error.protocol = Protocol::kUdp;
    error.hard = true;
    error.type = 3;
    error.code = 3;
    error.error = ECONNREFUSED;
    error.reporter = kOther4;
    error.quoted = quoted;
    return error;
}

void errors_of_those_connected(void **)
{
    Sockets s;
    const Frame quoted = bytes_of(20);
    const UdpSocketId id = s.bound(kAny4, 7);
    IcmpError error = refused({{kOurs4, 7}, {kPeer4, 9}}, quoted);
    assert_false(s.table.tell_error(error)); // not connected
    assert_int_equal(s.table.connect(id, kOurs4, {kPeer4, 9}), 0);
    assert_int_equal(s.send({kPeer4, 9}, {kOurs4, 7}), UdpDelivered::kDelivered);
    assert_int_equal(s.table.next_event(), id);
    assert_true(s.table.tell_error(error));
    assert_int_equal(s.table.next_event(), id);
    assert_int_equal(s.table.next_event(), kNoUdpSocket);
    assert_int_equal(s.table.receive(id, {}).error, -ECONNREFUSED); // before the data, and once
    assert_int_equal(s.table.receive(id, {}).error, 0);
    assert_int_equal(s.table.receive(id, {}).error, -EAGAIN);
    assert_false(s.table.has_errors(id));
    error.hard = false;
    error.error = EHOSTUNREACH;
    assert_false(s.table.tell_error(error));
    error.error = EMSGSIZE;
    assert_true(s.table.tell_error(error));
    assert_int_equal(s.table.take_error(id), EMSGSIZE);
    assert_int_equal(s.table.take_error(id), 0);
    error = refused({{kOurs4, 7}, {kPeer4, 10}}, quoted);
    assert_false(s.table.tell_error(error)); // another's
    assert_int_equal(s.table.counters().errors_unheard, 3);
    assert_int_equal(s.table.counters().errors_told, 2);
}

void errors_that_are_asked_for(void **)
{
    Sockets s;
    UdpOptions options;
    options.receive_errors = true;
    options.receive_bytes = 512; // two blocks
    const UdpSocketId id = s.bound(kAny4, 7, options);
    Frame quoted = bytes_of(20);
    IcmpError error = refused({{kOurs4, 7}, {kPeer4, 9}}, quoted);
    error.hard = false;
    error.error = EMSGSIZE;
    error.mtu = 1400;
    for (unsigned i = 0; i < 3; ++i)
        assert_true(s.table.tell_error(error));
    assert_int_equal(s.table.counters().errors_dropped, 1);
    assert_int_equal(s.table.next_event(), id);
    assert_true(s.table.has_errors(id) && s.table.readable(id));
    for (unsigned i = 0; i < 2; ++i) {
        Frame out(20);
        const std::span<std::uint8_t> room[] = {out};
        const UdpTable::Received r = s.table.receive_error(id, room);
        assert_int_equal(r.error, 0);
        assert_int_equal(r.copied, 12);
        assert_memory_equal(out.data(), &quoted[8], 12); // without the UDP header
        assert_true((r.info.source == Endpoint{kPeer4, 9}));
        assert_true(r.info.target == kOther4);
        assert_int_equal(r.info.error, EMSGSIZE);
        assert_int_equal(r.info.mtu, 1400);
        assert_int_equal(r.info.type, 3);
        assert_int_equal(r.info.code, 3);
    }
    assert_int_equal(s.table.receive_error(id, {}).error, -EAGAIN);
    assert_int_equal(s.table.take_error(id), 0);
    assert_true(s.table.tell_error(error));
    s.table.close(id);
    assert_int_equal(s.pool.available(), s.pool.total());
}

void sockets_come_and_go(void **)
{
    Random random;
    Sockets s(512, 8);
    UdpOptions reuse;
    reuse.reuse_port = true;
    std::vector<UdpSocketId> open;
    for (unsigned round = 0; round < 20'000; ++round) {
        const std::uint16_t port = static_cast<std::uint16_t>(1 + random(4) * 4); // two share a bucket
        switch (random(4)) {
        case 0: {
            const UdpSocketId id = s.table.open(reuse);
            assert_int_equal(id == kNoUdpSocket, open.size() == 8);
            if (id == kNoUdpSocket)
                break;
            open.push_back(id);
            assert_int_equal(s.table.bind(id, {random(2) ? kAny4 : kOurs4, port}), 0);
            break;
        }
        case 1:
            if (!open.empty()) {
                const std::size_t which = random(static_cast<std::uint32_t>(open.size()));
                s.table.close(open[which]);
                open.erase(open.begin() + static_cast<long>(which));
            }
            break;
        case 2: {
            bool wanted = false;
            for (const UdpSocketId id : open)
                wanted |= s.table.flow(id).local.port == port;
            const UdpDelivered delivered = s.send({kPeer4, 9}, {kOurs4, port});
            assert_int_equal(delivered == UdpDelivered::kNoSocket, !wanted);
            break;
        }
        default:
            for (UdpSocketId id; (id = s.table.next_event()) != kNoUdpSocket;)
                while (s.table.receive(id, {}).error == 0) {
                }
            for (const UdpSocketId id : open)
                assert_false(s.table.readable(id));
            assert_int_equal(s.pool.available(), s.pool.total());
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_gets_it),
        cmocka_unit_test(addresses_in_use),
        cmocka_unit_test(connecting),
        cmocka_unit_test(one_port_many_sockets),
        cmocka_unit_test(what_is_told_of_it),
        cmocka_unit_test(drops_are_counted),
        cmocka_unit_test(groups_and_sources),
        cmocka_unit_test(groups_alone),
        cmocka_unit_test(group_records_are_bounded),
        cmocka_unit_test(broadcast),
        cmocka_unit_test(errors_of_those_connected),
        cmocka_unit_test(errors_that_are_asked_for),
        cmocka_unit_test(sockets_come_and_go),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
