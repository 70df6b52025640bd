// SPDX-License-Identifier: BSD-2-Clause
// vma_dump: shows what the accelerated sockets of running programs send and receive, as lines of text or as a pcapng
// file. The programs write it to a ring of their own (compat/src/stats/capture_layout.hpp), and don't wait.
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include <algorithm>

#include "util/vma_dump/options.hpp"
#include "util/vma_dump/session.hpp"

namespace {

using namespace vma_dump;

constexpr int kMany = 256; // records: who has fetched so many goes on at once
constexpr long kLeastSleepNs = 100'000;
constexpr long kMostSleepNs = 5'000'000; // a ring of 16 MiB holds some 100,000 small messages
constexpr std::int64_t kLookNs = 100'000'000;
constexpr std::int64_t kSoonNs = 20'000'000; // where an answer is waited for

volatile sig_atomic_t g_stop = 0;

void stop(int)
{
    g_stop = 1;
}

void heed_signals()
{
    struct sigaction action = {};
    action.sa_handler = stop;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        ::sigaction(signal, &action, nullptr);
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, nullptr);
}

std::int64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

void rest(long ns)
{
    const timespec pause = {0, ns};
    ::nanosleep(&pause, nullptr);
}

// Until there is an end. False: nothing can be written any more. Who has caught up with the programs rests a moment: to
// fetch each record as it comes would take a whole processor, and the lines that they are about to write to.
bool listen(Session &session, const Recorder &recorder, Output &output)
{
    long pause = kLeastSleepNs;
    std::int64_t looked = now_ns() - kLookNs;
    while (g_stop == 0 && !recorder.is_done() && !session.is_over()) {
        const std::int64_t now = now_ns();
        if (now - looked >= (session.is_waiting() ? kSoonNs : kLookNs)) {
            session.look_around();
            looked = now;
        }
        const int fetched = session.fetch();
        if (fetched < 0 || (fetched < kMany && !output.write_all()))
            return false;
        pause = fetched != 0 ? kLeastSleepNs : std::min(2 * pause, kMostSleepNs);
        if (fetched < kMany && g_stop == 0)
            rest(pause);
    }
    return true;
}

// What the programs have written by now. They may go on: no more than some rings full.
bool hear_out(Session &session, const Recorder &recorder)
{
    constexpr int kMostTurns = 512;
    int fetched = 1;
    for (int turn = 0; turn < kMostTurns && fetched > 0 && !recorder.is_done(); ++turn)
        fetched = session.fetch();
    return fetched >= 0;
}

void print_counts(const Recorder &recorder)
{
    fprintf(stderr, "%llu packets captured\n%llu packets received by filter\n%llu packets dropped by the programs\n",
            static_cast<unsigned long long>(recorder.captured()), static_cast<unsigned long long>(recorder.received()),
            static_cast<unsigned long long>(recorder.dropped()));
}

int run(const Options &options)
{
    Output output(options);
    Recorder recorder(options, output);
    if (!recorder.begin())
        return 1;
    Session session(options, recorder);
    heed_signals();
    bool good = listen(session, recorder, output) && hear_out(session, recorder);
    session.finish();
    good = good && output.write_all();
    if (session.is_over() && !session.has_heard())
        return 1; // said why
    print_counts(recorder);
    return good || output.has_ended() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    Options options;
    return vma::tool::run_if_asked(parse(argc, argv, options), [&options] { return run(options); });
}
