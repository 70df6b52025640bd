// SPDX-License-Identifier: BSD-2-Clause
// Reading rtnetlink: messages made here, whole, cut and wrong, for links that this machine may not have; then the
// configuration of this very machine, as far as any Linux has it.
#include "fabtests/unit.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "ether/netlink/cache.hpp"

using namespace vma;
using namespace vma::ether;

namespace {

using Bytes = std::vector<std::uint8_t>;

class Payload
{
public:
    template <typename Body> explicit Payload(const Body &body)
    {
        append(&body, sizeof body);
        bytes_.resize(NLMSG_ALIGN(bytes_.size()));
    }
    Payload() = default; // of attributes only

    Payload &put(unsigned type, const void *data, std::size_t size)
    {
        const rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(size)), static_cast<std::uint16_t>(type)};
        append(&head, sizeof head);
        append(data, size);
        bytes_.resize(RTA_ALIGN(bytes_.size()));
        return *this;
    }
    template <typename T> Payload &put(unsigned type, T value) { return put(type, &value, sizeof value); }
    Payload &put(unsigned type, const std::string &text) { return put(type, text.c_str(), text.size() + 1); }
    Payload &put(unsigned type, const Payload &nested)
    {
        return put(type | NLA_F_NESTED, nested.bytes_.data(), nested.bytes_.size());
    }

    NetlinkBytes bytes() const { return bytes_; }

private:
    void append(const void *data, std::size_t size)
    {
        const auto *const from = static_cast<const std::uint8_t *>(data);
        bytes_.insert(bytes_.end(), from, from + size);
    }

    Bytes bytes_;
};

constexpr std::uint8_t kMac[6] = {2, 0, 0, 0, 0, 7};

Payload link_payload(int index)
{
    ifinfomsg body{};
    body.ifi_index = index;
    body.ifi_type = ARPHRD_ETHER;
    body.ifi_flags = IFF_UP | IFF_LOWER_UP;
    Payload payload(body);
    payload.put(IFLA_IFNAME, std::string("eth7")).put(IFLA_MTU, std::uint32_t{9000});
    payload.put(IFLA_ADDRESS, kMac, sizeof kMac);
    return payload;
}

Payload vlan_payload(bool elsewhere)
{
    Payload data;
    data.put(IFLA_VLAN_ID, std::uint16_t{42}).put(IFLA_VLAN_PROTOCOL, std::uint16_t{htons(0x88a8)});
    Payload info;
    info.put(IFLA_INFO_KIND, std::string("vlan")).put(IFLA_INFO_DATA, data);
    Payload payload = link_payload(9);
    payload.put(IFLA_LINK, std::uint32_t{7}).put(IFLA_LINKINFO, info);
    if (elsewhere)
        payload.put(IFLA_LINK_NETNSID, std::uint32_t{0});
    return payload;
}

void reads_links(void **)
{
    const std::optional<Link> plain = read_link(link_payload(7).bytes());
    assert_true(plain.has_value());
    assert_int_equal(plain->index, 7);
    assert_string_equal(plain->name.c_str(), "eth7");
    assert_int_equal(plain->mtu, 9000);
    assert_memory_equal(plain->mac.bytes.data(), kMac, 6);
    assert_true(plain->up && plain->carrier && !plain->loopback);
    assert_true(plain->kind == LinkKind::kOther && plain->master == 0);

    const std::optional<Link> vlan = read_link(vlan_payload(false).bytes());
    assert_true(vlan && vlan->kind == LinkKind::kVlan);
    assert_int_equal(vlan->vlan_id, 42);
    assert_int_equal(vlan->vlan_tag, 0x88a8);
    assert_int_equal(vlan->lower, 7);
    assert_int_equal(read_link(vlan_payload(true).bytes())->lower, 0);

    Payload data;
    data.put(IFLA_BOND_ACTIVE_SLAVE, std::uint32_t{5});
    Payload info;
    info.put(IFLA_INFO_KIND, std::string("bond")).put(IFLA_INFO_DATA, data);
    const std::optional<Link> bond = read_link(link_payload(10).put(IFLA_LINKINFO, info).bytes());
    assert_true(bond && bond->kind == LinkKind::kBond);
    assert_int_equal(bond->lower, 5);
    assert_int_equal(read_link(link_payload(5).put(IFLA_MASTER, std::uint32_t{10}).bytes())->master, 10);

    // A name without its end, which no kernel sends, is read no farther than it goes; a cut one not at all.
    ifinfomsg body{};
    body.ifi_index = 1;
    assert_string_equal(read_link(Payload(body).put(IFLA_IFNAME, "eth77777", 4).bytes())->name.c_str(), "eth7");
    assert_string_equal(read_link(link_payload(7).bytes().first(sizeof body + 8))->name.c_str(), "");
    assert_false(read_link(link_payload(0).bytes()).has_value());
}

// Whatever is cut off or overwritten, nothing outside of the message is read (run under a sanitizer) and nothing
// crashes.
void survives_broken_messages(void **)
{
    const Payload whole = vlan_payload(false);
    Route route;
    NeighbourKey key;
    Neighbour neighbour;
    const auto read_all = [&](NetlinkBytes bytes) {
        const Bytes exact(bytes.begin(), bytes.end());
        (void)read_link(exact);
        (void)read_address(exact);
        (void)read_route(exact, inet::IpAddress::v4(1u), route);
        (void)read_neighbour(exact, key, neighbour);
    };
    for (std::size_t size = 0; size <= whole.bytes().size(); ++size)
        read_all(whole.bytes().first(size));
    for (std::size_t at = 0; at < whole.bytes().size(); ++at) {
        for (const std::uint8_t wrong : {std::uint8_t{0}, std::uint8_t{3}, std::uint8_t{255}}) {
            Bytes bytes(whole.bytes().begin(), whole.bytes().end());
            bytes[at] = wrong;
            read_all(bytes);
        }
    }
    assert_false(read_link(whole.bytes().first(sizeof(ifinfomsg) - 1)).has_value());
    assert_false(read_address({}).has_value());
}

void reads_addresses(void **)
{
    ifaddrmsg body{};
    body.ifa_family = AF_INET;
    body.ifa_index = 3;
    body.ifa_prefixlen = 24;
    const std::uint8_t peer[4] = {10, 0, 0, 1};
    const std::uint8_t ours[4] = {10, 0, 0, 2};
    const std::optional<LocalAddress> address =
        read_address(Payload(body).put(IFA_ADDRESS, peer, 4).put(IFA_LOCAL, ours, 4).bytes());
    assert_true(address && address->usable);
    assert_true(address->address == inet::IpAddress::v4(0x0a000002u));
    assert_int_equal(address->prefix, 24);
    const std::uint32_t tentative = IFA_F_TENTATIVE;
    assert_false(read_address(Payload(body).put(IFA_LOCAL, ours, 4).put(IFA_FLAGS, tentative).bytes())->usable);
    assert_false(read_address(Payload(body).put(IFA_LOCAL, ours, 3).bytes()).has_value());
}

void reads_neighbours(void **)
{
    const std::uint8_t ours[4] = {10, 0, 0, 2};
    const auto state = [&](int kernel, bool has_mac) {
        ndmsg body{};
        body.ndm_family = AF_INET;
        body.ndm_ifindex = 3;
        body.ndm_state = static_cast<std::uint16_t>(kernel);
        Payload payload(body);
        payload.put(NDA_DST, ours, 4);
        if (has_mac)
            payload.put(NDA_LLADDR, kMac, 6);
        NeighbourKey key;
        Neighbour neighbour;
        assert_true(read_neighbour(payload.bytes(), key, neighbour));
        assert_true((key == NeighbourKey{3, inet::IpAddress::v4(0x0a000002u)}));
        return neighbour.state;
    };
    for (const int usable : {NUD_REACHABLE, NUD_PERMANENT, NUD_NOARP, NUD_DELAY, NUD_PROBE}) {
        assert_true(state(usable, true) == NeighbourState::kUsable);
        assert_true(state(usable, false) == NeighbourState::kNone);
    }
    assert_true(state(NUD_STALE, true) == NeighbourState::kStale);
    assert_true(state(NUD_INCOMPLETE, false) == NeighbourState::kResolving);
    assert_true(state(NUD_FAILED, false) == NeighbourState::kFailed);
    assert_true(state(NUD_NONE, false) == NeighbourState::kNone);
}

void reads_routes(void **)
{
    const inet::IpAddress far = inet::IpAddress::v4(0x08080808u);
    const std::uint8_t gateway[4] = {10, 0, 0, 1};
    rtmsg body{};
    body.rtm_family = AF_INET;
    body.rtm_type = RTN_UNICAST;
    Payload metrics;
    metrics.put(RTAX_MTU, std::uint32_t{1400}).put(RTAX_HOPLIMIT, std::uint32_t{9});
    Route route;
    assert_true(read_route(
        Payload(body).put(RTA_OIF, std::uint32_t{3}).put(RTA_GATEWAY, gateway, 4).put(RTA_METRICS, metrics).bytes(),
        far, route));
    assert_int_equal(route.interface, 3);
    assert_int_equal(route.mtu, 1400);
    assert_int_equal(route.hop_limit, 9);
    assert_true(route.next_hop == inet::IpAddress::v4(0x0a000001u));
    assert_true(read_route(Payload(body).put(RTA_OIF, std::uint32_t{3}).bytes(), far, route));
    assert_true(route.next_hop == far && route.mtu == 0);

    std::uint8_t via[2 + 16] = {AF_INET6, 0, 0xfe, 0x80};
    assert_true(
        read_route(Payload(body).put(RTA_OIF, std::uint32_t{3}).put(RTA_VIA, via, sizeof via).bytes(), far, route));
    assert_true(route.next_hop == inet::IpAddress::v6(via + 2));

    const inet::IpAddress group = inet::IpAddress::v4(0xe0000105u);
    assert_true(read_route(Payload(body).put(RTA_OIF, std::uint32_t{3}).bytes(), group, route));
    assert_true(route.kind == RouteKind::kMulticast);
    body.rtm_type = RTN_BLACKHOLE;
    assert_false(read_route(Payload(body).put(RTA_OIF, std::uint32_t{3}).bytes(), far, route));
}

Link stacked(unsigned index, LinkKind kind, unsigned lower, std::uint16_t vlan)
{
    Link link;
    link.index = index;
    link.up = true;
    link.kind = kind;
    link.lower = lower;
    link.vlan_id = vlan;
    return link;
}

void finds_where_frames_leave(void **)
{
    std::vector<Link> links = {
        stacked(1, LinkKind::kOther, 0, 0), stacked(2, LinkKind::kVlan, 1, 20),  stacked(3, LinkKind::kVlan, 2, 30),
        stacked(4, LinkKind::kVlan, 3, 40), stacked(5, LinkKind::kBond, 1, 0),   stacked(6, LinkKind::kVlan, 5, 60),
        stacked(7, LinkKind::kBond, 0, 0),  stacked(8, LinkKind::kVlan, 0, 80),  stacked(9, LinkKind::kBond, 10, 0),
        stacked(10, LinkKind::kBond, 9, 0), stacked(11, LinkKind::kVlan, 99, 1),
    };
    const struct {
        unsigned from;
        unsigned to; // 0: nowhere
        Vlans vlans;
    } cases[] = {
        {1, 1, {}}, {2, 1, {20, 0}}, {3, 1, {20, 30}}, {4, 0, {}}, // one tag too many
        {5, 1, {}}, {6, 1, {60, 0}}, {7, 7, {}},       {8, 0, {}}, // 8: on a link elsewhere
        {9, 0, {}}, {11, 0, {}},     {12, 0, {}},
    };
    for (const auto &wanted : cases) {
        Outlet outlet;
        assert_int_equal(find_outlet(links, wanted.from, outlet), wanted.to != 0);
        assert_int_equal(outlet.interface, wanted.to);
        assert_true(outlet.vlans == wanted.vlans);
    }
    links[0].up = false;
    Outlet outlet;
    assert_false(find_outlet(links, 6, outlet));
}

void knows_this_machine(void **)
{
    NetState net;
    const int status = NetState::open(net);
    if (status == -EPROTONOSUPPORT || status == -EPERM)
        UNIT_SKIP("no rtnetlink here");
    assert_int_equal(status, 0);
    const Link *const lo = net.link("lo");
    assert_non_null(lo);
    assert_ptr_equal(net.link(lo->index), lo);
    assert_true(lo->loopback);
    assert_null(net.link("no such link"));
    if (!lo->up)
        UNIT_SKIP("the loopback link is down");
    const inet::IpAddress home = inet::IpAddress::v4(0x7f000001u);
    assert_true(net.is_local(home));
    assert_false(net.is_local(inet::IpAddress::v4(0x7f000002u)));
    Route route;
    assert_int_equal(net.route({.destination = home}, route), 0);
    assert_true(route.kind == RouteKind::kLocal);
    assert_int_equal(route.interface, lo->index);
    assert_true(route.source == home);
    assert_int_equal(net.route({.destination = home, .source = home}, route), 0);
    assert_true(route.source == home);
    Outlet outlet;
    assert_true(net.outlet(lo->index, outlet));
    assert_int_equal(outlet.interface, lo->index);
    assert_false(net.outlet(~0u >> 1, outlet));
    assert_true(net.generation() > 0);
    assert_int_equal(net.follow(), 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(reads_links),
        cmocka_unit_test(survives_broken_messages),
        cmocka_unit_test(reads_addresses),
        cmocka_unit_test(reads_neighbours),
        cmocka_unit_test(finds_where_frames_leave),
        cmocka_unit_test(reads_routes),
        cmocka_unit_test(knows_this_machine),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
