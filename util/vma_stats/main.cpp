// SPDX-License-Identifier: BSD-2-Clause
// vma_stats: shows what the processes that run with libvma.so count. It reads their files; they are not asked, and
// don't notice.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <optional>

#include "util/vma_stats/kernel_sockets.hpp"
#include "util/vma_stats/live.hpp"
#include "util/vma_stats/metrics/run.hpp"
#include "util/vma_stats/options.hpp"
#include "util/vma_stats/processes.hpp"
#include "util/vma_stats/views.hpp"

namespace {

using namespace vma_stats;

constexpr int kViewGroups = 4;
constexpr int kViewNet = 5;

bool is_wanted(const Found &one, const Snapshot &s, const Options &o)
{
    if (!o.name.empty())
        return executable_of(one.pid) == o.name || (!lives(s) && program_of(s) == o.name);
    return lives(s);
}

// The process to show: the one that was named, or the first that lives.
std::optional<Found> find_target(const Options &o)
{
    Snapshot s;
    std::string error;
    if (o.pid != 0)
        return Found{o.pid, path_of(o.folder, o.pid)};
    for (const Found &one : list_files(o.folder)) {
        if (read_snapshot(one.path, s, error) && is_wanted(one, s, o))
            return one;
        if (!error.empty() && !o.name.empty() && executable_of(one.pid) == o.name)
            fprintf(stderr, "vmastat: %s: %s\n", one.path.c_str(), error.c_str());
    }
    return std::nullopt;
}

int fail_to_find()
{
    fprintf(stderr, "vmastat: Failed to identify process please provide pid of active proccess...\n");
    print_usage(stderr);
    return 1;
}

int fail(const std::string &path, const std::string &what)
{
    fprintf(stderr, "vmastat: %s: %s\n", path.c_str(), what.c_str());
    return 1;
}

int show_net(const Options &o)
{
    bool titled = false;
    for (const Found &one : list_files(o.folder)) {
        Snapshot s;
        std::string error;
        if (o.pid != 0 && one.pid != o.pid)
            continue;
        if (!(o.pid == 0 ? read_snapshot(one.path, s, error) : read_when_written(one.path, s, error))) {
            if (o.pid == 0 && errno == EACCES)
                continue; // another user's
            fail(one.path, error);
            continue;
        }
        if (!titled)
            print_net_title();
        titled = true;
        if (lives(s))
            ask_kernel(s);
        print_net(s, o);
    }
    return titled ? 0 : fail_to_find();
}

// What the process is to do, or what is to be written into its file. False: said why not.
bool request(const Found &target, const Snapshot &s, const Options &o)
{
    if (o.zero && !zero_counters(target.path, s)) {
        fail(target.path, std::string("counters can't be zeroed: ") + strerror(errno));
        return false;
    }
    if (o.log_level == kUnset && o.log_details == kUnset && o.dump_fd == kUnset)
        return true;
    if (o.dump_fd == 0)
        printf("vmastat: Dumping all Fd's to VMA using log level = %s...\n", o.dump_word.c_str());
    else if (o.dump_fd != kUnset)
        printf("vmastat: Dumping Fd %d to VMA using log level = %s...\n", o.dump_fd, o.dump_word.c_str());
    if (ask(target.path, {o.log_level, o.log_details, o.dump_fd, o.dump_level}))
        return true;
    fail(target.path, std::string("it can't be asked: ") + strerror(errno));
    return false;
}

void show(const Shown &shown, unsigned cycle, bool alive)
{
    if (shown.options->json)
        return print_json(shown, alive);
    switch (shown.options->view) {
    case 3:
        return print_full(shown);
    case kViewGroups:
        return print_groups(shown);
    default:
        return print_lines(shown, cycle);
    }
}

void wait_seconds(unsigned seconds)
{
    timespec left = {static_cast<time_t>(seconds), 0};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

// False: its file can't be read any more.
bool take(const Found &target, const Options &o, Snapshot &s, bool &alive)
{
    std::string error;
    if (!read_snapshot(target.path, s, error))
        return false;
    alive = lives(s);
    if (alive && (o.view >= 3 || o.json))
        ask_kernel(s);
    add_reasons(s);
    return true;
}

int show_cycles(const Found &target, const Options &o, Snapshot now)
{
    Snapshot before = now;
    bool alive = lives(now);
    for (unsigned cycle = 0; o.cycles == 0 || cycle < o.cycles; ++cycle) {
        if (cycle != 0 || o.deltas) {
            if (!alive)
                break;
            wait_seconds(o.interval);
            before = std::move(now);
            now = {};
            if (!take(target, o, now, alive))
                break;
        } else if (!take(target, o, now, alive)) {
            break;
        }
        show({&now, o.deltas ? &before : nullptr, &o}, cycle, alive);
        if (fflush(stdout) != 0)
            return 1; // nobody reads
    }
    if (!alive && !o.json)
        printf("vmastat: Process %d ended - exiting\n", target.pid);
    return 0;
}

int run(const Options &o)
{
    if (o.explain) {
        if (explain(o.explained))
            return 0;
        fprintf(stderr, "vmastat: '%s' is not a parameter (expected one of those that --explain lists)\n",
                o.explained.c_str());
        return 1;
    }
    if (o.cleans)
        clean(o.folder, o.pid, o.name); // the one that was named is shown if it is dead, too
    if (o.prometheus || !o.listen.empty())
        return run_metrics(o);
    if (o.view == kViewNet && !o.json && !o.live)
        return show_net(o);
    const std::optional<Found> target = find_target(o);
    if (!target)
        return o.live ? run_live(o, 0) : fail_to_find();
    Snapshot s;
    std::string error;
    if (!read_when_written(target->path, s, error)) {
        fail(target->path, error);
        return fail_to_find();
    }
    if (!request(*target, s, o))
        return 1;
    if (o.live)
        return run_live(o, target->pid);
    if (!o.json)
        printf("vmastat: stats for application: %s with pid: %d\n", program_of(s).c_str(), target->pid);
    return show_cycles(*target, o, s);
}

} // namespace

int main(int argc, char **argv)
{
    Options options;
    return vma::tool::run_if_asked(parse(argc, argv, options), [&options] { return run(options); });
}
