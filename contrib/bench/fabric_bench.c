// SPDX-License-Identifier: BSD-2-Clause
// What fabric.py runs: each of the works named, between two processes with an endpoint (FI_EP_RDM) of a libfabric
// provider each. A line for each has the microseconds of one (half a round trip, a message of a window, an access), or
//     WORK not-offered WHY    the provider doesn't have what it takes
//     WORK failed WHY         and the exit status is 1
// A work has two processes of its own, forked before anything of libfabric has run: one that dies or hangs is a line
// that says so, and the next work begins.
#define _GNU_SOURCE
#include "contrib/bench/fabric_side.h"

#include <errno.h>
#include <rdma/fabric.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    kMostKept = 1000,
    kBatches = 11,
    kTries = 3,
    kGrace = 2
}; // kGrace: seconds for a side whose other one has ended badly

static int g_cpus[2] = {0, 1};
static double g_seconds = 0.1;
static unsigned g_limit = 20;                 // seconds of a work
static pid_t g_pids[2];                       // 0: has ended
static volatile sig_atomic_t g_first, g_late; // the side that ended badly first, or -1; neither had in time
static int g_kept;                            // unexpected messages
static int g_stamp;                           // of the batch: what its data is made of

// ---- data -----------------------------------------------------------------------------------------------------------

enum { kEnd = 8 }; // bytes that are marked at each end

static char marked(int stamp, size_t at)
{
    return (char)((size_t)stamp * 31 + at * 7 + 1);
}

static void mark(char *data, size_t size, int stamp)
{
    for (size_t i = 0; i < size; ++i)
        if (i < kEnd || i + kEnd >= size)
            data[i] = marked(stamp, i);
}

static bool is_marked(const volatile char *data, size_t size, int stamp)
{
    for (size_t i = 0; i < size; ++i) {
        if (i >= kEnd && i + kEnd < size)
            i = size - kEnd;
        if (data[i] != marked(stamp, i))
            return false;
    }
    return true;
}

static int stamp_of(enum side side)
{
    return 2 * g_stamp + (int)side;
}

// Of the batch that has ended. What is written to memory may be later than the writer's completion, but not for long.
static void verify(void)
{
    const size_t size = g_size - g_work->signal;
    const double patience = now() + (g_work->caps & FI_RMA ? 1 : 0);
    if (!(g_work->checks & 1 << g_side))
        return;
    while (!is_marked(g_in, size, stamp_of(!g_side))) {
        if (now() >= patience)
            stop(kFailed, "wrong data", "the first or last bytes are not those that were sent");
        progress();
    }
}

// Messages that nobody has asked for yet are left with each side; the one behind them says that all of them are there.
static void keep(void)
{
    for (int i = 0; i < g_kept; ++i) {
        char *from = g_out + (size_t)i * g_size;
        mark(from, g_size, i);
        while (g_pending[kSent] >= kWindow)
            progress();
        post_send(kTagKept + (uint64_t)i, from, g_size);
    }
    wait_for(kSent);
    post_answer();
    pass_answer();
    wait_for(kAnswer);
    wait_for(kSent);
}

static void take_kept(void)
{
    for (int i = g_kept - 1; i >= 0; --i)
        post_receive(kData, kTagKept + (uint64_t)i, g_in + (size_t)i * g_size, g_size);
    wait_for(kData);
    for (int i = 0; i < g_kept; ++i)
        if (!is_marked(g_in + (size_t)i * g_size, g_size, i))
            stop(kFailed, "wrong data", "an unexpected message is not the one that was sent");
}

// ---- measuring ------------------------------------------------------------------------------------------------------

static double batch(long count)
{
    char byte;
    tell(&count, sizeof count);
    ++g_stamp;
    mark(g_out, g_size - g_work->signal, stamp_of(kClient));
    g_work->run(g_size, count);
    const double took = now() - g_began;
    hear(&byte, 1);
    verify();
    return took;
}

static void serve(void)
{
    for (;;) {
        char byte = 1;
        long count = 0;
        hear(&count, sizeof count);
        if (g_stamp > 0)
            verify();
        if (count == 0)
            return;
        ++g_stamp;
        mark(g_out, g_size - g_work->signal, stamp_of(kServer));
        g_work->run(g_size, count);
        tell(&byte, 1);
    }
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

// The shortest of some, if the first one takes long: it may have been interrupted, or have had to connect first.
static double settled(long count)
{
    double shortest = batch(count);
    for (int i = 1; i < kTries && shortest >= g_seconds / 4; ++i) {
        const double took = batch(count);
        shortest = took < shortest ? took : shortest;
    }
    return shortest;
}

// The median of some batches, which doesn't see that one of them was interrupted; of as many as take `g_seconds`.
static double measure(void)
{
    double times[kBatches];
    long count = 1;
    const long end = 0;
    now_doing("warming up");
    double took = settled(count);
    while (took < g_seconds / 4) {
        count *= 2;
        took = settled(count);
    }
    now_doing("measuring");
    const double wanted = (double)count * g_seconds / took;
    const int batches = wanted < 1 ? 1 : wanted > kBatches ? kBatches : (int)wanted;
    count = (long)(wanted / batches) + 1;
    for (int i = 0; i < batches; ++i)
        times[i] = batch(count) / (double)count;
    tell(&end, sizeof end);
    qsort(times, (size_t)batches, sizeof *times, compare);
    return times[batches / 2] / g_work->counts * 1e6;
}

// ---- processes ------------------------------------------------------------------------------------------------------

static _Noreturn void be(enum side side, int channel, pid_t parent)
{
    cpu_set_t cpus;
    g_side = side;
    g_channel = channel;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(kAlone);
    CPU_ZERO(&cpus);
    CPU_SET((size_t)g_cpus[side], &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        check("sched_setaffinity", -errno);
    open_all();
    if (g_kept > 0) {
        now_doing("leaving unexpected messages");
        keep();
    }
    now_doing("serving");
    if (g_side == kClient)
        g_shared->us = measure();
    else
        serve();
    now_doing("taking what was left");
    take_kept();
    barrier();
    close_all();
    exit(kFine);
}

static void end_both(int number)
{
    (void)number;
    g_late = g_first < 0;
    for (int side = 0; side < 2; ++side)
        if (g_pids[side] > 0)
            kill(g_pids[side], SIGKILL);
}

// The side that ended badly first, unless all it saw was that the other one had gone.
static int who_is_to_blame(const int *statuses)
{
    const int status = statuses[g_first];
    const bool alone = WIFEXITED(status) && WEXITSTATUS(status) == kAlone;
    return alone && statuses[!g_first] != 0 ? !g_first : g_first;
}

static bool report(const char *name, const int *statuses)
{
    static const char *const kNames[] = {"the server", "the client"};
    if (g_first < 0) {
        printf("%s %.4f\n", name, g_shared->us);
        return true;
    }
    const int side = who_is_to_blame(statuses), status = statuses[side];
    const char *doing = g_shared->side[side].doing, *said = g_shared->side[side].said;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotOffered) {
        printf("%s not-offered %s\n", name, said);
        return true;
    }
    if (g_late)
        printf("%s failed not done within %u s: the server is %s, the client %s\n", name, g_limit,
               g_shared->side[kServer].doing, g_shared->side[kClient].doing);
    else if (*said)
        printf("%s failed %s, %s: %s\n", name, kNames[side], doing, said);
    else
        printf("%s failed %s, %s: ended by %s %d\n", name, kNames[side], doing,
               WIFSIGNALED(status) ? "signal" : "itself with status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

static bool run(const char *name)
{
    int channels[2], statuses[2] = {0, 0};
    const pid_t parent = getpid();
    memset(g_shared, 0, sizeof *g_shared);
    g_shared->side[kServer].doing = g_shared->side[kClient].doing = "starting";
    g_first = -1;
    g_late = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channels) != 0) {
        perror("fabric_bench: socketpair");
        exit(2);
    }
    fflush(stdout);
    for (int side = 0; side < 2; ++side) {
        g_pids[side] = fork();
        if (g_pids[side] < 0) {
            perror("fabric_bench: fork");
            exit(2);
        }
        if (g_pids[side] == 0) {
            close(channels[!side]);
            be((enum side)side, channels[side], parent);
        }
    }
    close(channels[0]);
    close(channels[1]);
    alarm(g_limit);
    while (g_pids[kServer] > 0 || g_pids[kClient] > 0) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, 0);
        if (ended < 0)
            continue; // the alarm
        const int side = ended == g_pids[kClient];
        g_pids[side] = 0;
        statuses[side] = status;
        if (status == 0 || g_first >= 0)
            continue;
        g_first = side;
        alarm(
            kGrace); // SIGTERM is no way to end the other: libraries have handlers that call exit(), wherever they are
    }
    alarm(0);
    const bool fine = report(name, statuses);
    fflush(stdout);
    return fine;
}

static bool parse(const char *text)
{
    char name[32];
    g_kept = 0;
    if (sscanf(text, "%31[^:]:%zu:%d", name, &g_size, &g_kept) < 2)
        return false;
    g_work = find_work(name);
    return g_work && g_size >= g_work->least && g_size <= g_work->most && g_kept >= 0 && g_kept <= kMostKept &&
           (g_kept == 0 || (!g_work->untagged && g_work->caps == 0 && (size_t)g_kept * g_size <= kMost));
}

static int usage(void)
{
    fprintf(stderr,
            "usage: fabric_bench [-p PROVIDER] [-c CPU,CPU] [-t SECONDS] [-l LIMIT] WORK:BYTES[:KEPT]...\n"
            "  -p  as libfabric names it, for instance \"vma\" or \"tcp;ofi_rxm\" (%s)\n"
            "  -c  processors of the server and of the client (%d,%d)\n"
            "  -t  of each figure (%g)\n"
            "  -l  seconds after which a work has failed (%u)\n"
            "KEPT messages of other tags lie unexpected at both sides meanwhile, %d at most. WORK is one of:",
            g_provider, g_cpus[0], g_cpus[1], g_seconds, g_limit, kMostKept);
    print_works();
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool fine = true;
    int option;
    while ((option = getopt(argc, argv, "p:c:t:l:h")) != -1) {
        if (option == 'p')
            g_provider = optarg;
        else if (option == 't')
            g_seconds = atof(optarg);
        else if (option == 'l')
            g_limit = (unsigned)atoi(optarg);
        else if (option != 'c' || sscanf(optarg, "%d,%d", &g_cpus[0], &g_cpus[1]) != 2)
            return usage();
    }
    if (optind == argc || g_seconds <= 0 || g_limit == 0)
        return usage();
    g_shared = mmap(NULL, sizeof *g_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g_shared == MAP_FAILED) {
        perror("fabric_bench: mmap");
        return 2;
    }
    signal(SIGALRM, end_both);
    for (int i = optind; i < argc; ++i)
        if (!parse(argv[i])) {
            fprintf(stderr, "fabric_bench: %s: no such work, or it can't have so many bytes or kept messages\n",
                    argv[i]);
            return usage();
        }
    for (int i = optind; i < argc; ++i)
        fine &= parse(argv[i]) && run(argv[i]);
    return fine ? 0 : 1;
}
