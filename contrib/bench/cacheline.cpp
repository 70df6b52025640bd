// SPDX-License-Identifier: BSD-2-Clause
// How long a cache line takes from one CPU to the other: two pinned processes answer each other through shared memory
// and do nothing else. It is the floor under every message between them, measured beside the benchmarks; it is no
// benchmark of ours. Usage: cacheline [CPU CPU]; prints one JSON line, nanoseconds, half a round trip.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

// Many short rounds: an interruption spoils one of them, and the median does not see it.
constexpr unsigned kRounds = 501;
constexpr std::uint32_t kTurns = 1000; // a round

// 128 bytes apart: the prefetcher takes lines in pairs.
struct Shared {
    alignas(128) std::atomic<std::uint32_t> ping{0};
    alignas(128) std::atomic<std::uint32_t> pong{0};
    alignas(128) std::atomic<std::uint32_t> both{0};
};

inline void pause_cpu()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Gives the CPU away now and then: the other process may be waiting for this very CPU.
template <bool Pause> void wait_for(const std::atomic<std::uint32_t> &word, std::uint32_t value)
{
    for (std::uint32_t spins = 1; word.load(std::memory_order_acquire) != value; ++spins) {
        if (Pause)
            pause_cpu();
        if (spins % (1U << 20) == 0)
            sched_yield();
    }
}

// Each side writes a line of its own and reads the other's, as a ring buffer does.
void own_lines(Shared &s, bool first, std::uint32_t base)
{
    for (std::uint32_t i = base + 1; i <= base + kTurns; ++i) {
        if (first) {
            s.ping.store(i, std::memory_order_release);
            wait_for<false>(s.pong, i);
        } else {
            wait_for<false>(s.ping, i);
            s.pong.store(i, std::memory_order_release);
        }
    }
}

// Both write the same line in turn, and pause while they wait.
void same_line(Shared &s, bool first, std::uint32_t base)
{
    for (std::uint32_t i = base; i < base + 2 * kTurns; i += 2) {
        const std::uint32_t mine = first ? i : i + 1;
        wait_for<true>(s.both, mine);
        s.both.store(mine + 1, std::memory_order_release);
    }
    wait_for<true>(s.both, base + 2 * kTurns);
}

double now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

bool pin(pid_t process, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    return sched_setaffinity(process, sizeof set, &set) == 0;
}

using Times = std::array<double, kRounds>;

void play(Shared &s, bool first, Times &own, Times &same)
{
    for (std::uint32_t round = 0; round < kRounds; ++round) {
        double start = now_ns();
        own_lines(s, first, round * kTurns);
        own[round] = (now_ns() - start) / kTurns / 2;
        start = now_ns();
        same_line(s, first, round * 2 * kTurns);
        same[round] = (now_ns() - start) / kTurns / 2;
    }
}

} // namespace

int main(int argc, char **argv)
{
    const int cpus[2] = {argc == 3 ? std::atoi(argv[1]) : 0, argc == 3 ? std::atoi(argv[2]) : 1};
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("cacheline: mmap");
        return 1;
    }
    auto *shared = new (memory) Shared;

    Times own{};
    Times same{};
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        std::perror("cacheline: fork");
        return 1;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        play(*shared, false, own, same);
        _exit(0);
    }
    if (!pin(0, cpus[0]) || !pin(child, cpus[1])) {
        std::perror("cacheline: sched_setaffinity");
        kill(child, SIGKILL);
        return 1;
    }
    play(*shared, true, own, same);
    waitpid(child, nullptr, 0);

    std::ranges::sort(own);
    std::ranges::sort(same);
    std::printf("{\"own_lines_ns\": %.1f, \"own_lines_min_ns\": %.1f, \"own_lines_max_ns\": %.1f, "
                "\"same_line_ns\": %.1f, \"same_line_min_ns\": %.1f, \"same_line_max_ns\": %.1f}\n",
                own[kRounds / 2], own.front(), own.back(), same[kRounds / 2], same.front(), same.back());
    return 0;
}
