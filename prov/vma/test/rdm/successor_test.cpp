// SPDX-License-Identifier: BSD-2-Clause
// An endpoint that takes the name of one that is gone. The one under test talks with puppets, each of whose steps is
// the test's: its name, the ring that it writes, the one that it reads, and the ends of them. So the ends of the old
// one come before, between and behind the first words of the new one in all orders, whatever the kernel does.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "local/cm/fdmsg.hpp"
#include "local/cm/manager.hpp"
#include "local/ring/reader.hpp"

using namespace vma;
using namespace vma::test;

namespace {

using rdm::Packet;
using rdm::PacketOp;

local::ConnectionManager &manager_of(const Rdm &one)
{
    return local::manager_of(*reinterpret_cast<ofi::Fabric *>(one.fabric));
}

// All that has happened so far is seen to. What has completed by that: no more is seen to before an error was read.
std::vector<Entry> completed(const Rdm &a)
{
    std::vector<Entry> all;
    for (int quiet = 0; quiet < 4; ++quiet) {
        manager_of(a).progress(true);
        for (Entry entry; read_entry(a.cq, entry); quiet = 0)
            all.push_back(entry);
    }
    return all;
}

void settle(const Rdm &a)
{
    REQUIRE(completed(a).empty());
}

Entry only_one(const std::vector<Entry> &completed)
{
    REQUIRE(completed.size() == 1);
    return completed.front();
}

class Puppet
{
public:
    // `home`: whose connection management it uses, which is not that of the endpoint under test.
    Puppet(const Rdm &home, const Rdm &a, std::uint16_t port = 0) : manager_(manager_of(home))
    {
        int error = 0;
        names_ = manager_.directory(&error);
        REQUIRE(names_ && names_->reserve(port, name_, local::NameKind::reliable) == 0);
        port_ = name_.port();
        ofi::Address source;
        ofi::Address target;
        REQUIRE(source.assign(&a.name, sizeof a.name) && target.assign(&a.name, sizeof a.name));
        source.set_port(port_);
        outlet_ = std::make_unique<local::Outlet>(manager_, *names_, source, target,
                                                  names_->name_of(target.port(), local::NameKind::reliable), false,
                                                  met_, nullptr);
        outlet_->introduce_as(name_.incarnation());
        REQUIRE(doorbell_.open() == 0);
    }
    Puppet(const Puppet &) = delete;
    Puppet &operator=(const Puppet &) = delete;
    ~Puppet() { end_writing(); }

    std::uint16_t port() const { return port_; }
    sockaddr_in address(const Rdm &a) const
    {
        sockaddr_in other = a.name;
        other.sin_port = htons(port_);
        return other;
    }

    void say(const Packet &packet, const void *body = nullptr, std::size_t length = 0)
    {
        REQUIRE(outlet_->open() == 0);
        std::byte *const place = outlet_->claim_kept(sizeof packet + length);
        REQUIRE(place != nullptr);
        std::memcpy(place, &packet, sizeof packet);
        if (length != 0)
            std::memcpy(place + sizeof packet, body, length);
        local::Bell bell;
        outlet_->publish(sizeof packet + length, false, 0, bell);
    }
    void greet()
    {
        const rdm::Hello hello{rdm::kHelloMagic, rdm::kHelloVersion, reinterpret_cast<std::uintptr_t>(&nonce_), nonce_};
        say({PacketOp::hello, 0, 0, 0, 0, sizeof hello}, &hello, sizeof hello);
    }
    // What the other offers is read by single copy from now on, or, with an error, not.
    void say_greeted(int error = 0) { say({PacketOp::greeted, 0, static_cast<std::uint16_t>(error), 0, 0, 0}); }
    void say_message(const char (&text)[8], std::uint32_t id)
    {
        say({PacketOp::message, rdm::kTagged | rdm::kAck, 0, id, id, sizeof text}, text, sizeof text);
    }
    void say_offer(const void *memory, std::size_t length, std::uint32_t id)
    {
        const std::uint64_t count = 1;
        const iovec part{const_cast<void *>(memory), length};
        std::array<std::byte, sizeof count + sizeof part> list{};
        std::memcpy(list.data(), &count, sizeof count);
        std::memcpy(list.data() + sizeof count, &part, sizeof part);
        say({PacketOp::offer, rdm::kTagged | rdm::kAck, 0, id, id, length}, list.data(), list.size());
    }

    // The rings that were handed over to it, of which it answers the last one.
    void take_ring(bool answers)
    {
        for (;;) {
            core::UniqueFd socket = core::make_fd(
                [this] { return ::accept4(name_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
            if (!socket)
                break;
            local::RingGreeting greeting{};
            core::UniqueFd fd;
            if (local::receive_packet(socket.get(), &greeting, sizeof greeting, {&fd, 1}) != local::Packet::whole)
                continue; // it has only asked whether it is there
            socket_ = std::move(socket);
            REQUIRE(local::map_shared(fd.get(), sizeof(local::RingMemory), memory_) == 0);
            reader_ = std::make_unique<local::RingReader>();
            reader_->attach(reinterpret_cast<local::RingMemory *>(memory_.data()));
        }
        REQUIRE(reader_ != nullptr);
        const local::RingAnswer answer{local::kGreetingMagic, 0, 0};
        const std::array fds{doorbell_.memory_fd(), doorbell_.wake_fd()};
        REQUIRE(!answers || local::send_packet(socket_.get(), &answer, sizeof answer, fds));
    }
    // All packets that are there.
    std::vector<Packet> hear()
    {
        std::vector<Packet> heard;
        local::Arrived arrived;
        while (reader_->peek(arrived) == local::RingReader::Peek::datagram) {
            Packet packet{};
            REQUIRE(arrived.length >= sizeof packet);
            std::memcpy(&packet, arrived.payload, sizeof packet);
            heard.push_back(packet);
            reader_->consume(arrived);
        }
        reader_->publish();
        return heard;
    }

    void end_name() { name_.reset(); }
    void end_writing()
    {
        const std::lock_guard guard(manager_.mutex());
        outlet_->disconnect();
    }
    void end_reading() { socket_.reset(); }
    void close_ring() { reader_->set_state(local::RingState::closed); }

private:
    local::ConnectionManager &manager_;
    std::shared_ptr<local::Directory> names_;
    local::PortName name_;
    std::uint16_t port_ = 0;
    bool met_ = false;
    std::unique_ptr<local::Outlet> outlet_;
    local::Doorbell doorbell_;
    core::UniqueFd socket_;
    local::Mapping memory_;
    std::unique_ptr<local::RingReader> reader_;
    std::uint64_t nonce_ = 4711;
};

const Packet *find(const std::vector<Packet> &heard, PacketOp op)
{
    const auto found = std::find_if(heard.begin(), heard.end(), [op](const Packet &one) { return one.op == op; });
    return found != heard.end() ? &*found : nullptr;
}

std::vector<std::byte> g_long = pattern(100000, 1);

// Sends what waits for an answer. The number of the operation is in the packet.
void send_answered(Rdm &a, fi_addr_t to, void *context)
{
    const iovec part{const_cast<char *>("waiting"), 8};
    fi_msg_tagged message{};
    message.msg_iov = &part;
    message.iov_count = 1;
    message.addr = to;
    message.tag = 9;
    message.context = context;
    REQUIRE(fi_tsendmsg(a.ep, &message, FI_DELIVERY_COMPLETE) == 0);
}

// The old one and ours have met; it has sent something that waits here for a receive and an answer, and ours something
// that waits there.
struct Met {
    OwnDirectory directory;
    Rdm home;
    Rdm a;
    Puppet old{home, a};
    fi_addr_t to = a.insert(old.address(a));
    int waiting = 0; // context of the operation
    std::uint32_t id = 0;

    explicit Met(bool answers)
    {
        old.greet();
        settle(a);
        old.take_ring(answers);
        const std::vector<Packet> heard = old.hear();
        REQUIRE(find(heard, PacketOp::hello) != nullptr && find(heard, PacketOp::greeted) != nullptr);
        old.say_greeted();
        old.say_message("old one", 7);
        settle(a);
        send_answered(a, to, &waiting);
        const std::vector<Packet> more = old.hear();
        const Packet *const sent = find(more, PacketOp::message);
        REQUIRE(sent != nullptr && (sent->flags & rdm::kAck) != 0);
        id = sent->id;
    }
};

// Ours talks with the new one, of whom nothing of the old one's is taken for its own.
void talks_with(Rdm &a, fi_addr_t to, Puppet &fresh)
{
    fresh.take_ring(true);
    const std::vector<Packet> heard = fresh.hear();
    REQUIRE(find(heard, PacketOp::hello) != nullptr && find(heard, PacketOp::greeted) != nullptr);
    REQUIRE(find(heard, PacketOp::answer) == nullptr);
    fresh.say_greeted();
    settle(a);
    REQUIRE(fi_tsend(a.ep, g_long.data(), g_long.size(), nullptr, to, 3, &g_long) == 0);
    const std::vector<Packet> more = fresh.hear();
    const Packet *const offer = find(more, PacketOp::offer);
    REQUIRE(offer != nullptr && offer->tag == 3);
    fresh.say({PacketOp::answer, 0, 0, offer->id, 0, 0});
    const Entry sent = only_one(completed(a));
    REQUIRE(sent.error.err == 0 && sent.told.op_context == &g_long);
    fresh.say_message("new one", 7); // with the number that the old one's had
    settle(a);
}

// What the old one has sent is received, and not answered to the new one; what that has sent is.
void receives_both(Rdm &a, Puppet &fresh)
{
    char first[8] = {};
    char second[8] = {};
    REQUIRE(fi_trecv(a.ep, first, sizeof first, nullptr, FI_ADDR_UNSPEC, 7, 0, first) == 0);
    REQUIRE(next_of(a.cq).told.op_context == first);
    assert_string_equal(first, "old one");
    settle(a);
    REQUIRE(find(fresh.hear(), PacketOp::answer) == nullptr);
    REQUIRE(fi_trecv(a.ep, second, sizeof second, nullptr, FI_ADDR_UNSPEC, 7, 0, second) == 0);
    REQUIRE(next_of(a.cq).told.op_context == second);
    assert_string_equal(second, "new one");
    const std::vector<Packet> heard = fresh.hear();
    const Packet *const answer = find(heard, PacketOp::answer);
    REQUIRE(answer != nullptr && answer->id == 7);
}

// The old one's two ends and the new one's greeting, in all orders, with and without the old one's answer to our ring.
void in_all_orders(void **)
{
    enum Step { kEndWriting, kEndReading, kGreet };
    for (const bool answers : {true, false}) {
        std::array steps{kEndWriting, kEndReading, kGreet};
        do {
            Met met(answers);
            met.old.end_name();
            Puppet fresh(met.home, met.a, met.old.port());
            std::vector<Entry> ended;
            for (const Step step : steps) {
                if (step == kEndWriting)
                    met.old.end_writing();
                else if (step == kEndReading)
                    met.old.end_reading();
                else
                    fresh.greet();
                for (const Entry &entry : completed(met.a))
                    ended.push_back(entry);
            }
            const Entry end = only_one(ended);
            REQUIRE(end.error.err == FI_ECONNRESET && end.error.op_context == &met.waiting);
            talks_with(met.a, met.to, fresh);
            receives_both(met.a, fresh);
            settle(met.a);
        } while (std::next_permutation(steps.begin(), steps.end()));
    }
}

// All of it comes at once, as to a process that had no processor meanwhile.
void all_at_once(void **)
{
    for (const bool answers : {true, false}) {
        Met met(answers);
        met.old.end_name();
        met.old.end_writing();
        met.old.end_reading();
        Puppet fresh(met.home, met.a, met.old.port());
        fresh.greet();
        REQUIRE(only_one(completed(met.a)).error.err == FI_ECONNRESET);
        talks_with(met.a, met.to, fresh);
        receives_both(met.a, fresh);
    }
}

// The old one's ring is still being read when the new one is there: its answers are for what it was sent, and what it
// says of itself is not said of the new one.
void late_words_of_the_old_one(void **)
{
    Met met(true);
    met.old.end_name();
    Puppet fresh(met.home, met.a, met.old.port());
    fresh.greet();
    settle(met.a);
    talks_with(met.a, met.to, fresh);
    met.old.say_greeted(FI_EACCES);
    send_answered(met.a, met.to, &fresh);
    met.old.say({PacketOp::answer, 0, 0, met.id, 0, 0});
    const Entry answered = only_one(completed(met.a));
    REQUIRE(answered.error.err == 0 && answered.told.op_context == &met.waiting);
    REQUIRE(fi_tsend(met.a.ep, g_long.data(), g_long.size(), nullptr, met.to, 3, &g_long) == 0);
    REQUIRE(find(fresh.hear(), PacketOp::offer) != nullptr);
    met.old.end_writing();
    met.old.end_reading();
    settle(met.a); // what the new one was sent still waits
    receives_both(met.a, fresh);
}

// The old one's ring was handed over, but is taken only when ours has written to the new one already.
void old_ring_is_taken_late(void **)
{
    OwnDirectory directory;
    Rdm home;
    Rdm a;
    Puppet old(home, a);
    const fi_addr_t to = a.insert(old.address(a));
    old.greet();
    old.say_message("old one", 7);
    old.end_name();
    Puppet fresh(home, a, old.port());
    int context = 0;
    send_answered(a, to, &context);
    fresh.take_ring(true);
    REQUIRE(find(fresh.hear(), PacketOp::message) != nullptr);
    settle(a);
    REQUIRE(find(fresh.hear(), PacketOp::greeted) == nullptr); // that one's was not meant for it
    fresh.greet();
    settle(a);
    old.end_writing();
    settle(a);
    const std::vector<Packet> heard = fresh.hear();
    REQUIRE(find(heard, PacketOp::greeted) != nullptr && find(heard, PacketOp::hello) == nullptr);
    fresh.say_message("new one", 7);
    settle(a);
    receives_both(a, fresh);
}

// The first one was gone when it was to be greeted: who comes a moment later is greeted all the same.
void nobody_a_moment_ago(void **)
{
    OwnDirectory directory;
    Rdm home;
    Rdm a;
    Puppet old(home, a);
    old.greet();
    old.end_name();
    settle(a);
    Puppet fresh(home, a, old.port());
    fresh.greet();
    settle(a);
    talks_with(a, a.insert(fresh.address(a)), fresh);
}

// The old one has closed its endpoint: what is sent goes to the new one, and is no error.
void first_send_to_the_new_one(void **)
{
    for (const bool waits : {false, true}) {
        Met met(true);
        met.old.end_name();
        met.old.close_ring();
        Puppet fresh(met.home, met.a, met.old.port());
        int context = 0;
        if (waits)
            send_answered(met.a, met.to, &context);
        else
            REQUIRE(again([&] { return fi_tinject(met.a.ep, "hello", 6, met.to, 5); }, {}) == 0);
        fresh.take_ring(true);
        const std::vector<Packet> heard = fresh.hear();
        REQUIRE(heard.size() == 2 && heard[0].op == PacketOp::hello && heard[1].op == PacketOp::message);
    }
}

// One that was killed has closed nothing, and nobody has looked: its address is inserted anew, for who has it now.
void inserted_anew(void **)
{
    Met met(true);
    met.old.end_name();
    met.old.end_writing();
    met.old.end_reading();
    Puppet fresh(met.home, met.a, met.old.port());
    REQUIRE(fi_av_remove(met.a.av, &met.to, 1, 0) == 0);
    const fi_addr_t to = met.a.insert(fresh.address(met.a));
    REQUIRE(fi_tinject(met.a.ep, "hello", 6, to, 5) == 0);
    fresh.take_ring(true);
    REQUIRE(find(fresh.hear(), PacketOp::message) != nullptr);
}

// What the old one offered is in nobody's memory any more, also not in the new one's.
void offered_by_the_old_one(void **)
{
    Met met(true);
    met.old.say_offer(g_long.data(), g_long.size(), 8);
    settle(met.a);
    met.old.end_name();
    met.old.end_writing();
    met.old.end_reading();
    Puppet fresh(met.home, met.a, met.old.port());
    fresh.greet();
    REQUIRE(only_one(completed(met.a)).error.err == FI_ECONNRESET); // what was sent to the old one
    std::vector<std::byte> got(g_long.size());
    REQUIRE(fi_trecv(met.a.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 8, 0, &got) == 0);
    const Entry end = next_of(met.a.cq);
    REQUIRE(end.error.err == FI_ECONNRESET && end.error.op_context == &got);
    talks_with(met.a, met.to, fresh);
    receives_both(met.a, fresh);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(in_all_orders),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(late_words_of_the_old_one),
        cmocka_unit_test(old_ring_is_taken_late),
        cmocka_unit_test(nobody_a_moment_ago),
        cmocka_unit_test(first_send_to_the_new_one),
        cmocka_unit_test(inserted_anew),
        cmocka_unit_test(offered_by_the_old_one),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
