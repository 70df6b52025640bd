// SPDX-License-Identifier: BSD-2-Clause
// What the program does when a connection is established: its numbers are reckoned back to the first byte. The place
// where both ends of a connection meet says if the other has been there. If so, or if the other is yet to come, what
// this end is stands under its cookie then. An acceptor whose connector wasn't there is of a connection with another
// host, and leaves nothing; but where the SYN may have had data it can be the first.
//
// It doesn't hear of ends. What is over is written over some day.
#include "pair_code.hpp"

#include <array>
#include <bit>
#include <cstddef>

namespace vma::guard {

namespace {

using ether::Assembler;
using ether::If;
using ether::Reg;
using Label = Assembler::Label;

// Kept over the program.
constexpr Reg kContext = Reg::r6;
constexpr Reg kRole = Reg::r7;
constexpr Reg kWord = Reg::r8;  // the connector's numbers, later the cookie
constexpr Reg kPlace = Reg::r9; // in a map
constexpr Reg kStack = Reg::r10;

// On the stack.
constexpr int kNumbers = -8; // PairNumbers of this end
constexpr int kExchanged = -16;
constexpr int kKey = -24;

constexpr int kSent = offsetof(PairNumbers, sent);
constexpr int kReceived = offsetof(PairNumbers, received);
constexpr int kRoleOfSecondWord = offsetof(EndEntry, role) - offsetof(EndEntry, port);

constexpr int kSyn = 2; // flag of TCP

class Writer
{
public:
    Writer(Assembler &code, const PairMaps &maps) : c_(code), maps_(maps), end_(code.label()) {}

    void write()
    {
        const Label established = c_.label();
        const Label connector = c_.label();
        const Label acceptor = c_.label();
        c_.move(kContext, Reg::r1);
        field32(Reg::r2, offsetof(bpf_sock_ops, op));
        c_.jump(If::kEqual, Reg::r2, BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB, connector);
        c_.jump(If::kEqual, Reg::r2, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, acceptor);
        c_.jump(end_);
        c_.bind(connector);
        connector_numbers();
        c_.load<std::uint64_t>(kWord, kStack, kNumbers);
        c_.jump(established);
        c_.bind(acceptor);
        acceptor_numbers();
        c_.load<std::uint64_t>(kWord, kStack, kExchanged);
        c_.bind(established);
        meet();
        enter();
        c_.bind(end_);
        c_.move(Reg::r0, 1); // all others would be an error of the program's to the kernel
        c_.exit();
    }

private:
    void field32(Reg to, std::size_t offset) { c_.load<std::uint32_t>(to, kContext, static_cast<int>(offset)); }
    void field64(Reg to, std::size_t offset) { c_.load<std::uint64_t>(to, kContext, static_cast<int>(offset)); }

    // The SYN counts as a byte that is acknowledged, data in it as more. Where nothing is, there was no handshake: the
    // numbers are what a program has set (TCP_REPAIR).
    void connector_numbers()
    {
        field64(Reg::r3, offsetof(bpf_sock_ops, bytes_acked));
        c_.jump(If::kEqual, Reg::r3, 0, end_);
        field32(Reg::r2, offsetof(bpf_sock_ops, snd_una));
        c_.subtract(Reg::r2, Reg::r3);
        c_.add(Reg::r2, 1);
        c_.move(kRole, static_cast<std::int32_t>(PairRole::kConnector));
        store_numbers();
    }

    void acceptor_numbers()
    {
        field32(Reg::r2, offsetof(bpf_sock_ops, snd_una));
        field64(Reg::r3, offsetof(bpf_sock_ops, bytes_acked));
        c_.subtract(Reg::r2, Reg::r3);
        c_.move(kRole, static_cast<std::int32_t>(PairRole::kAcceptor));
        store_numbers();
    }

    // r2: the first number sent; the upper half means nothing.
    void store_numbers()
    {
        c_.store<std::uint32_t>(kStack, kNumbers + kSent, Reg::r2);
        c_.store<std::uint32_t>(kStack, kExchanged + kReceived, Reg::r2);
        field32(Reg::r4, offsetof(bpf_sock_ops, rcv_nxt));
        field64(Reg::r3, offsetof(bpf_sock_ops, bytes_received));
        c_.subtract(Reg::r4, Reg::r3);
        c_.store<std::uint32_t>(kStack, kNumbers + kReceived, Reg::r4);
        c_.store<std::uint32_t>(kStack, kExchanged + kSent, Reg::r4);
        c_.add(Reg::r2, Reg::r4); // by which both ends find their meeting
    }

    // kPlace: the lower bits of `index` in the map.
    void look_up(int map, Reg index, std::uint32_t count)
    {
        c_.mask(index, static_cast<std::int32_t>(count - 1));
        c_.store<std::uint32_t>(kStack, kKey, index);
        c_.load_map(Reg::r1, map);
        c_.move(Reg::r2, kStack);
        c_.add(Reg::r2, kKey);
        c_.call(BPF_FUNC_map_lookup_elem);
        c_.jump(If::kEqual, Reg::r0, 0, end_);
        c_.move(kPlace, Reg::r0);
    }

    void meet()
    {
        const Label first = c_.label();
        const Label write = c_.label();
        const Label done = c_.label();
        look_up(maps_.meetings, Reg::r2, maps_.meeting_count);
        c_.move(Reg::r3, kRole); // the bit of this end
        c_.add(Reg::r3, 1);
        static_assert(kConnectorHere == static_cast<std::uint32_t>(PairRole::kConnector) + 1);
        static_assert(kAcceptorHere == static_cast<std::uint32_t>(PairRole::kAcceptor) + 1);
        c_.load<std::uint64_t>(Reg::r1, kPlace, offsetof(MeetingEntry, connector));
        c_.jump(If::kNotEqual, Reg::r1, kWord, first);
        c_.load<std::uint64_t>(Reg::r1, kPlace, offsetof(MeetingEntry, ends));
        c_.set(Reg::r3, Reg::r1);
        c_.jump(write);
        c_.bind(first);
        c_.jump(If::kEqual, kRole, static_cast<std::int32_t>(PairRole::kConnector), done);
        field32(Reg::r2, offsetof(bpf_sock_ops, skb_tcp_flags));
        c_.mask(Reg::r2, kSyn);
        c_.jump(If::kEqual, Reg::r2, 0, end_);
        c_.bind(done);
        c_.store<std::uint64_t>(kPlace, offsetof(MeetingEntry, connector), kWord);
        c_.bind(write);
        c_.store<std::uint64_t>(kPlace, offsetof(MeetingEntry, ends), Reg::r3);
    }

    void enter()
    {
        c_.move(Reg::r1, kContext);
        c_.call(BPF_FUNC_get_socket_cookie);
        c_.move(kWord, Reg::r0);
        look_up(maps_.ends, Reg::r0, maps_.end_count);
        c_.load<std::uint64_t>(Reg::r1, kStack, kNumbers);
        field32(Reg::r2, offsetof(bpf_sock_ops, local_port));
        static_assert(kRoleOfSecondWord == 4);
        if constexpr (std::endian::native == std::endian::little)
            c_.shift_left(kRole, 32);
        else
            c_.shift_left(Reg::r2, 32);
        c_.add(Reg::r2, kRole);
        c_.store<std::uint64_t>(kPlace, offsetof(EndEntry, cookie), kWord);
        c_.store<std::uint64_t>(kPlace, offsetof(EndEntry, numbers), Reg::r1);
        c_.store<std::uint64_t>(kPlace, offsetof(EndEntry, port), Reg::r2);
        c_.add(kWord, Reg::r1);
        c_.add(kWord, Reg::r2);
        c_.store<std::uint64_t>(kPlace, offsetof(EndEntry, sum), kWord);
    }

    Assembler &c_;
    const PairMaps &maps_;
    const Label end_;
};

} // namespace

bool EndEntry::is_sound() const
{
    EndEntry same = *this;
    same.seal();
    return same.sum == sum;
}

void EndEntry::seal()
{
    const auto words = std::bit_cast<std::array<std::uint64_t, 4>>(*this);
    sum = words[0] + words[1] + words[2];
}

void write_pair_code(ether::Assembler &code, const PairMaps &maps)
{
    Writer(code, maps).write();
}

} // namespace vma::guard
