// SPDX-License-Identifier: BSD-2-Clause
// vma check: what costs acceleration, of the machine, of a process that runs, or of a file of rules.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <map>

#include "compat/src/stats/text.hpp"
#include "util/libvma_check/check.hpp"
#include "util/vma/commands.hpp"
#include "util/vma/files.hpp"
#include "util/vma/judge.hpp"
#include "util/vma/library.hpp"
#include "util/vma/loaded.hpp"
#include "util/vma/machine.hpp"
#include "util/vma/processes.hpp"
#include "util/vma/reasons.hpp"

namespace vma::command {

namespace {

int verdict(const Findings &findings)
{
    print(stdout, findings, Cost::kNote);
    const bool costs = any(findings, Cost::kSome);
    if (!costs)
        printf("vma: nothing that costs acceleration was found\n");
    return costs ? kNo : kFine;
}

int check_machine()
{
    const Library library = find_library("");
    if (library.path.empty())
        printf("vma: nothing is accelerated: libvma.so was not found; install it\n");
    else
        printf("vma: programs that `vma run` starts from here get %s\n", library.path.c_str());
    const Place place = this_process();
    const int status = verdict(judge(place, look_around(place)));
    return library.path.empty() ? kNo : status;
}

void describe_sockets(const Accelerated &process)
{
    unsigned accelerated = 0;
    std::map<std::string, unsigned> reasons;
    for (const vma::stats::Slot &slot : process.snapshot.slots) {
        if (slot.facts.fd < 0)
            continue;
        if (vma::stats::is_offloaded(slot.facts))
            ++accelerated;
        else
            ++reasons[slot.facts.reason];
    }
    printf("vma: %u sockets of it are accelerated\n", accelerated);
    for (const auto &[reason, count] : reasons)
        printf("vma: %u on the kernel: %s%s%s\n", count, reason.c_str(), *what_to_do(reason) != '\0' ? "; " : "",
               what_to_do(reason));
}

int check_process(pid_t pid)
{
    const std::optional<Place> place = read_place(pid);
    if (!place) {
        fprintf(stderr, "vma check: process %d: %s\n", pid,
                errno == ESRCH ? "there is none" : "it may be looked at by its user and root alone");
        return kUsage;
    }
    const Program program = running_program(*place);
    printf("vma: process %d %s, %s: %s\n", pid, name_of_process(pid).c_str(), program.path.c_str(),
           place->library.empty() ? "without libvma.so" : ("with " + place->library).c_str());
    Findings findings = judge_loaded(*place, program);
    Accelerated process;
    if (!place->library.empty()) {
        const std::string folder = place->variable("VMA_STATS_SHMEM_DIR");
        if (find_process(folder.empty() ? counters_folder() : folder, pid, process))
            describe_sockets(process);
        else
            printf("vma: it has no TCP or UDP socket yet, or its counters can't be read\n");
        add(findings, judge(*place, look_around(*place)));
    }
    return verdict(findings);
}

int check_rules(int argc, char **argv)
{
    // "vma check FILE ..." is "libvma-check --file FILE ...".
    std::string file = "--file=" + std::string(argv[1]);
    std::vector<char *> words = {argv[0], file.data()};
    words.insert(words.end(), argv + 2, argv + argc);
    const int count = static_cast<int>(words.size());
    words.push_back(nullptr);
    return libvma_check::check("vma check", count, words.data());
}

} // namespace

int check(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
        fputs(help_of("check"), stdout);
        return kFine;
    }
    if (argc == 1)
        return check_machine();
    if (argv[1][0] == '-') {
        fprintf(stderr, "vma check: %s: expected a process number, a file of rules, or nothing\n", argv[1]);
        return wrong_usage("check");
    }
    const auto pid = parse_number(argv[1], INT32_MAX);
    if (pid && argc == 2)
        return check_process(static_cast<pid_t>(*pid));
    if (!pid)
        return check_rules(argc, argv);
    fprintf(stderr, "vma check: %s: expected nothing behind a process number\n", argv[2]);
    return wrong_usage("check");
}

} // namespace vma::command
