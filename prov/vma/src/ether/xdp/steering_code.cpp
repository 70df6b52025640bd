// SPDX-License-Identifier: BSD-2-Clause
// What the program does, in order: VLAN tags, IP header, ports into a FlowKey on its stack; up to three look-ups, from
// the narrowest flow to the widest; redirect to the socket of the process whose flow it is, or pass, counted. Whatever
// it doesn't understand passes to the kernel.
#include "ether/xdp/steering_code.hpp"

#include <cstddef>
#include <linux/if_ether.h>
#include <netinet/in.h>

#include "ether/nic/flow_key.hpp"
#include "ether/nic/frames.hpp"

namespace vma::ether {
namespace {

using Label = Assembler::Label;

// Kept over the program.
constexpr Reg kContext = Reg::r6;
constexpr Reg kFrame = Reg::r7; // moves forward over VLAN tags and IP options: headers are at fixed distances from it
constexpr Reg kEnd = Reg::r8;
constexpr Reg kType = Reg::r9; // the type of the innermost header: IPv4 or IPv6
constexpr Reg kPlace = kType;  // once a flow was found: whose it is
constexpr Reg kStack = Reg::r10;

// On the stack: the key, its addresses at multiples of 8, and the index of the only counter.
constexpr int kKey = -48;
constexpr int kLocal = kKey + static_cast<int>(offsetof(FlowKey, local));
constexpr int kRemote = kKey + static_cast<int>(offsetof(FlowKey, remote));
constexpr int kLocalPort = kKey + static_cast<int>(offsetof(FlowKey, local_port));
constexpr int kRemotePort = kKey + static_cast<int>(offsetof(FlowKey, remote_port));
constexpr int kOuterVlan = kKey + static_cast<int>(offsetof(FlowKey, outer_vlan));
constexpr int kInnerVlan = kKey + static_cast<int>(offsetof(FlowKey, inner_vlan));
constexpr int kProtocol = kKey + static_cast<int>(offsetof(FlowKey, protocol));
constexpr int kCounterIndex = kKey - 8;
constexpr int kStamps = kCounterIndex - static_cast<int>(sizeof(FrameStamps));
constexpr int kArrived = offsetof(FrameStamps, arrived);
constexpr int kHardware = offsetof(FrameStamps, hardware);

constexpr int kEthernet = 14;         // size of its header
constexpr int kTag = 4;               // of a VLAN tag
constexpr int kIpv4 = 20;             // of its header without options
constexpr int kIpv6 = 40;             // of its header
constexpr int kQuote = kEthernet + 8; // what an ICMP error quotes, behind its own header
constexpr int kVlanIdMask = 0xfff;

class Writer
{
public:
    Writer(Assembler &code, const SteeringMaps &maps, const SteeringStamps &stamps)
        : c_(code), maps_(maps), stamps_(stamps), pass_(code.label()), hit_(code.label())
    {
    }

    void write()
    {
        begin();
        tags();
        const Label look_up = c_.label();
        network(look_up);
        c_.bind(look_up);
        look_ups();
        finish();
    }

private:
    void begin()
    {
        c_.move(kContext, Reg::r1);
        c_.load<std::uint32_t>(kFrame, kContext, offsetof(xdp_md, data));
        c_.load<std::uint32_t>(kEnd, kContext, offsetof(xdp_md, data_end));
        c_.store<std::uint32_t>(kStack, kOuterVlan, 0); // and the inner one
        need(kEthernet);
        load_type();
    }

    // Passes the frame unless it has that many bytes from kFrame on; the verifier lets it be read so far then.
    void need(int bytes)
    {
        c_.move(Reg::r2, kFrame);
        c_.add(Reg::r2, bytes);
        c_.jump(If::kAbove, Reg::r2, kEnd, pass_);
    }

    void load_type()
    {
        c_.load<std::uint16_t>(kType, kFrame, kEthernet - 2);
        c_.to_host16(kType);
    }

    void tags()
    {
        const Label untagged = c_.label();
        for (const int vlan : {kOuterVlan, kInnerVlan}) {
            const Label tagged = c_.label();
            c_.jump(If::kEqual, kType, ETH_P_8021Q, tagged);
            c_.jump(If::kNotEqual, kType, ETH_P_8021AD, untagged);
            c_.bind(tagged);
            need(kEthernet + kTag);
            c_.load<std::uint16_t>(Reg::r3, kFrame, kEthernet);
            c_.to_host16(Reg::r3);
            c_.mask(Reg::r3, kVlanIdMask);
            c_.store<std::uint16_t>(kStack, vlan, Reg::r3);
            c_.add(kFrame, kTag);
            load_type();
        }
        c_.bind(untagged);
    }

    // r5 is the transport's number from here to look_up.
    void network(Label look_up)
    {
        const Label ipv6 = c_.label();
        const Label ports = c_.label();
        const Label fragment = c_.label();
        c_.jump(If::kEqual, kType, ETH_P_IPV6, ipv6);
        c_.jump(If::kNotEqual, kType, ETH_P_IP, pass_);
        read_ipv4(fragment);
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_ICMP, ports);
        read_too_big4();
        c_.jump(look_up);
        c_.bind(ipv6);
        read_ipv6(fragment);
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_ICMPV6, ports);
        read_too_big6();
        c_.jump(look_up);
        c_.bind(ports);
        read_ports();
        c_.jump(look_up);
        c_.bind(fragment);
        read_fragment();
    }

    void read_ipv4(Label fragment)
    {
        need(kEthernet + kIpv4);
        c_.load<std::uint8_t>(Reg::r4, kFrame, kEthernet);
        c_.jump(If::kBelow, Reg::r4, 0x45, pass_); // version 4, five words of header or more
        c_.jump(If::kAbove, Reg::r4, 0x4f, pass_);
        c_.mask(Reg::r4, 0xf);
        c_.shift_left(Reg::r4, 2);
        c_.load<std::uint8_t>(Reg::r5, kFrame, kEthernet + 9);
        copy_ipv4(kRemote, kEthernet + 12);
        copy_ipv4(kLocal, kEthernet + 16);
        c_.load<std::uint16_t>(Reg::r3, kFrame, kEthernet + 6);
        c_.to_host16(Reg::r3);
        c_.mask(Reg::r3, 0x3fff); // more fragments, and the offset
        c_.jump(If::kNotEqual, Reg::r3, 0, fragment);
        c_.add(kFrame, Reg::r4);
    }

    // Mapped into IPv6, as in inet::IpAddress.
    void copy_ipv4(int to, int from)
    {
        c_.store<std::uint64_t>(kStack, to, 0);
        c_.store<std::uint16_t>(kStack, to + 8, 0);
        c_.store<std::uint16_t>(kStack, to + 10, 0xffff);
        c_.load<std::uint32_t>(Reg::r3, kFrame, from);
        c_.store<std::uint32_t>(kStack, to + 12, Reg::r3);
    }

    void read_ipv6(Label fragment)
    {
        need(kEthernet + kIpv6);
        c_.load<std::uint8_t>(Reg::r4, kFrame, kEthernet);
        c_.mask(Reg::r4, 0xf0);
        c_.jump(If::kNotEqual, Reg::r4, 0x60, pass_);
        c_.load<std::uint8_t>(Reg::r5, kFrame, kEthernet + 6);
        copy_ipv6(kRemote, kEthernet + 8);
        copy_ipv6(kLocal, kEthernet + 24);
        c_.add(kFrame, kIpv6);
        const Label whole = c_.label();
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_FRAGMENT, whole);
        need(kEthernet + 8);
        c_.load<std::uint8_t>(Reg::r5, kFrame, kEthernet);
        c_.jump(fragment);
        c_.bind(whole);
    }

    void copy_ipv6(int to, int from)
    {
        for (int i = 0; i < 16; i += 4) {
            c_.load<std::uint32_t>(Reg::r3, kFrame, from + i);
            c_.store<std::uint32_t>(kStack, to + i, Reg::r3);
        }
    }

    // "Fragmentation needed" (RFC 792) and "packet too big" (RFC 4443, 3.2) of a TCP segment of ours: the kernel, which
    // knows no such connection, would throw it away. The flow is that of the segment that is quoted, which we have
    // sent.
    void read_too_big4()
    {
        need(kQuote + kIpv4 + 4);
        expect<std::uint16_t>(kEthernet, 3 << 8 | 4); // type and code
        expect<std::uint8_t>(kQuote, 0x45);           // ours have no options
        c_.load<std::uint16_t>(Reg::r3, kFrame, kQuote + 6);
        c_.to_host16(Reg::r3);
        c_.mask(Reg::r3, 0x1fff); // the offset: it has ports
        c_.jump(If::kNotEqual, Reg::r3, 0, pass_);
        c_.load<std::uint8_t>(Reg::r5, kFrame, kQuote + 9);
        copy_ipv4(kLocal, kQuote + 12);
        copy_ipv4(kRemote, kQuote + 16);
        read_quoted_ports(kQuote + kIpv4);
    }

    void read_too_big6()
    {
        need(kQuote + kIpv6 + 4);
        expect<std::uint8_t>(kEthernet, 2); // type
        c_.load<std::uint8_t>(Reg::r5, kFrame, kQuote + 6);
        copy_ipv6(kLocal, kQuote + 8);
        copy_ipv6(kRemote, kQuote + 24);
        read_quoted_ports(kQuote + kIpv6);
    }

    template <typename T> void expect(int at, std::int32_t value)
    {
        c_.load<T>(Reg::r3, kFrame, at);
        if constexpr (sizeof(T) == 2)
            c_.to_host16(Reg::r3);
        c_.jump(If::kNotEqual, Reg::r3, value, pass_);
    }

    void read_quoted_ports(int at)
    {
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_TCP, pass_);
        c_.store<std::uint32_t>(kStack, kProtocol, Reg::r5);
        c_.load<std::uint16_t>(Reg::r3, kFrame, at);
        c_.store<std::uint16_t>(kStack, kLocalPort, Reg::r3);
        c_.load<std::uint16_t>(Reg::r3, kFrame, at + 2);
        c_.store<std::uint16_t>(kStack, kRemotePort, Reg::r3);
    }

    void read_ports()
    {
        const Label good = c_.label();
        c_.jump(If::kEqual, Reg::r5, IPPROTO_TCP, good);
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_UDP, pass_);
        c_.bind(good);
        need(kEthernet + 4);
        c_.store<std::uint32_t>(kStack, kProtocol, Reg::r5);
        c_.load<std::uint16_t>(Reg::r3, kFrame, kEthernet);
        c_.store<std::uint16_t>(kStack, kRemotePort, Reg::r3);
        c_.load<std::uint16_t>(Reg::r3, kFrame, kEthernet + 2);
        c_.store<std::uint16_t>(kStack, kLocalPort, Reg::r3);
    }

    // The kernel reassembles datagrams for the bound socket behind a flow; for a TCP segment it has no socket, and
    // would reset.
    void read_fragment()
    {
        c_.jump(If::kNotEqual, Reg::r5, IPPROTO_TCP, pass_);
        c_.store<std::uint32_t>(kStack, kProtocol, Reg::r5);
        c_.store<std::uint32_t>(kStack, kLocalPort, 0); // and the remote one
    }

    void look_ups()
    {
        find(maps_.flows, kKey);
        c_.jump(If::kNotEqual, Reg::r0, 0, hit_);
        c_.store<std::uint64_t>(kStack, kRemote, 0);
        c_.store<std::uint64_t>(kStack, kRemote + 8, 0);
        c_.store<std::uint16_t>(kStack, kRemotePort, 0);
        find(maps_.flows, kKey);
        c_.jump(If::kNotEqual, Reg::r0, 0, hit_);
        // Any address: but not of what this machine only forwards.
        find(maps_.addresses, kLocal);
        c_.jump(If::kEqual, Reg::r0, 0, pass_);
        const Label ipv4 = c_.label();
        c_.store<std::uint32_t>(kStack, kLocal + 12, 0);
        c_.jump(If::kEqual, kType, ETH_P_IP, ipv4);
        c_.store<std::uint64_t>(kStack, kLocal, 0);
        c_.store<std::uint32_t>(kStack, kLocal + 8, 0);
        c_.bind(ipv4);
        find(maps_.flows, kKey);
        c_.jump(If::kEqual, Reg::r0, 0, pass_);
    }

    // r0: the value's address, or 0.
    void find(int map, int key)
    {
        c_.load_map(Reg::r1, map);
        c_.move(Reg::r2, kStack);
        c_.add(Reg::r2, key);
        c_.call(BPF_FUNC_map_lookup_elem);
    }

    void finish()
    {
        const Label redirected = c_.label();
        const Label end = c_.label();
        c_.bind(hit_);
        c_.load<std::uint32_t>(kPlace, Reg::r0, 0);
        if (stamps_.wanted)
            stamp();
        c_.load<std::uint32_t>(Reg::r2, kContext, offsetof(xdp_md, rx_queue_index));
        c_.jump(If::kAbove, Reg::r2, (1 << maps_.queue_bits) - 1, pass_); // it would be another place's
        c_.shift_left(kPlace, maps_.queue_bits);
        c_.set(Reg::r2, kPlace);
        c_.load_map(Reg::r1, maps_.sockets);
        c_.move(Reg::r3, XDP_PASS); // what it gives where the queue has no socket
        c_.call(BPF_FUNC_redirect_map);
        c_.move(kFrame, Reg::r0);
        c_.jump(If::kEqual, kFrame, XDP_REDIRECT, redirected);
        count(kErrorsAt, end);
        c_.bind(redirected);
        count(kHitsAt, end);
        c_.bind(pass_);
        c_.move(kFrame, XDP_PASS);
        count(kPassesAt, end);
        c_.bind(end);
        c_.move(Reg::r0, kFrame);
        c_.exit();
    }

    // FrameStamps go where the driver left room before the frame: who takes it, takes that too. Without room it passes.
    void stamp()
    {
        c_.store<std::uint64_t>(kStack, kStamps + kHardware, 0);
        if (stamps_.hardware_function != 0)
            ask_device();
        c_.call(BPF_FUNC_ktime_get_ns);
        c_.store<std::uint64_t>(kStack, kStamps + kArrived, Reg::r0);
        c_.move(Reg::r1, kContext);
        c_.move(Reg::r2, -static_cast<std::int32_t>(sizeof(FrameStamps)));
        c_.call(BPF_FUNC_xdp_adjust_meta);
        c_.jump(If::kNotEqual, Reg::r0, 0, pass_);
        c_.load<std::uint32_t>(Reg::r1, kContext, offsetof(xdp_md, data_meta));
        c_.load<std::uint32_t>(Reg::r2, kContext, offsetof(xdp_md, data));
        c_.move(Reg::r3, Reg::r1);
        c_.add(Reg::r3, static_cast<std::int32_t>(sizeof(FrameStamps)));
        c_.jump(If::kAbove, Reg::r3, Reg::r2, pass_);
        for (const int field : {kArrived, kHardware}) {
            c_.load<std::uint64_t>(Reg::r3, kStack, kStamps + field);
            c_.store<std::uint64_t>(Reg::r1, field, Reg::r3);
        }
    }

    // What it gives along with an error is no stamp.
    void ask_device()
    {
        const Label known = c_.label();
        c_.move(Reg::r1, kContext);
        c_.move(Reg::r2, kStack);
        c_.add(Reg::r2, kStamps + kHardware);
        c_.call_kernel(stamps_.hardware_function);
        c_.shift_left(Reg::r0, 32); // an int
        c_.jump(If::kEqual, Reg::r0, 0, known);
        c_.store<std::uint64_t>(kStack, kStamps + kHardware, 0);
        c_.bind(known);
    }

    // This processor's own counter. kFrame is the verdict by now, as no header is read any more.
    void count(int counter, Label end)
    {
        c_.store<std::uint32_t>(kStack, kCounterIndex, 0);
        find(maps_.counters, kCounterIndex);
        c_.jump(If::kEqual, Reg::r0, 0, end);
        c_.load<std::uint64_t>(Reg::r1, Reg::r0, counter);
        c_.add(Reg::r1, 1);
        c_.store<std::uint64_t>(Reg::r0, counter, Reg::r1);
        c_.jump(end);
    }

    Assembler &c_;
    const SteeringMaps &maps_;
    const SteeringStamps &stamps_;
    const Label pass_;
    const Label hit_;
};

} // namespace

void assemble_steering(Assembler &code, const SteeringMaps &maps, const SteeringStamps &stamps)
{
    Writer(code, maps, stamps).write();
}

} // namespace vma::ether
