// SPDX-License-Identifier: BSD-2-Clause
// What a hostile peer of the same user can have the provider hand over: random and garbled records for real UDP sockets that
// take datagrams, against a model of what each socket must then give. The seed is printed; FUZZ_SEED repeats one.
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabtests/unit.hpp"

#include "compat/src/config/params.hpp"
#include "compat/src/engine/loading.hpp"
#include "compat/src/engine/objects.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/udp/state.hpp"

using namespace vma;
using namespace vma::sock::udp;
using sock::Socket;

namespace {

using Random = std::mt19937_64;

constexpr std::size_t kLongest = 65507;
constexpr std::size_t kRoom = 512; // for all control data there is
constexpr std::uint8_t kUntouched = 0xa5;

Random seeded()
{
    const char *const given = ::getenv("FUZZ_SEED");
    const std::uint64_t seed = given != nullptr ? ::strtoull(given, nullptr, 0) : std::random_device{}();
    print_message("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
    return Random(seed);
}

// What the peer writes. Its memory ends where the record does, so that ASan sees a look beyond.
struct Record {
    std::uint64_t data = 0;
    std::size_t length = 0;
    std::unique_ptr<std::uint8_t[]> bytes{};
};

std::size_t header_of(std::uint64_t data)
{
    return (data >> 52 & 1) != 0 ? 44 : 20;
}

// What it must become.
struct Expected {
    About about;
    std::string payload;
    std::size_t size() const
    {
        return sizeof(Queued) + (payload.size() + sizeof(Queued) - 1) / sizeof(Queued) * sizeof(Queued);
    }
};

class Victim
{
public:
    explicit Victim(int family, bool lifted = true, bool connected = false) : family_(family)
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
        if (!lifted)
            return;
        while (sock::loaded(sock::Part::kProvider) == sock::Loaded::kNotYet)
            sock::load_what_is_wanted(); // waits for a while each time
        const sock::LockGuard guard(sock::g_lift_lock);
        lift_unasked(*socket_, fd_);
        assert_int_not_equal(state().cookie.load(), 0);
    }
    ~Victim()
    {
        sock::forget(fd_);
        ::close(fd_);
    }
    Victim(const Victim &) = delete;
    Victim &operator=(const Victim &) = delete;

    State &state() const { return state_of(*socket_); }
    std::uint64_t data() const { return make_to(socket_->index, state().cookie.load()); }

    void take(const Record &record);
    void take_directly(const Record &record, Random &random);
    void receive(Random &random);
    bool has_nothing() const { return model_.empty(); }
    void send_by_kernel(const char *text) const;
    Socket &socket() const { return *socket_; }
    int fd() const { return fd_; }

private:
    void connect_to_itself();
    void ask_for_everything();
    bool is_for_it(const Record &record) const;
    bool wants_it(std::uint64_t data, const About &about) const;
    Expected make_expected(const Record &record) const;
    void check_name(const msghdr &msg, const sockaddr_in6 &name, std::size_t room, const About &about) const;
    void check_control(const msghdr &msg, const About &about) const;

    int fd_ = -1;
    int family_;
    std::size_t limit_ = 0;
    Socket *socket_ = nullptr;
    std::deque<Expected> model_;
    std::size_t held_ = 0;
};

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
    limit_ = static_cast<std::size_t>(read_option(fd_, SOL_SOCKET, SO_RCVBUF, 0));
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
    const int result = sock::udp::take(&g_main_arrivals, record.bytes.get(), record.length, record.data, nullptr);
    sock::engine_exclude_polling(false);
    assert_in_range(result, 0, 1);
    return result;
}

// What is already handed over: the model follows, and the queue has refused it if and only if it held more than its limit.
void Victim::take(const Record &record)
{
    State &u = state();
    const std::uint32_t before = u.dropped.load();
    assert_int_equal(hand_over(record), 1);
    const std::uint32_t change = u.dropped.load() - before;
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
                          state().dropped.load());
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

// While a receive polls: straight to where it wants it, unless others come first. Then it has one, and the next stays where it is.
void Victim::take_directly(const Record &record, Random &random)
{
    State &u = state();
    Call call(random);
    Direct direct = {socket_, &call.msg};
    g_main_arrivals.direct = &direct;
    const std::uint32_t before = u.dropped.load();
    const bool alone = is_for_it(record) && (record.data & kToAfterKernel) == 0 && model_.empty() &&
                       wants_it(record.data, make_expected(record).about);
    if (!alone) {
        take(record);
    } else {
        const Expected expected = make_expected(record);
        assert_int_equal(hand_over(record), 1);
        assert_int_equal(u.dropped.load() - before, expected.about.lost);
        assert_int_equal(direct.length, expected.payload.size());
        assert_memory_equal(call.payload.data(), expected.payload.data(),
                            std::min(call.payload.size(), expected.payload.size()));
        assert_int_equal(hand_over(record), 0);
    }
    assert_int_equal(direct.done, alone);
    g_main_arrivals.direct = nullptr;
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

// ---- the peer --------------------------------------------------------------------------------------------------------

Record make_random(Random &random, std::uint64_t data, std::size_t length)
{
    Record record = {data, length, std::make_unique<std::uint8_t[]>(length)};
    for (std::size_t i = 0; i < std::min<std::size_t>(length, 128); ++i)
        record.bytes[i] = static_cast<std::uint8_t>(random());
    return record;
}

std::size_t random_length(Random &random)
{
    const std::size_t limits[] = {24, 64, 300, 3000, kLongest};
    return random() % (limits[random() % std::size(limits)] + 1);
}

// As the library writes it, but for what an enemy knows how to change.
Record make_record(Random &random, const Victim &victim)
{
    About about = {};
    about.source = sock::mapped({htonl(INADDR_LOOPBACK)});
    about.destination = about.source;
    about.source_port = victim.state().connected && random() % 2 == 0 ? victim.state().peer_port : htons(4000);
    about.ttl = 64;
    about.interface = random() % 2 == 0 ? 1 : static_cast<std::uint32_t>(random()) & kMostInterface;
    about.lost = random() % 8 == 0 ? ~0U : 0;
    const bool v6 = random() % 2 == 0;
    const std::uint64_t data = victim.data() | (v6 ? kToIpv6 : 0);
    std::uint8_t header[kIpv6Header];
    const std::size_t size = write_header(about, v6, header);
    Record record = make_random(random, data, std::min(size + random_length(random), kLongest));
    std::memcpy(record.bytes.get(), header, size);
    return record;
}

void garble(Random &random, Record &record)
{
    switch (random() % 8) {
    case 0: // for another socket, or for none
        record.data ^= std::uint64_t{1} << random() % 52;
        break;
    case 1: // beyond the pool
        record.data |= std::uint64_t{0xfff00} << 32;
        break;
    case 2:
        record.data &= ~UINT64_C(0xffffffff);
        break;
    case 3: // flags, those too that mean nothing
        record.data ^= random() % 4096 << 52;
        break;
    case 4:
        record = make_random(random, record.data, random() % 48);
        break;
    case 5:
        record = make_random(random, record.data, random_length(random));
        break;
    case 6:
        record = make_random(random, random(), random_length(random));
        break;
    default:
        if (record.length != 0)
            record.bytes[random() % std::min<std::size_t>(record.length, 44)] = static_cast<std::uint8_t>(random());
    }
}

// Each record is for one socket at most, whoever it was made for.
void give_to_all(const std::vector<std::unique_ptr<Victim>> &victims, const Record &record)
{
    Victim *named = victims[0].get();
    for (const auto &victim : victims)
        if ((victim->data() & UINT64_C(0xfffffffffffff)) == (record.data & UINT64_C(0xfffffffffffff)))
            named = victim.get();
    named->take(record);
}

void records_become_what_they_say_or_nothing(void **)
{
    Random random = seeded();
    std::vector<std::unique_ptr<Victim>> victims;
    victims.push_back(std::make_unique<Victim>(AF_INET));
    victims.push_back(std::make_unique<Victim>(AF_INET6));
    victims.push_back(std::make_unique<Victim>(AF_INET, true, true));
    victims.push_back(std::make_unique<Victim>(AF_INET, false)); // takes none
    for (int i = 0; i < 20000; ++i) {
        Victim &victim = *victims[random() % victims.size()];
        Record record = make_record(random, victim);
        for (auto times = random() % 3; times != 0; --times)
            garble(random, record);
        if (random() % 4 == 0 && !victim.state().connected)
            victim.take_directly(record, random);
        else
            give_to_all(victims, record);
        // In turns more and less than comes, so that queues are full and empty.
        for (auto reads = random() % (i / 1000 % 2 == 0 ? 2 : 4); reads != 0; --reads)
            victims[random() % victims.size()]->receive(random);
    }
    for (const auto &victim : victims)
        while (!victim->has_nothing())
            victim->receive(random);
    for (const auto &victim : victims)
        victim->receive(random);
}

// Each says that something came by the kernel before it: a call ends all the same, with one of the two, and both run dry.
void endless_claims_of_order_hold_nobody_up(void **)
{
    Random random = seeded();
    const Victim victim(AF_INET);
    for (int round = 0; round < 200; ++round) {
        const int claims = 1 + static_cast<int>(random() % 20);
        for (int i = 0; i < claims; ++i) {
            Record record = make_random(random, victim.data() | kToAfterKernel, 20 + 7);
            assert_int_equal(hand_over(record), 1);
        }
        const int others = static_cast<int>(random() % 4);
        for (int i = 0; i < others; ++i)
            victim.send_by_kernel("by the kernel");
        for (int i = 0; i < others + claims; ++i) {
            char bytes[64];
            const ssize_t n =
                sock::udp::receive(victim.socket(), victim.fd(), bytes, sizeof bytes, 0, nullptr, nullptr);
            assert_int_equal(n, i < others ? 13 : 7);
        }
    }
}

// The endpoint always has one more; and yet what comes by the kernel is read, with what was there before it before it.
void endless_datagrams_do_not_shut_the_kernel_out(void **)
{
    Random random = seeded();
    const Victim victim(AF_INET);
    const std::int64_t until = sock::now_ns() + 20'000'000'000;
    for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 10; ++i)
            assert_int_equal(hand_over(make_random(random, victim.data(), 20 + 7)), 1);
        victim.send_by_kernel("by the kernel");
        ssize_t n = 0;
        int others = 0;
        for (; n != 13; ++others) {
            assert_true(sock::now_ns() < until);
            assert_int_equal(hand_over(make_random(random, victim.data(), 20 + 7)), 1);
            char bytes[64];
            const int flags = random() % 4 == 0 ? MSG_PEEK : 0;
            n = sock::udp::receive(victim.socket(), victim.fd(), bytes, sizeof bytes, flags, nullptr, nullptr);
            if (flags == MSG_PEEK) {
                char again[64];
                assert_int_equal(
                    sock::udp::receive(victim.socket(), victim.fd(), again, sizeof again, 0, nullptr, nullptr), n);
            }
        }
        assert_true(others > 10);
    }
}

void prepare(char *directory)
{
    if (::mkdtemp(directory) == nullptr)
        ::abort();
    ::setenv("VMA_SHM_DIR", directory, 1);
    ::setenv("VMA_RX_BYTES_MIN", "1", 1);              // queues are as short as SO_RCVBUF
    ::setenv("VMA_PROVIDER", ".libs/libvma-fi.so", 0); // make check runs at the top of the build
    ::setenv("VMA_TRACELEVEL", "warn", 0);
    libc::resolve_real();
    config::load_params();
}

} // namespace

int main()
{
    char directory[] = "/tmp/vma-hostile-XXXXXX";
    prepare(directory);
    static const CMUnitTest tests[] = {
        cmocka_unit_test(records_become_what_they_say_or_nothing),
        cmocka_unit_test(endless_claims_of_order_hold_nobody_up),
        cmocka_unit_test(endless_datagrams_do_not_shut_the_kernel_out),
    };
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    const std::string cleanup = std::string("rm -rf ") + directory;
    return ::system(cleanup.c_str()) != 0 ? 1 : failed;
}
