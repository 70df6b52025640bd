// SPDX-License-Identifier: BSD-2-Clause
// An endpoint that takes the name of one that is gone. The one under test talks with puppets: so the ends of the old
// one come before, between and behind the first words of the new one in all orders, whatever the kernel does.
#include "prov/vma/test/rdm/puppet.hpp"

#include <algorithm>
#include <array>

using namespace vma;
using namespace vma::test;

namespace {

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
