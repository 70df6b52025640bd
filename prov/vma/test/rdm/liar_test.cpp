// SPDX-License-Identifier: BSD-2-Clause
// A process that writes a ring in the name of another one's endpoint: what it says is its own, and changes nothing
// between that one and ours, whichever of them is heard of first.
#include "prov/vma/test/rdm/puppet.hpp"

#include <sys/socket.h>

using namespace vma;
using namespace vma::test;

namespace {

std::vector<std::byte> g_long = pattern(100000, 1); // the liar has other bytes there

struct Claim {
    sockaddr_in to;
    std::uint16_t port;
    std::uint32_t incarnation;
};

enum class Step : char { greet, refuse, message, offer, answer };
struct Order {
    Step step;
    std::uint32_t id;
};

// In a process of its own, which is there before anything is opened here.
class Liar
{
public:
    Liar()
    {
        int pair[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
        pid_ = child([&] {
            ::close(pair[0]);
            lie(pair[1]);
        });
        ::close(pair[1]);
        socket_ = pair[0];
    }
    Liar(const Liar &) = delete;
    Liar &operator=(const Liar &) = delete;
    ~Liar()
    {
        ::close(socket_);
        ends_well(pid_);
    }

    void claim(const Claim &claim) { REQUIRE(::write(socket_, &claim, sizeof claim) == sizeof claim); }
    void say(Step step, std::uint32_t id = 0)
    {
        const Order order{step, id};
        char done = 0;
        REQUIRE(::write(socket_, &order, sizeof order) == sizeof order && ::read(socket_, &done, 1) == 1);
    }

private:
    static void carry_out(Puppet &puppet, const Order &order)
    {
        switch (order.step) {
        case Step::greet:
            return puppet.greet();
        case Step::refuse:
            return puppet.say_greeted(FI_EACCES);
        case Step::message:
            return puppet.say_message("a liars", order.id);
        case Step::offer:
            return puppet.say_offer(g_long.data(), g_long.size(), order.id);
        case Step::answer:
            return puppet.say({PacketOp::answer, 0, 0, order.id, 0, 0});
        }
    }
    static void lie(int socket)
    {
        g_long = pattern(g_long.size(), 2);
        Claim claim{};
        REQUIRE(::read(socket, &claim, sizeof claim) == sizeof claim);
        const Rdm home;
        Puppet puppet(home, claim.to, claim.port, claim.incarnation);
        for (Order order{}; ::read(socket, &order, sizeof order) == sizeof order;) {
            carry_out(puppet, order);
            REQUIRE(::write(socket, "x", 1) == 1);
        }
    }

    pid_t pid_ = -1;
    int socket_ = -1;
};

void receives(Rdm &a, std::uint64_t tag, std::vector<std::byte> &got)
{
    REQUIRE(fi_trecv(a.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &got) == 0);
    const Entry entry = only_one(completed(a));
    REQUIRE(entry.error.err == 0 && entry.told.op_context == &got);
}

bool hears_nothing_but_hello(Puppet &one)
{
    const std::vector<Packet> heard = one.hear();
    return std::all_of(heard.begin(), heard.end(), [](const Packet &packet) { return packet.op == PacketOp::hello; });
}

void says_all(Rdm &a, Liar &liar)
{
    liar.say(Step::greet);
    liar.say(Step::refuse);
    liar.say(Step::message, 7);
    liar.say(Step::offer, 8);
    settle(a);
}

// What it has sent and offered is taken as what somebody says, but it is not the victim that is told so.
void is_not_answered_to(Puppet &victim, Rdm &a)
{
    victim.take_ring(true);
    REQUIRE(hears_nothing_but_hello(victim));
    std::vector<std::byte> text(8);
    receives(a, 7, text);
    std::vector<std::byte> bytes(g_long.size());
    receives(a, 8, bytes);
    REQUIRE(bytes == pattern(g_long.size(), 2));
    settle(a);
    REQUIRE(hears_nothing_but_hello(victim));
}

void meets(Puppet &victim, Rdm &a)
{
    victim.greet();
    settle(a);
    victim.take_ring(true);
    REQUIRE(find(victim.hear(), PacketOp::greeted) != nullptr);
    victim.say_greeted();
    settle(a);
}

// The victim's memory and answers are its own: long messages to it are offered, and end when it says so.
void talks_with(Puppet &victim, Rdm &a, fi_addr_t to, Liar &liar)
{
    REQUIRE(fi_tsend(a.ep, g_long.data(), g_long.size(), nullptr, to, 3, &g_long) == 0);
    const std::vector<Packet> heard = victim.hear();
    const Packet *const offer = find(heard, PacketOp::offer);
    REQUIRE(offer != nullptr);
    liar.say(Step::answer, offer->id);
    settle(a);
    victim.say({PacketOp::answer, 0, 0, offer->id, 0, 0});
    const Entry sent = only_one(completed(a));
    REQUIRE(sent.error.err == 0 && sent.told.op_context == &g_long);
}

void says_that_it_is_another(void **)
{
    for (const bool liar_first : {true, false}) {
        for (const bool numbered : {true, false}) {
            OwnDirectory directory;
            Liar liar;
            Rdm home;
            Rdm a;
            Puppet victim(home, a);
            const fi_addr_t to = a.insert(victim.address(a));
            liar.claim({a.name, victim.port(), numbered ? victim.incarnation() : 0});
            if (!liar_first)
                meets(victim, a);
            says_all(a, liar);
            is_not_answered_to(victim, a);
            if (liar_first)
                meets(victim, a);
            talks_with(victim, a, to, liar);
        }
    }
}

// What waits for the victim's answer is none of the liar's, also when that one ends.
void goes_before_its_victim(void **)
{
    OwnDirectory directory;
    auto liar = std::make_unique<Liar>();
    Rdm home;
    Rdm a;
    Puppet victim(home, a);
    const fi_addr_t to = a.insert(victim.address(a));
    liar->claim({a.name, victim.port(), victim.incarnation()});
    says_all(a, *liar);
    meets(victim, a);
    REQUIRE(fi_tsend(a.ep, g_long.data(), g_long.size(), nullptr, to, 3, &g_long) == 0);
    liar.reset();
    settle(a);
    victim.end_name();
    victim.end_writing();
    victim.end_reading();
    REQUIRE(only_one(completed(a)).error.err == FI_ECONNRESET);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(says_that_it_is_another),
        cmocka_unit_test(goes_before_its_victim),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
