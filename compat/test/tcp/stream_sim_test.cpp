// SPDX-License-Identifier: BSD-2-Clause
// Two sockets over a simulated kernel and a simulated provider: every order of events to some depth, then random ones
// by seed. Each stream of bytes arrives whole, in order and once, up to an end that somebody has made, and nobody waits
// for what is there. Then the simulation does something wrong, and that has to be found. VMA_TEST_SEED repeats a run;
// VMA_TEST_STEPS is how many random steps are made.
#include "fabtests/unit.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "compat/src/config/params.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/test/tcp/stream_sim.hpp"
#include "fabtests/seed.hpp"

using namespace vma;
using namespace vma::test;
using namespace vma::test::sim;

namespace {

// SplitMix64.
class Random
{
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint32_t below(std::uint32_t limit)
    {
        std::uint64_t word = state_ += 0x9e3779b97f4a7c15;
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
        word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
        word ^= word >> 31;
        return static_cast<std::uint32_t>((word >> 32) * limit >> 32);
    }

private:
    std::uint64_t state_;
};

std::string print(const std::vector<Step> &steps)
{
    std::string text;
    for (const Step &step : steps) {
        text += step.who == 0 ? " A:" : " B:";
        text += name_of(step.what);
        if (step.size != 0)
            text += "(" + std::to_string(step.size) + ")";
    }
    return text;
}

// ---- random schedules

struct Weight {
    Do what;
    std::uint32_t weight;
};
constexpr Weight kWeights[] = {
    {Do::kSend, 16},    {Do::kReceive, 16},    {Do::kPeek, 3},    {Do::kAwaitInput, 4}, {Do::kAwaitRoom, 3},
    {Do::kDeliver, 24}, {Do::kArrive, 24},     {Do::kTick, 6},    {Do::kMove, 16},      {Do::kKernelNews, 8},
    {Do::kDown, 6},     {Do::kConnected, 10},  {Do::kOffload, 3}, {Do::kOtherSends, 2}, {Do::kSpill, 2},
    {Do::kLeave, 1},    {Do::kLeaveForAll, 1}, {Do::kGiveUp, 1},  {Do::kClose, 8},      {Do::kShut, 1},
    {Do::kDie, 1},
};
constexpr std::uint32_t kRareShare = 6; // these happen in one choice of so many

constexpr std::uint32_t sum_of_weights()
{
    std::uint32_t sum = 0;
    for (const Weight &weight : kWeights)
        sum += weight.weight;
    return sum;
}

Step choose(Random &random)
{
    std::uint32_t at = random.below(sum_of_weights());
    for (const Weight &weight : kWeights) {
        if (at >= weight.weight) {
            at -= weight.weight;
            continue;
        }
        Step step = {weight.what, static_cast<std::uint8_t>(random.below(2)), 0};
        if (step.what == Do::kSend || step.what == Do::kReceive || step.what == Do::kPeek)
            step.size = static_cast<std::uint8_t>(1 + random.below(random.below(4) == 0 ? 12 : 4));
        if ((step.what == Do::kShut || step.what == Do::kDie || step.what == Do::kOtherSends) &&
            random.below(kRareShare) != 0)
            step.what = Do::kMove;
        return step;
    }
    return {Do::kTick, 0, 0};
}

struct Run {
    Setting setting;
    std::vector<Step> steps; // that were made
};

void start(const Setting &setting)
{
    begin(setting);
    act({Do::kOffload, 0, 0});
}

// What is found, nullptr: nothing.
const char *run_at_random(Random &random, Fault fault, bool between_hosts, Run &run)
{
    constexpr std::uint32_t kMostSteps = 160;
    run.setting.send_room = 1 + random.below(8);
    run.setting.receive_room = 1 + random.below(8);
    run.setting.room_refused = random.below(8) == 0;
    run.setting.between_hosts = between_hosts;
    run.setting.by_edges = random.below(2) == 0;
    run.setting.fault = fault;
    start(run.setting);
    run.steps.clear();
    for (std::uint32_t left = random.below(kMostSteps); left != 0 && g_world.found == nullptr; --left) {
        const Step step = choose(random);
        if (!can(step))
            continue;
        run.steps.push_back(step);
        act(step);
    }
    if (g_world.found == nullptr)
        conclude();
    return g_world.found;
}

const char *run_again(const Run &run)
{
    start(run.setting);
    for (const Step &step : run.steps)
        if (g_world.found == nullptr && can(step))
            act(step);
    if (g_world.found == nullptr)
        conclude();
    return g_world.found;
}

// The same without the steps that it does not need.
void shorten(Run &run)
{
    for (bool shorter = true; shorter;) {
        shorter = false;
        for (std::size_t at = run.steps.size(); at-- > 0;) {
            Run less = run;
            less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(at));
            if (run_again(less) == nullptr)
                continue;
            run = less;
            shorter = true;
        }
    }
}

[[noreturn]] void tell(Run run)
{
    shorten(run);
    const char *const found = run_again(run);
    print_error("%s, buffers of %u and %u bytes%s%s:%s\n", found, run.setting.send_room, run.setting.receive_room,
                run.setting.room_refused ? " for good" : "", run.setting.by_edges ? ", in an epoll set" : "",
                print(run.steps).c_str());
    UNIT_FAIL("a schedule that goes wrong");
    abort();
}

std::uint64_t random_steps()
{
    constexpr std::uint64_t kSteps = 2'000'000;
    const char *const given = ::getenv("VMA_TEST_STEPS");
    return given != nullptr ? ::strtoull(given, nullptr, 0) : kSteps;
}

void make_random_schedules(bool between_hosts)
{
    Random random(seed());
    Run run;
    std::uint64_t offloads = 0;
    std::uint64_t spans = 0;
    std::uint64_t bytes = 0;
    std::uint64_t schedules = 0;
    const std::uint64_t steps = random_steps();
    for (std::uint64_t made = 0; made < steps; made += run.steps.size() + 1) {
        if (run_at_random(random, Fault::kNone, between_hosts, run) != nullptr)
            tell(run);
        ++schedules;
        offloads += g_world.offloads;
        spans += g_world.spans;
        bytes += g_world.programs[0].received + g_world.programs[1].received;
    }
    print_message("# %llu schedules, %llu endpoints, %llu spans, %llu bytes\n",
                  static_cast<unsigned long long>(schedules), static_cast<unsigned long long>(offloads),
                  static_cast<unsigned long long>(spans), static_cast<unsigned long long>(bytes));
    assert_true(spans > schedules / 2);
}

void random_schedules(void **)
{
    make_random_schedules(false);
}

void random_schedules_between_hosts(void **)
{
    make_random_schedules(true);
}

// ---- every schedule

// The worlds that were seen, with how many steps were made from there.
class Seen
{
public:
    bool add(std::uint64_t hash, unsigned left) // false: it was, with as many
    {
        const std::uint64_t word = (hash | kLeft) - kLeft + left + 1;
        for (std::size_t at = hash >> (64 - kBits);; at = (at + 1) % words_.size()) {
            if (words_[at] == 0) {
                ++count_;
                assert_true(count_ < words_.size() / 4 * 3);
                words_[at] = word;
                return true;
            }
            if ((words_[at] | kLeft) != (word | kLeft))
                continue;
            const bool more = words_[at] < word;
            words_[at] = more ? word : words_[at];
            return more;
        }
    }
    std::size_t count() const { return count_; }

private:
    static constexpr unsigned kBits = 20;
    static constexpr std::uint64_t kLeft = 63;
    std::size_t count_ = 0;
    std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(std::size_t{1} << kBits);
};

struct Search {
    const char *name;
    std::vector<Step> first; // from which all begin
    std::vector<Step> steps; // that are chosen from
    unsigned depth;
    Fault wrong; // that it finds
    bool between_hosts = false;
};

class Searcher
{
public:
    explicit Searcher(const Search &search) : search_(search), worlds_(new World[search.depth + 1]) {}
    const char *run(Fault fault) // what is found; nullptr: nothing
    {
        Setting setting;
        setting.send_room = 4;
        setting.receive_room = 2;
        setting.between_hosts = search_.between_hosts;
        setting.fault = fault;
        start(setting);
        for (const Step &step : search_.first) {
            if (g_world.found == nullptr && can(step))
                act(step);
        }
        if (g_world.found == nullptr)
            go_on(0);
        return g_world.found;
    }
    void tell() const
    {
        print_message("# %s: %zu states, %llu ends%s%s\n", search_.name, seen_.count(),
                      static_cast<unsigned long long>(ends_), g_world.found != nullptr ? ", " : "",
                      g_world.found != nullptr ? g_world.found : "");
        if (g_world.found != nullptr)
            print_message("# %s |%s\n", print(search_.first).c_str(), print(made_).c_str());
    }

private:
    void go_on(unsigned depth) // NOLINT(misc-no-recursion)
    {
        World &here = worlds_[depth];
        save(here);
        if (!seen_.add(hash_of(here), search_.depth - depth))
            return;
        if (depth == search_.depth) {
            ++ends_;
            conclude();
            return;
        }
        bool any = false;
        for (const Step &step : search_.steps) {
            if (!can(step))
                continue;
            any = true;
            made_.push_back(step);
            act(step);
            if (g_world.found == nullptr)
                go_on(depth + 1);
            if (g_world.found != nullptr)
                return;
            made_.pop_back();
            restore(here);
        }
        if (!any)
            conclude();
    }

    const Search &search_;
    std::unique_ptr<World[]> worlds_;
    Seen seen_;
    std::vector<Step> made_;
    std::uint64_t ends_ = 0;
};

constexpr std::uint8_t kA = 0;
constexpr std::uint8_t kB = 1;

// Both have an endpoint, and know of READY.
std::vector<Step> both_connected()
{
    return {{Do::kConnected, kA, 0}, {Do::kConnected, kB, 0}, {Do::kDeliver, kA, 0}, {Do::kDeliver, kB, 0}};
}

std::vector<Step> with(std::vector<Step> steps, std::initializer_list<Step> more)
{
    steps.insert(steps.end(), more);
    return steps;
}

// A sends, B reads.
std::vector<Step> stream()
{
    return {{Do::kSend, kA, 3},       {Do::kReceive, kB, 2}, {Do::kDeliver, kA, 0},
            {Do::kDeliver, kB, 0},    {Do::kMove, kA, 0},    {Do::kAwaitInput, kB, 0},
            {Do::kKernelNews, kB, 0}, {Do::kTick, kA, 0},    {Do::kTick, kB, 0}};
}

std::vector<Search> all_searches()
{
    const auto in_span = with(both_connected(), {{Do::kSend, kA, 3}, {Do::kDeliver, kB, 0}, {Do::kDeliver, kB, 0}});
    const auto full = with(in_span, {{Do::kSend, kA, 5}, {Do::kSpill, kA, 0}, {Do::kSend, kA, 3}});
    return {
        {"connecting",
         {{Do::kSend, kA, 3}},
         with(stream(), {{Do::kConnected, kA, 0}, {Do::kConnected, kB, 0}, {Do::kSpill, kA, 0}}),
         13,
         Fault::kEarlyStart},
        {"spans", both_connected(), with(stream(), {{Do::kSpill, kA, 0}, {Do::kAwaitRoom, kA, 0}}), 13,
         Fault::kReadyTwice},
        {"the reader leaves", in_span,
         with(stream(), {{Do::kLeave, kB, 0},
                         {Do::kLeaveForAll, kB, 0},
                         {Do::kGiveUp, kB, 0},
                         {Do::kClose, kB, 0},
                         {Do::kDown, kA, 0}}),
         12, Fault::kReturnLess},
        {"the writer ends", full,
         with(stream(),
              {{Do::kShut, kA, 0}, {Do::kDie, kA, 0}, {Do::kLeave, kA, 0}, {Do::kClose, kA, 0}, {Do::kDown, kB, 0}}),
         12, Fault::kEarlyFin},
        {"a reader that leaves, a writer that ends", full,
         with(stream(), {{Do::kLeaveForAll, kB, 0},
                         {Do::kGiveUp, kB, 0},
                         {Do::kClose, kB, 0},
                         {Do::kShut, kA, 0},
                         {Do::kDie, kA, 0},
                         {Do::kDown, kA, 0},
                         {Do::kDown, kB, 0}}),
         10, Fault::kClaimIgnored},
        {"connecting to another host",
         {},
         with(stream(), {{Do::kConnected, kA, 0},
                         {Do::kConnected, kB, 0},
                         {Do::kArrive, kA, 0},
                         {Do::kArrive, kB, 0},
                         {Do::kLeave, kA, 0},
                         {Do::kClose, kA, 0},
                         {Do::kDown, kB, 0}}),
         10,
         Fault::kNoHere,
         true},
        {"a writer on another host ends",
         {{Do::kConnected, kA, 0}, {Do::kConnected, kB, 0}, {Do::kArrive, kA, 0}, {Do::kArrive, kB, 0}},
         with(stream(), {{Do::kArrive, kA, 0},
                         {Do::kArrive, kB, 0},
                         {Do::kSpill, kA, 0},
                         {Do::kShut, kA, 0},
                         {Do::kDie, kA, 0},
                         {Do::kDown, kB, 0}}),
         10,
         Fault::kNoFinal,
         true},
    };
}

void every_schedule(void **)
{
    for (const Search &search : all_searches()) {
        Searcher searcher(search);
        const bool right = searcher.run(Fault::kNone) == nullptr;
        searcher.tell();
        assert_true(right);
    }
}

void every_schedule_of_a_fault(void **)
{
    for (const Search &search : all_searches()) {
        Searcher searcher(search);
        const bool found = searcher.run(search.wrong) != nullptr;
        searcher.tell();
        assert_true(found);
    }
}

// ---- what the simulation does wrong is found

struct Wrong {
    Fault fault;
    const char *name;
};
constexpr Wrong kWrong[] = {
    {Fault::kCountOff, "the kernel counts a byte more than was sent"},
    {Fault::kKernelDrops, "a full kernel says that it took all"},
    {Fault::kEarlyFin, "the kernel tells the end before the last bytes"},
    {Fault::kNoQueued, "the kernel tells of no bytes"},
    {Fault::kEarlyStart, "START(K - 1)"},
    {Fault::kLateStart, "START is told behind the span's first bytes"},
    {Fault::kMoreCredit, "CREDIT of more than was read"},
    {Fault::kNoCredit, "no CREDIT"},
    {Fault::kEndLost, "no END"},
    {Fault::kEndTwice, "END twice"},
    {Fault::kEndMore, "END(E + 1)"},
    {Fault::kReadyTwice, "READY twice"},
    {Fault::kReturnLess, "RETURN(C - 1)"},
    {Fault::kDataTwice, "a completion is told twice"},
    {Fault::kReordered, "END and what comes before it change places"},
    {Fault::kCutLate, "a write behind a cut succeeds"},
    {Fault::kClaimIgnored, "what the peer has kept is sent again"},
    {Fault::kNoNotify, "watchers are not told"},
    {Fault::kDownLost, "nobody tells that the endpoint has ended"},
    {Fault::kPollLies, "poll() does not tell of the kernel's end"},
    {Fault::kNoSeen, "no SEEN"},
    {Fault::kNoFinal, "no FINAL"},
    {Fault::kNoHere, "no HERE"},
};
static_assert(std::size(kWrong) + 1 == static_cast<std::size_t>(Fault::kCount));

void is_found(void **state)
{
    constexpr unsigned kSchedules = 100'000;
    const auto &wrong = *static_cast<const Wrong *>(*state);
    Random random(1);
    Run run;
    for (unsigned i = 1; i <= kSchedules; ++i) {
        const char *const found = run_at_random(random, wrong.fault, wrong.fault >= Fault::kNoSeen, run);
        if (found == nullptr)
            continue;
        print_message("# %s: %s, schedule %u\n", wrong.name, found, i);
        return;
    }
    UNIT_FAIL(wrong.name);
}

} // namespace

int main()
{
    ::setenv("VMA_TRACELEVEL", "error", 0); // resets are made on purpose
    libc::resolve_real();
    config::load_params();
    install_kernel();
    libc::catch_faults();
    constexpr std::size_t kRight = 4;
    CMUnitTest tests[kRight + std::size(kWrong)] = {
        cmocka_unit_test(every_schedule), cmocka_unit_test(every_schedule_of_a_fault),
        cmocka_unit_test(random_schedules), cmocka_unit_test(random_schedules_between_hosts)};
    for (std::size_t i = 0; i < std::size(kWrong); ++i)
        tests[kRight + i] = {kWrong[i].name, is_found, nullptr, nullptr, const_cast<Wrong *>(&kWrong[i])};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
