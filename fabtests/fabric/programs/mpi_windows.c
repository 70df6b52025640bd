/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided MPI between all ranks, in a ring: what is put into the next one's window is got back and found there, short
 * and long, and all count in the first one's: "mpi_windows [COUNTS]", so often each. The harness compiles it with
 * mpicc; it is not part of the build.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCounter = 0, kSum = 1, kShort = 5, kLong = 100, kLongCount = 50000, kWindow = 1 << 20, kSums = 100 };

static int g_rank, g_ranks, g_counts = 1000;
static long *g_memory;

static void check(int right, const char *what)
{
    if (right)
        return;
    printf("rank %d: %s: not as it should be\n", g_rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put_and_get(MPI_Win window, int next)
{
    const long value = 100 + g_rank;
    long got = 0;
    MPI_Put(&value, 1, MPI_LONG, next, kShort, 1, MPI_LONG, window);
    MPI_Win_flush(next, window);
    MPI_Get(&got, 1, MPI_LONG, next, kShort, 1, MPI_LONG, window);
    MPI_Win_flush(next, window);
    check(got == value, "what was put and got");
}

static void count(MPI_Win window)
{
    const long one = 1;
    long last = -1;
    for (int i = 0; i < g_counts; ++i) {
        long before = -1;
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, kCounter, MPI_SUM, window);
        MPI_Win_flush(0, window);
        check(before > last, "what the counter was before");
        last = before;
    }
    for (int i = 0; i < kSums; ++i)
        MPI_Accumulate(&one, 1, MPI_LONG, 0, kSum, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_flush(0, window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    if (argc > 1)
        g_counts = atoi(argv[1]);
    check(g_counts > 0, "the argument");
    MPI_Win window;
    MPI_Win_allocate(kWindow, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &g_memory, &window);
    for (long i = 0; i < kWindow / (long)sizeof(long); ++i)
        g_memory[i] = 0;
    MPI_Barrier(MPI_COMM_WORLD);

    const int next = (g_rank + 1) % g_ranks, before = (g_rank + g_ranks - 1) % g_ranks;
    long *const longer = malloc(kLongCount * sizeof *longer);
    check(longer != NULL, "memory");
    for (long i = 0; i < kLongCount; ++i)
        longer[i] = i * 3 + g_rank;
    MPI_Win_lock_all(0, window);
    put_and_get(window, next);
    count(window);
    MPI_Put(longer, kLongCount, MPI_LONG, next, kLong, kLongCount, MPI_LONG, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);

    check(g_memory[kShort] == 100 + before, "what another put here");
    for (long i = 0; i < kLongCount; ++i)
        check(g_memory[kLong + i] == i * 3 + before, "what another put here, a long one");
    if (g_rank == 0) {
        check(g_memory[kCounter] == (long)g_counts * g_ranks, "the counter");
        check(g_memory[kSum] == (long)kSums * g_ranks, "the sum");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (g_rank == 0)
        printf("%d of %d ranks: all as sent\n", g_ranks, g_ranks);
    free(longer);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
