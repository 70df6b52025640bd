// SPDX-License-Identifier: BSD-2-Clause
#include "compat/test/udp/udp_victim.hpp"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "compat/src/engine/engine_state.hpp"
#include "compat/src/libc/read_option.hpp"

namespace vma::test {

namespace {

constexpr std::size_t kRoom = 512; // for all control data there is
constexpr std::uint8_t kUntouched = 0xa5;

} // namespace

Victim::Victim(int family, bool offloaded, bool connected) : family_(family)
{
    fd_ = ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd_ >= 0);
    sockaddr_in6 name = {}; // long enough for both families, whose ports stand at the same place
    name.sin6_family = static_cast<sa_family_t>(family);
    assert_int_equal(::bind(fd_, reinterpret_cast<sockaddr *>(&name), sizeof name), 0);
    if (connected)
        connect_to_itself();
    ask_for_everything();
    sock::track_datagram(fd_, family, false);
    socket_ = sock::lookup(fd_);
    assert_non_null(socket_);
    if (!offloaded)
        return;
    while (sock::loaded(sock::Part::kProvider) == sock::Loaded::kNotYet)
        sock::load_what_is_wanted(sock::Patience::kWaits); // waits for a while each time
    const sock::LockGuard guard(sock::g_offload.lock);
    offload_unasked(*socket_, fd_);
    assert_int_not_equal(state().cookie.load(), 0);
}

Victim::~Victim()
{
    sock::forget(fd_);
    ::close(fd_);
}

void Victim::connect_to_itself()
{
    sockaddr_in6 name = {};
    socklen_t length = sizeof name;
    ::getsockname(fd_, reinterpret_cast<sockaddr *>(&name), &length);
    assert_int_equal(::connect(fd_, reinterpret_cast<sockaddr *>(&name), length), 0);
}

void Victim::ask_for_everything()
{
    const int on = 1;
    const int small = 40000;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (const int name : {SO_RXQ_OVFL, SO_TIMESTAMPNS})
        assert_int_equal(::setsockopt(fd_, SOL_SOCKET, name, &on, sizeof on), 0);
    for (const int name : {IP_PKTINFO, IP_RECVTTL, IP_RECVTOS})
        assert_int_equal(::setsockopt(fd_, IPPROTO_IP, name, &on, sizeof on), 0);
    if (family_ == AF_INET6)
        for (const int name : {IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS})
            assert_int_equal(::setsockopt(fd_, IPPROTO_IPV6, name, &on, sizeof on), 0);
    limit_ = static_cast<std::size_t>(libc::read_option(fd_, SOL_SOCKET, SO_RCVBUF, 0));
}

Expected Victim::make_expected(const Record &record) const
{
    Expected expected = {};
    const std::uint8_t *in = record.bytes.get();
    About &about = expected.about;
    std::memcpy(&about.source_port, in, 2);
    about.tos = in[2];
    about.ttl = in[3];
    std::uint32_t interface = 0;
    std::memcpy(&interface, in + 4, 4);
    about.interface = interface & kMostInterface;
    std::memcpy(&about.lost, in + 8, 4);
    const bool v6 = header_of(record.data) == 44;
    const std::size_t length = v6 ? 16 : 4;
    for (in6_addr *out : {&about.source, &about.destination}) {
        out->s6_addr[10] = out->s6_addr[11] = 0xff;
        std::memcpy(&out->s6_addr[16 - length], in + (out == &about.source ? 12 : 12 + length), length);
    }
    const std::size_t header = header_of(record.data);
    expected.payload.assign(reinterpret_cast<const char *>(in) + header, record.length - header);
    return expected;
}

bool Victim::is_for_it(const Record &record) const
{
    const State &u = state();
    const bool named = (record.data >> 32 & 0xfffff) == socket_->index && u.cookie.load() != 0 &&
                       static_cast<std::uint32_t>(record.data) == u.cookie.load();
    return named && record.length >= header_of(record.data);
}

// Of groups it is the kernel that knows, whom the library has asked.
bool Victim::wants_it(std::uint64_t data, const About &about) const
{
    const State &u = state();
    return !(u.connected && (about.source_port != u.peer_port || !IN6_ARE_ADDR_EQUAL(&about.source, &u.peer))) &&
           ((data & kToGroup) == 0 || is_member(*socket_, about));
}

int hand_over(const Record &record)
{
    sock::engine_exclude_polling(true);
    const int result =
        sock::udp::take(&sock::g_engine.arrivals, record.bytes.get(), record.length, record.data, nullptr);
    sock::engine_exclude_polling(false);
    assert_in_range(result, 0, 1);
    return result;
}

// What is already handed over: the model follows, and the queue has refused it if and only if it held more than its
// limit.
void Victim::take(const Record &record)
{
    State &u = state();
    const std::uint32_t before = u.losses.ours();
    assert_int_equal(hand_over(record), 1);
    const std::uint32_t change = u.losses.ours() - before;
    if (!is_for_it(record)) {
        assert_int_equal(change, 0);
        return;
    }
    Expected expected = make_expected(record);
    const bool wants = wants_it(record.data, expected.about);
    const std::uint32_t refused = wants && held_ > limit_ ? 1 : 0;
    assert_int_equal(change, expected.about.lost + refused);
    if (!wants || refused != 0)
        return;
    held_ += expected.size();
    assert_in_range(held_, 1, limit_ + sizeof(Queued) + 65600);
    model_.push_back(std::move(expected));
}

namespace {

// The program's side of a message, with room of random sizes, and bytes behind each that nobody may touch.
struct Call {
    std::vector<std::uint8_t> payload;
    std::vector<iovec> parts{};
    sockaddr_in6 name;
    std::size_t name_room;
    alignas(cmsghdr) std::uint8_t control[kRoom + 64];
    std::size_t control_room;
    msghdr msg = {};

    explicit Call(Random &random)
        : payload(random() % 4 == 0 ? random() % 300 : kLongest + 93), name_room(random() % (sizeof name + 1)),
          control_room(random() % 2 == 0 ? kRoom : random() % 200)
    {
        std::memset(&name, kUntouched, sizeof name);
        std::memset(control, kUntouched, sizeof control);
        const std::size_t cut = payload.empty() ? 0 : random() % payload.size();
        parts = {{payload.data(), cut}, {nullptr, 0}, {payload.data() + cut, payload.size() - cut}};
        msg.msg_iov = parts.data();
        msg.msg_iovlen = parts.size();
        msg.msg_name = &name;
        msg.msg_namelen = static_cast<socklen_t>(name_room);
        msg.msg_control = control;
        msg.msg_controllen = control_room;
    }
    bool is_untouched_behind() const
    {
        const auto untouched = [](std::uint8_t byte) { return byte == kUntouched; };
        const auto *const named = reinterpret_cast<const std::uint8_t *>(&name);
        return std::all_of(named + name_room, named + sizeof name, untouched) &&
               std::all_of(control + control_room, std::end(control), untouched);
    }
    void check_payload(const std::string &wanted) const
    {
        assert_int_equal((msg.msg_flags & MSG_TRUNC) != 0, wanted.size() > payload.size());
        assert_memory_equal(payload.data(), wanted.data(), std::min(wanted.size(), payload.size()));
    }
};

} // namespace

void Victim::check_name(const msghdr &msg, const sockaddr_in6 &name, std::size_t room, const About &about) const
{
    sockaddr_in6 wanted = {};
    sockaddr_in v4 = {};
    wanted.sin6_family = AF_INET6;
    v4.sin_family = AF_INET;
    wanted.sin6_port = v4.sin_port = about.source_port;
    wanted.sin6_addr = about.source;
    std::memcpy(&v4.sin_addr, &about.source.s6_addr[12], 4);
    const std::size_t length = family_ == AF_INET ? sizeof v4 : sizeof wanted;
    assert_int_equal(msg.msg_namelen, length);
    assert_memory_equal(&name, family_ == AF_INET ? static_cast<void *>(&v4) : &wanted, std::min(length, room));
}

namespace {

template <typename T> T value_in(const std::uint8_t *at)
{
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// One message that is whole.
void check_message(const cmsghdr &head, const std::uint8_t *value, const About &about, std::uint32_t lost)
{
    switch (head.cmsg_level << 16 | head.cmsg_type) {
    case SOL_SOCKET << 16 | SO_TIMESTAMPNS:
        assert_in_range(value_in<timespec>(value).tv_nsec, 0, 999'999'999);
        break;
    case SOL_SOCKET << 16 | SO_RXQ_OVFL:
        assert_int_equal(value_in<std::uint32_t>(value), lost);
        break;
    case IPPROTO_IP << 16 | IP_PKTINFO:
        assert_int_equal(value_in<in_pktinfo>(value).ipi_ifindex, static_cast<int>(about.interface));
        assert_memory_equal(value + offsetof(in_pktinfo, ipi_addr), &about.destination.s6_addr[12], 4);
        break;
    case IPPROTO_IPV6 << 16 | IPV6_PKTINFO:
        assert_int_equal(value_in<in6_pktinfo>(value).ipi6_ifindex, about.interface);
        assert_memory_equal(value, &about.destination, sizeof about.destination);
        break;
    case IPPROTO_IP << 16 | IP_TTL:
    case IPPROTO_IPV6 << 16 | IPV6_HOPLIMIT:
        assert_int_equal(value_in<int>(value), about.ttl);
        break;
    case IPPROTO_IP << 16 | IP_TOS:
        assert_int_equal(*value, about.tos);
        break;
    case IPPROTO_IPV6 << 16 | IPV6_TCLASS:
        assert_int_equal(value_in<int>(value), about.tos);
        break;
    default:
        UNIT_FAIL("a control message that nobody asked for");
    }
}

} // namespace

// Whether the lengths of the messages lead from one to the next and to the end, and what stands in them.
void Victim::check_control(const msghdr &msg, const About &about) const
{
    const auto *const bytes = static_cast<const std::uint8_t *>(msg.msg_control);
    int count = 0;
    for (std::size_t at = 0; at < msg.msg_controllen; ++count) {
        const std::size_t left = msg.msg_controllen - at;
        assert_true(left >= sizeof(cmsghdr));
        const auto head = value_in<cmsghdr>(bytes + at);
        assert_in_range(head.cmsg_len, sizeof head, left);
        at += std::min(CMSG_ALIGN(head.cmsg_len), left);
        if ((msg.msg_flags & MSG_CTRUNC) == 0 || at < msg.msg_controllen)
            check_message(head, bytes + at - std::min(CMSG_ALIGN(head.cmsg_len), left) + sizeof head, about,
                          state().losses.ours());
    }
    if ((msg.msg_flags & MSG_CTRUNC) == 0) // time and losses, then what the two families have
        assert_in_range(count, 1 + (family_ == AF_INET6 || IN6_IS_ADDR_V4MAPPED(&about.destination) ? 1 : 0), 6);
}

// The next one of the model, or that there is none.
void Victim::receive(Random &random)
{
    Call call(random);
    const int peek = random() % 8 == 0 ? MSG_PEEK : 0;
    const ssize_t n = sock::udp::receive_msg(*socket_, fd_, &call.msg, MSG_DONTWAIT | MSG_TRUNC | peek);
    assert_true(call.is_untouched_behind());
    if (model_.empty()) {
        assert_int_equal(n, -1);
        assert_int_equal(errno, EAGAIN);
        return;
    }
    const Expected &expected = model_.front();
    assert_int_equal(n, expected.payload.size());
    call.check_payload(expected.payload);
    check_name(call.msg, call.name, call.name_room, expected.about);
    check_control(call.msg, expected.about);
    if (peek != 0)
        return;
    held_ -= expected.size();
    model_.pop_front();
}

// While a receive polls: straight to where it wants it, unless others come first. Then it has one, and the next stays
// where it is.
void Victim::take_directly(const Record &record, Random &random)
{
    State &u = state();
    Call call(random);
    Direct direct = {socket_, &call.msg};
    sock::g_engine.arrivals.direct = &direct;
    const std::uint32_t before = u.losses.ours();
    const bool alone = is_for_it(record) && (record.data & kToAfterKernel) == 0 && model_.empty() &&
                       wants_it(record.data, make_expected(record).about);
    if (!alone) {
        take(record);
    } else {
        const Expected expected = make_expected(record);
        assert_int_equal(hand_over(record), 1);
        assert_int_equal(u.losses.ours() - before, expected.about.lost);
        assert_int_equal(direct.length, expected.payload.size());
        assert_memory_equal(call.payload.data(), expected.payload.data(),
                            std::min(call.payload.size(), expected.payload.size()));
        assert_int_equal(hand_over(record), 0);
    }
    assert_int_equal(direct.done, alone);
    sock::g_engine.arrivals.direct = nullptr;
}

void Victim::send_by_kernel(const char *text) const
{
    sockaddr_in6 name = {};
    socklen_t length = sizeof name;
    ::getsockname(fd_, reinterpret_cast<sockaddr *>(&name), &length);
    const int fd = ::socket(family_, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(::sendto(fd, text, strlen(text), 0, reinterpret_cast<sockaddr *>(&name), length), strlen(text));
    ::close(fd);
}

} // namespace vma::test
