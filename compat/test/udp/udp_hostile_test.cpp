// SPDX-License-Identifier: BSD-2-Clause
// What a hostile peer of the same user can have the provider hand over: random and garbled records for real UDP sockets
// that take datagrams, against a model of what each socket must then give. The seed is printed; FUZZ_SEED repeats one.
#include <netinet/in.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/test/udp/udp_victim.hpp"
#include "fabtests/patience.hpp"

using namespace vma;
using namespace vma::test;

namespace {

Random seeded()
{
    const char *const given = ::getenv("FUZZ_SEED");
    const std::uint64_t seed = given != nullptr ? ::strtoull(given, nullptr, 0) : std::random_device{}();
    print_message("FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed));
    return Random(seed);
}

// ---- the peer -------------------------------------------------------------------------------------------------------

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

// Each says that something came by the kernel before it: a call ends all the same, with one of the two, and both run
// dry.
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
    const std::int64_t until = sock::now_ns() + patience::nanoseconds();
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
