// SPDX-License-Identifier: BSD-2-Clause
// A peer's memory that is another program's by the time it is copied from or to. The peer becomes this program anew, by
// execve(2), which keeps the number of the process as one that is given away would, and has other bytes at the places
// that it had named.
#include "prov/vma/test/rdm/pair.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kLength = 65536;
// Nothing else is there in any run: it lies behind where programs are loaded, and ThreadSanitizer lets them have it.
constexpr std::uintptr_t kPlace = 0x5660'0000'0000;
constexpr char kTheirs = 1;
constexpr char kImpostors = 2;
constexpr char kOurs = 3;

char *take_place(char filled_with)
{
    void *const place = ::mmap(reinterpret_cast<void *>(kPlace), kLength, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(place == reinterpret_cast<void *>(kPlace));
    std::memset(place, filled_with, kLength);
    return static_cast<char *>(place);
}

void say(int socket)
{
    REQUIRE(::write(socket, "x", 1) == 1);
}

void wait_for_word(int socket)
{
    char word = 0;
    REQUIRE(::read(socket, &word, 1) == 1);
}

// The other program: once told to, it says whether anything was done to its memory.
int be_impostor(int socket)
{
    const char *const place = take_place(kImpostors);
    say(socket);
    wait_for_word(socket);
    const char same = std::all_of(place, place + kLength, [](char byte) { return byte == kImpostors; });
    REQUIRE(::write(socket, &same, 1) == 1);
    return 0;
}

// A child with an endpoint, which does something and then becomes an impostor.
struct Other {
    pid_t pid = -1;
    int socket = -1;
    sockaddr_in name{};

    template <typename Action> explicit Other(const Action &action)
    {
        int pair[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pid = child([&] {
            ::close(pair[0]);
            Rdm me;
            sockaddr_in other{};
            REQUIRE(::write(pair[1], &me.name, sizeof me.name) == sizeof me.name);
            REQUIRE(::read(pair[1], &other, sizeof other) == sizeof other);
            action(me, me.insert(other), take_place(kTheirs), pair[1]);
            say(pair[1]);
            wait_for_word(pair[1]);
            const std::string number = std::to_string(pair[1]);
            ::execl("/proc/self/exe", "impostor_test", number.c_str(), nullptr);
            std::abort();
        });
        ::close(pair[1]);
        socket = pair[0];
        REQUIRE(::read(socket, &name, sizeof name) == sizeof name);
    }
    Other(const Other &) = delete;
    Other &operator=(const Other &) = delete;
    ~Other() { ::close(socket); }

    fi_addr_t meet(Rdm &a) const
    {
        REQUIRE(::write(socket, &a.name, sizeof a.name) == sizeof a.name);
        return a.insert(name);
    }
    void read_until_it_speaks(const Rdm &a) const
    {
        char word = 0;
        while (::recv(socket, &word, 1, MSG_DONTWAIT) != 1)
            REQUIRE(errno == EAGAIN && fi_cq_read(a.cq, nullptr, 0) <= 0);
    }
    void become_impostor() const
    {
        say(socket);
        wait_for_word(socket);
    }
    bool is_untouched() const
    {
        char same = 0;
        say(socket);
        REQUIRE(::read(socket, &same, 1) == 1);
        ends_well(pid);
        return same == 1;
    }
};

bool is_here(const Rdm &a)
{
    fi_msg_tagged wanted{};
    wanted.addr = FI_ADDR_UNSPEC;
    wanted.tag = 1;
    REQUIRE(fi_trecvmsg(a.ep, &wanted, FI_PEEK) == 0);
    return next_of(a.cq).error.err == 0;
}

// What it had offered.
void reads_no_impostors_memory(void **)
{
    OwnDirectory directory;
    const Other other([](Rdm &me, fi_addr_t to, char *place, int) {
        REQUIRE(again([&] { return fi_tsend(me.ep, place, kLength, nullptr, to, 1, nullptr); }, {me.cq}) == 0);
    });
    Rdm a;
    other.meet(a);
    other.read_until_it_speaks(a);
    while (!is_here(a)) {
    }
    other.become_impostor();
    std::vector<char> got(kLength);
    REQUIRE(fi_trecv(a.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &got) == 0);
    const Entry end = next_of(a.cq);
    assert_int_equal(end.error.err, FI_ECONNRESET);
    assert_ptr_equal(end.error.op_context, &got);
    REQUIRE(other.is_untouched());
}

// Where it wanted to have what it reads.
void writes_no_impostors_memory(void **)
{
    OwnDirectory directory;
    const Other other([](Rdm &me, fi_addr_t to, char *place, int socket) {
        REQUIRE(again([&] { return fi_read(me.ep, place, 8, nullptr, to, 0, 1, nullptr); }, {me.cq}) == 0);
        REQUIRE(next_of(me.cq).error.err == 0);
        // This one stays in the ring: ours reads nothing until we are an impostor.
        say(socket);
        wait_for_word(socket);
        REQUIRE(again([&] { return fi_read(me.ep, place, kLength, nullptr, to, 0, 1, nullptr); }, {me.cq}) == 0);
    });
    Rdm a;
    std::vector<char> memory(kLength, kOurs);
    fid_mr *const mr = a.expose(memory.data(), memory.size(), 1);
    other.meet(a);
    other.read_until_it_speaks(a);
    say(other.socket);
    wait_for_word(other.socket);
    other.become_impostor();
    REQUIRE(no_entry(a.cq));
    REQUIRE(other.is_untouched());
    REQUIRE(fi_close(&mr->fid) == 0);
}

// An endpoint that is closed with a long message under way: its buffer is the program's again.
void reads_nothing_of_a_closed_one(void **)
{
    OwnDirectory directory;
    Rdm a;
    std::vector<char> bytes(kLength, kTheirs);
    std::optional<Rdm> b(std::in_place);
    const fi_addr_t to_a = to(*b, a);
    REQUIRE(again([&] { return fi_tinject(b->ep, "met", 3, to_a, 2); }, {a.cq, b->cq}) == 0);
    while (fi_tsend(b->ep, bytes.data(), bytes.size(), nullptr, to_a, 1, nullptr) == -FI_EAGAIN)
        REQUIRE(no_entry(a.cq) && no_entry(b->cq));
    b.reset();
    std::fill(bytes.begin(), bytes.end(), kImpostors);
    std::vector<char> got(kLength);
    REQUIRE(fi_trecv(a.ep, got.data(), got.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &got) == 0);
    const Entry end = next_of(a.cq);
    assert_int_equal(end.error.err, FI_ECONNRESET);
    assert_ptr_equal(end.error.op_context, &got);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2)
        return be_impostor(std::atoi(argv[1]));
    const CMUnitTest tests[] = {
        cmocka_unit_test(reads_no_impostors_memory),
        cmocka_unit_test(writes_no_impostors_memory),
        cmocka_unit_test(reads_nothing_of_a_closed_one),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
