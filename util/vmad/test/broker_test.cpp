// SPDX-License-Identifier: BSD-2-Clause
// The broker without a kernel: requests of any bytes, answers, rules, and who waits for whom.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "fabtests/seed.hpp"
#include "util/vmad/broker/policy.hpp"
#include "util/vmad/broker/request.hpp"
#include "util/vmad/broker/waiting.hpp"

namespace {

using namespace vma;
using namespace vma::guard;

// ---- requests and answers ------------------------------------------------------------------------------------------

broker::Request request(broker::Kind kind)
{
    return {broker::kMagic, broker::kVersion, sizeof(broker::Request), kind, 77};
}

Asked parsed(const broker::Request &made, unsigned descriptors, std::size_t sent = sizeof(broker::Request))
{
    std::uint32_t id = 0;
    const auto bytes = std::as_bytes(std::span(&made, 1));
    const Asked asked = parse_request(bytes.first(std::min(sent, bytes.size())), sent, descriptors, id);
    if (asked != Asked::kGarbage)
        assert_int_equal(id, 77);
    return asked;
}

void requests(void **)
{
    const broker::Request ask = request(broker::Kind::kAsk);
    const broker::Request cancel = request(broker::Kind::kCancel);
    assert_true(parsed(ask, 1) == Asked::kAsk);
    assert_true(parsed(cancel, 0) == Asked::kCancel);
    for (const unsigned wrong : {0U, 2U, 3U})
        assert_true(parsed(ask, wrong) == Asked::kGarbage);
    assert_true(parsed(cancel, 1) == Asked::kGarbage);
    for (std::size_t sent = 0; sent < sizeof ask; ++sent)
        assert_true(parsed(ask, 1, sent) == Asked::kGarbage);
    assert_true(parsed(ask, 1, sizeof ask + 1) == Asked::kGarbage);
    assert_true(parsed(request(broker::Kind::kAnswer), 0) == Asked::kGarbage);
    broker::Request other = ask;
    other.magic ^= 1;
    assert_true(parsed(other, 1) == Asked::kGarbage);
    other = ask;
    other.length = 17;
    assert_true(parsed(other, 1) == Asked::kGarbage);
    // Of a later version no more is known than that it begins so; it may be longer.
    other.version = broker::kVersion + 1;
    assert_true(parsed(other, 1, 17) == Asked::kOtherVersion);
    assert_true(parsed(other, 3, 17) == Asked::kOtherVersion);
    assert_true(parsed(other, 1) == Asked::kGarbage);
}

// What is taken for a request has all that makes one, whatever the bytes.
void any_bytes(void **)
{
    std::mt19937 numbers(test::seed());
    const auto random = [&] { return static_cast<unsigned>(numbers()); };
    for (int round = 0; round < 200000; ++round) {
        broker::Request made = request(static_cast<broker::Kind>(random() % 4));
        auto *const bytes = reinterpret_cast<unsigned char *>(&made);
        for (unsigned changes = random() % 3; changes > 0; --changes)
            bytes[random() % 12] = static_cast<unsigned char>(random());
        const unsigned descriptors = random() % 4;
        const std::size_t sent = random() % 3 == 0 ? random() % 70000 : sizeof made;
        if (random() % 2 == 0)
            made.length = static_cast<std::uint16_t>(sent);
        const Asked asked = parsed(made, descriptors, sent);
        if (asked == Asked::kGarbage)
            continue;
        assert_int_equal(made.magic, broker::kMagic);
        assert_int_equal(made.length, sent);
        assert_int_equal(asked == Asked::kOtherVersion, made.version != broker::kVersion);
        if (asked != Asked::kOtherVersion)
            assert_true(sent == sizeof made && descriptors == (asked == Asked::kAsk ? 1 : 0));
    }
}

void answers(void **)
{
    Person person{1000, 100, 4711, "/a/b"};
    broker::Answer answer = introduction(5, broker::Role::kAcceptor, person, 9);
    assert_int_equal(answer.header.length, broker::kAnswerBase + 4);
    assert_int_equal(answer.header.id, 5);
    assert_true(answer.result == broker::Result::kMet && answer.role == broker::Role::kAcceptor);
    assert_true(answer.user == 1000 && answer.group == 100 && answer.process == 4711 && answer.pair == 9);
    assert_memory_equal(answer.cgroup, "/a/b", 4);
    person.cgroup = "/" + std::string(5000, 'x');
    answer = introduction(5, broker::Role::kAcceptor, person, 9);
    assert_int_equal(answer.cgroup_length, broker::kMostCgroup);
    assert_int_equal(answer.header.length, broker::kAnswerBase + broker::kMostCgroup);
    answer = refusal(6, broker::Result::kBusy);
    assert_int_equal(answer.header.length, broker::kAnswerBase);
    assert_true(answer.result == broker::Result::kBusy && answer.user == 0 && answer.cgroup_length == 0);
}

// ---- rules ---------------------------------------------------------------------------------------------------------

Person person(uid_t user, const char *cgroup = "/")
{
    return {user, 0, 1, cgroup};
}

void rules(void **)
{
    Policy policy;
    assert_true(policy.allows(person(7), person(7), 80));
    assert_false(policy.allows(person(7), person(8), 80));
    assert_string_equal(policy
                            .parse("# first\n\n"
                                   "broker deny user * with user * port 22\n"
                                   "\tbroker allow user 7 with user 8 port 100-200 # some\r\n"
                                   "broker allow user * cgroup /docker/* with user root cgroup *\n"
                                   "broker deny user 9 with user 9",
                                   "f")
                            .c_str(),
                        "");
    assert_false(policy.allows(person(7), person(7), 22));
    assert_true(policy.allows(person(7), person(8), 100) && policy.allows(person(8), person(7), 200));
    assert_false(policy.allows(person(7), person(8), 99) || policy.allows(person(7), person(8), 201));
    assert_true(policy.allows(person(5, "/docker/a/b"), person(0, "/x"), 1));
    assert_true(policy.allows(person(0, "/x"), person(5, "/docker/a/b"), 1));
    assert_false(policy.allows(person(0, "/docker/a"), person(5, "/x"), 1));
    assert_false(policy.allows(person(9), person(9), 1));
    assert_true(policy.allows(person(10), person(10), 1));
}

// A control group that isn't known is no way around a rule.
void unknown_cgroups(void **)
{
    Policy policy;
    assert_string_equal(
        policy.parse("broker deny user 1 cgroup /a with user *\nbroker allow user 2 cgroup * with user *", "f").c_str(),
        "");
    assert_false(policy.allows(person(1, ""), person(1, "/b"), 1));
    assert_true(policy.allows(person(1, "/b"), person(1, "/b"), 1));
    assert_false(policy.allows(person(2, ""), person(3, ""), 1));
    assert_true(policy.allows(person(2, "/"), person(3, ""), 1));
}

struct Fault {
    const char *text;
    const char *told;
};

void faults(void **)
{
    const Fault all[] = {
        {"x", "f:1: expected \"broker\", found \"x\""},
        {"\n\nbroker", "f:3: expected \"allow\" or \"deny\""},
        {"broker perhaps", "f:1: expected \"allow\" or \"deny\", found \"perhaps\""},
        {"broker deny root", "f:1: expected \"user\", found \"root\""},
        {"broker deny user", "f:1: expected a user's name or number, or *"},
        {"broker deny user nobody_has_this", "f:1: expected a user's name or number, or *, found \"nobody_has_this\""},
        {"broker deny user 4294967295", "f:1: expected a user's name or number, or *, found \"4294967295\""},
        {"broker deny user -1", "f:1: expected a user's name or number, or *, found \"-1\""},
        {"broker deny user 1 user 2", "f:1: expected \"with\", found \"user\""},
        {"broker deny user 1 cgroup a with user 2",
         "f:1: expected a pattern of paths of control groups, which begins with / or *, found \"a\""},
        {"broker deny user 1 with user 2 port", "f:1: expected a port, or two with a - between them, 0 to 65535"},
        {"broker deny user 1 with user 2 port 5-4",
         "f:1: expected a port, or two with a - between them, 0 to 65535, found \"5-4\""},
        {"broker deny user 1 with user 2 port 65536",
         "f:1: expected a port, or two with a - between them, 0 to 65535, found \"65536\""},
        {"broker deny user 1 with user 2 port 1-",
         "f:1: expected a port, or two with a - between them, 0 to 65535, found \"1-\""},
        {"broker deny user 1 with user 2 ports 1",
         "f:1: expected \"cgroup\", \"port\" or the end of the line, found \"ports\""},
        {"broker deny user 1 with user 2 port 1 x", "f:1: expected the end of the line, found \"x\""},
    };
    Policy policy;
    assert_string_equal(policy.parse("broker allow user * with user *", "f").c_str(), "");
    for (const Fault &fault : all) {
        assert_string_equal(policy.parse(fault.text, "f").c_str(), fault.told);
        assert_true(policy.allows(person(1), person(2), 1)); // as it was
    }
    assert_string_equal(policy.read("/proc/none/vmad.conf").c_str(), "/proc/none/vmad.conf: No such file or directory");
}

// ---- who waits -----------------------------------------------------------------------------------------------------

using Other = PairedEnd::Other;

// The question of client `client` for an end that sends from `sent` on.
Question question(std::uint64_t client, std::uint32_t sent, std::uint32_t received, Other other = Other::kHere)
{
    Question made;
    made.client = client;
    made.id = sent;
    made.user = static_cast<uid_t>(client);
    made.end.numbers = {sent, received};
    made.end.other = other;
    return made;
}

constexpr Waiting::Limits kLimits{4, 2, 1000, 10};

void meeting(void **)
{
    Waiting waiting(kLimits);
    Question out;
    assert_true(waiting.take(question(1, 10, 11), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(2, 20, 21), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(3, 11, 10), 0, out) == Waiting::Taken::kMeets);
    assert_true(out.client == 1 && out.id == 10);
    assert_int_equal(waiting.size(), 1);
    assert_int_equal(waiting.size_of(1), 0);
    // Both of one process, and one whose other end was not there yet.
    assert_true(waiting.take(question(1, 30, 31, Other::kNotHere), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(1, 31, 30, Other::kUnknown), 0, out) == Waiting::Taken::kMeets);
    assert_int_equal(out.id, 30);
}

// One number alone is nobody's, nor are both the same way round.
void strangers(void **)
{
    Waiting waiting({10, 10, 1000, 10});
    Question out;
    assert_true(waiting.take(question(1, 10, 11), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(2, 12, 10), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(2, 11, 12), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(3, 40, 40), 0, out) == Waiting::Taken::kWaits);
    assert_int_equal(waiting.size(), 4);
    assert_false(waiting.remove({11, 10}, out));
    assert_true(waiting.remove({10, 11}, out) && out.client == 1);
    assert_false(waiting.remove({10, 11}, out));
}

void times(void **)
{
    Waiting waiting(kLimits);
    Question out;
    assert_true(waiting.due() == inet::kNever);
    assert_true(waiting.take(question(1, 10, 11), 5, out) == Waiting::Taken::kWaits);
    assert_int_equal(waiting.due(), 1005);
    assert_true(waiting.take(question(2, 20, 21, Other::kNotHere), 7, out) == Waiting::Taken::kWaits);
    assert_int_equal(waiting.due(), 17);
    assert_false(waiting.expire(16, out));
    assert_true(waiting.expire(17, out) && out.id == 20 && out.end.other == Other::kNotHere);
    assert_false(waiting.expire(1004, out));
    assert_true(waiting.expire(1005, out) && out.id == 10);
    assert_true(waiting.due() == inet::kNever && waiting.size() == 0);
}

void limits(void **)
{
    Waiting waiting(kLimits);
    Question out;
    assert_true(waiting.take(question(1, 10, 11), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(1, 20, 21, Other::kNotHere), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(1, 30, 31), 0, out) == Waiting::Taken::kFull);
    assert_true(waiting.take(question(1, 11, 10), 0, out) == Waiting::Taken::kMeets); // takes no place
    assert_true(waiting.take(question(1, 30, 31), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(2, 40, 41), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(2, 50, 51), 0, out) == Waiting::Taken::kWaits);
    assert_true(waiting.take(question(3, 60, 61), 0, out) == Waiting::Taken::kFull);
    assert_true(waiting.remove({20, 21}, out));
    assert_true(waiting.take(question(3, 60, 61), 0, out) == Waiting::Taken::kWaits);
}

// An entry that two sockets have written, or that is read while one writes, is neither's.
void torn_entries(void **)
{
    EndEntry a;
    a.cookie = 0x123456789;
    a.numbers = {0xffffffff, 0x80000000};
    a.port = 80;
    a.role = PairRole::kAcceptor;
    a.seal();
    assert_true(a.is_sound());
    EndEntry b = a;
    b.cookie += 1 << 20;
    b.numbers = {7, 9};
    b.port = 443;
    b.seal();
    constexpr std::size_t kWords = sizeof(EndEntry) / sizeof(std::uint64_t);
    for (unsigned of_b = 1; of_b + 1 < 1U << kWords; ++of_b) {
        EndEntry torn = a;
        for (std::size_t word = 0; word < kWords; ++word) {
            if ((of_b >> word & 1) != 0)
                std::memcpy(reinterpret_cast<std::uint64_t *>(&torn) + word,
                            reinterpret_cast<std::uint64_t *>(&b) + word, sizeof(std::uint64_t));
        }
        assert_false(torn.is_sound());
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(requests), cmocka_unit_test(any_bytes),       cmocka_unit_test(answers),
        cmocka_unit_test(rules),    cmocka_unit_test(unknown_cgroups), cmocka_unit_test(faults),
        cmocka_unit_test(meeting),  cmocka_unit_test(strangers),       cmocka_unit_test(times),
        cmocka_unit_test(limits),   cmocka_unit_test(torn_entries),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
