// SPDX-License-Identifier: BSD-2-Clause
// What mpi.py runs: each of the works named (WORK:BYTES) on all ranks for a tenth of a second or so, after as much to
// warm up. Rank 0 prints the microseconds of one: half a round trip, one message of a window of 64, one collective
// call.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 64, kTag = 1 };

static int g_rank, g_ranks;
static char *g_out, *g_in;

static void latency(int bytes)
{
    if (g_rank == 0) {
        MPI_Send(g_out, bytes, MPI_CHAR, 1, kTag, MPI_COMM_WORLD);
        MPI_Recv(g_in, bytes, MPI_CHAR, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (g_rank == 1) {
        MPI_Recv(g_in, bytes, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(g_out, bytes, MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
    }
}

static void rate(int bytes)
{
    MPI_Request requests[kWindow];
    for (int i = 0; i < kWindow && g_rank < 2; ++i) {
        if (g_rank == 0)
            MPI_Isend(g_out, bytes, MPI_CHAR, 1, kTag, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(g_in, bytes, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, &requests[i]);
    }
    if (g_rank < 2)
        MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    if (g_rank == 0)
        MPI_Recv(g_in, 1, MPI_CHAR, 1, kTag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (g_rank == 1)
        MPI_Send(g_out, 1, MPI_CHAR, 0, kTag + 1, MPI_COMM_WORLD);
}

static void allreduce(int bytes)
{
    MPI_Allreduce(g_out, g_in, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int bytes)
{
    MPI_Alltoall(g_out, bytes, MPI_CHAR, g_in, bytes, MPI_CHAR, MPI_COMM_WORLD);
}

static void bcast(int bytes)
{
    MPI_Bcast(g_out, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static const struct work {
    const char *name;
    void (*once)(int bytes);
    int counts; // what the time of one is divided by
} kWorks[] = {{"latency", latency, 2}, {"rate", rate, kWindow}, {"allreduce", allreduce, 1}, {"alltoall", alltoall, 1}, {"bcast", bcast, 1}};

static double some(const struct work *work, int bytes, long count)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = MPI_Wtime();
    for (long i = 0; i < count; ++i)
        work->once(bytes);
    double took = MPI_Wtime() - began, longest = 0;
    MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

// As many as take `seconds`, which the ranks find out together.
static double measure(const struct work *work, int bytes, double seconds)
{
    long count = 1;
    double took = some(work, bytes, count);
    while (took < seconds / 4) {
        count *= 2;
        took = some(work, bytes, count);
    }
    count = (long)((double)count * seconds / took) + 1;
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return some(work, bytes, count) / (double)count / work->counts * 1e6;
}

static const struct work *find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; ++i)
        if (strlen(kWorks[i].name) == length && strncmp(kWorks[i].name, name, length) == 0)
            return &kWorks[i];
    return NULL;
}

// argv: SECONDS WORK:BYTES...
int main(int argc, char **argv)
{
    enum { kMost = 4 << 20 };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    g_out = calloc((size_t)g_ranks, kMost);
    g_in = calloc((size_t)g_ranks, kMost);
    for (int i = 2; i < argc; ++i) {
        const char *colon = strchr(argv[i], ':');
        const struct work *work = colon ? find(argv[i], (size_t)(colon - argv[i])) : NULL;
        const int bytes = colon ? atoi(colon + 1) : -1;
        if (!work || bytes < 0 || bytes > kMost || !g_out || !g_in) {
            fprintf(stderr, "mpi_bench: %s: not WORK:BYTES, or more than %d bytes\n", argv[i], kMost);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        const double us = measure(work, bytes, atof(argv[1]));
        if (g_rank == 0)
            printf("%s %.4f\n", argv[i], us);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
