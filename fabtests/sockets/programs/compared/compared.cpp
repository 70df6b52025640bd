// SPDX-License-Identifier: BSD-2-Clause
// Random calls on sockets, made over the kernel and over the library at the same time: each must return the same. A
// script that differs is made as short as it gets. See doc/checks.md.
#include "fabtests/sockets/programs/compared/actor.hpp"
#include "fabtests/sockets/programs/compared/chooser.hpp"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <algorithm>
#include <memory>

namespace compared {

namespace {

struct Found {
    Script script;
    std::vector<std::string> results;
    std::string difference;
    Op where{};
};

struct Counts {
    std::array<long, static_cast<std::size_t>(Op::kCount)> made{};
    long waited = 0;
};

std::string result_of(const Runner &runner, const Outcome &outcome)
{
    if (runner.differs())
        return runner.difference();
    return !outcome.done                        ? "not done"
           : outcome.answer == Answer::kReplied ? text_of(outcome.reply)
                                                : name_of(outcome.answer);
}

void print(const Step &step, const std::string &result)
{
    ::fprintf(stderr, "  %s = %s\n", text_of(step).c_str(), result.c_str());
}

Found explore(const char *preload, std::uint64_t seed, int steps, const Choice &choice, Counts &counts)
{
    Runner runner(preload);
    Chooser chooser(seed, choice);
    Model model;
    for (int actor = 0; actor < 2; ++actor) {
        model.processes[actor];
        model.actors[actor] = actor;
    }
    Found found;
    while (static_cast<int>(found.script.size()) < steps && !runner.differs()) {
        const Step step = chooser.next(runner, model);
        if (step.actor < 0)
            break; // all of them wait
        found.script.push_back(step);
        const Outcome outcome = runner.run(step);
        found.results.push_back(result_of(runner, outcome));
        counts.made[static_cast<std::size_t>(step.command.op)] += 1;
        counts.waited += outcome.answer == Answer::kAsleep ? 1 : 0;
        model.follow(step, outcome);
    }
    found.difference = runner.difference();
    found.where = runner.where();
    return found;
}

// Whether that call differs again.
bool repeat(const char *preload, const Script &script, Op where, bool prints)
{
    Runner runner(preload);
    for (const Step &step : script) {
        const Outcome outcome = runner.run(step);
        if (prints && outcome.done)
            print(step, result_of(runner, outcome));
        if (runner.differs())
            return runner.where() == where;
    }
    return false;
}

// Leaves out what is not needed for there to be a difference, by halves, quarters, and so on.
Script shorten(const char *preload, Script script, Op where)
{
    for (std::size_t piece = script.size() / 2; piece > 0; piece = piece > 1 ? piece / 2 : 0)
        for (std::size_t at = 0; at < script.size();) {
            Script without = script;
            const auto from = without.begin() + static_cast<std::ptrdiff_t>(at);
            without.erase(from, from + static_cast<std::ptrdiff_t>(std::min(piece, script.size() - at)));
            if (repeat(preload, without, where, false))
                script = std::move(without);
            else
                at += piece;
        }
    return script;
}

// Of what was not so again.
void print_last(const Found &found)
{
    constexpr std::size_t kLast = 60;
    ::fprintf(stderr, "  (not so when the steps were repeated)\n");
    for (std::size_t i = found.script.size() - std::min(kLast, found.script.size()); i < found.script.size(); ++i)
        print(found.script[i], found.results[i]);
}

// True: it is so each time.
bool is_difference(const char *preload, const Found &found, std::uint64_t seed)
{
    ::fprintf(stderr, "seed %llu: after %zu steps %s\n", static_cast<unsigned long long>(seed), found.script.size(),
              found.difference.c_str());
    if (!repeat(preload, found.script, found.where, false) || !repeat(preload, found.script, found.where, false)) {
        print_last(found);
        return false;
    }
    repeat(preload, shorten(preload, found.script, found.where), found.where, true);
    return true;
}

int compare(const char *preload, std::uint64_t seed, int scripts, int steps, const Choice &choice)
{
    Counts counts;
    int differ = 0;
    for (const std::uint64_t end = seed + static_cast<std::uint64_t>(scripts); seed < end; ++seed) {
        const Found found = explore(preload, seed, steps, choice, counts);
        if (!found.difference.empty() && is_difference(preload, found, seed))
            ++differ;
    }
    for (std::size_t op = 0; op < counts.made.size(); ++op)
        ::printf("%s %ld\n", name_of(static_cast<Op>(op)), counts.made[op]);
    ::printf("waited %ld\n", counts.waited);
    return differ != 0 ? 1 : 0;
}

} // namespace

int run(int argc, char **argv)
{
    if (argc > 2 && ::strcmp(argv[1], "--actor") == 0)
        return actor_main(argv + 2);
    if (argc < 4) {
        ::fprintf(stderr,
                  "usage: compared SEED SCRIPTS STEPS [KIND...]: what is left out\nFABTEST_PRELOAD: the library\n");
        return 2;
    }
    Choice choice;
    const std::pair<const char *, bool *> kinds[] = {{"processes", &choice.processes}, {"threads", &choice.threads},
                                                     {"datagrams", &choice.datagrams}, {"sets", &choice.sets},
                                                     {"edges", &choice.edges},         {"options", &choice.options},
                                                     {"urgent", &choice.urgent}};
    for (int i = 4; i < argc; ++i)
        for (const auto &[name, is_there] : kinds)
            *is_there = *is_there && ::strcmp(argv[i], name) != 0;
    cpu_set_t one; // deliveries are in order on one processor
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_BATCH, &none); // who is woken comes behind who has woken it
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    return compare(::getenv("FABTEST_PRELOAD"), ::strtoull(argv[1], nullptr, 0), ::atoi(argv[2]), ::atoi(argv[3]),
                   choice);
}

} // namespace compared

int main(int argc, char **argv)
{
    return compared::run(argc, argv);
}
