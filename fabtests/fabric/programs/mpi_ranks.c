/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPI between all ranks, of which there may be any number from two on: messages of many sizes both ways between each
 * two, messages that are taken by another order than they came in, from anybody, and after the sender knows of it;
 * a thousand that are begun before one is waited for; collective operations. Every byte is checked.
 * "mpi_ranks [LARGEST [ROUNDS]]": up to so many bytes a message, 32 KiB at least; so often each size. The harness
 * compiles it with mpicc; it is not part of the build.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTags = 32, kFew = 1000, kLeast = 32 << 10, kMany = 1000, kManyLong = 400, kLong = 16 << 10 };

static int g_rank, g_ranks, g_largest = 4 << 20, g_rounds = 4;
static unsigned char *g_out, *g_in;

static void check(int right, const char *what)
{
    if (right)
        return;
    printf("rank %d: %s: not as sent\n", g_rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int from, int to, int size, int i) { return (unsigned char)(from * 101 + to * 57 + size * 31 + i * 7 + (i >> 8)); }

static void fill(unsigned char *bytes, int from, int to, int size)
{
    for (int i = 0; i < size; ++i)
        bytes[i] = byte_of(from, to, size, i);
}

static int holds(const unsigned char *bytes, int from, int to, int size)
{
    for (int i = 0; i < size; ++i)
        if (bytes[i] != byte_of(from, to, size, i))
            return 0;
    return 1;
}

/* The last one is the largest. */
static int larger(int size) { return size < g_largest && size * 3 + 1 > g_largest ? g_largest : size * 3 + 1; }

/* Both ways at once, with the rank `step` further and the one `step` back. */
static void exchange(int step)
{
    const int to = (g_rank + step) % g_ranks, from = (g_rank + g_ranks - step) % g_ranks;
    for (int size = 1; size <= g_largest; size = larger(size)) {
        fill(g_out, g_rank, to, size);
        for (int round = 0; round < g_rounds; ++round) {
            memset(g_in, 0, (size_t)size);
            MPI_Request requests[2];
            MPI_Status statuses[2];
            int count;
            MPI_Irecv(g_in, g_largest, MPI_BYTE, from, round, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(g_out, size, MPI_BYTE, to, round, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, statuses);
            MPI_Get_count(&statuses[0], MPI_BYTE, &count);
            check(count == size && statuses[0].MPI_SOURCE == from && holds(g_in, from, g_rank, size), "an exchange");
        }
    }
}

/*
 * Everybody sends to rank 0, which takes the last tag first: what came before waits, unexpected. Then as it comes, from
 * anybody.
 */
static void by_tag(void)
{
    for (int tag = 0; g_rank && tag < kTags; ++tag) {
        fill(g_out, g_rank, tag, kFew);
        MPI_Send(g_out, kFew, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int tag = kTags - 1; !g_rank && tag >= 0; --tag)
        for (int from = 1; from < g_ranks; ++from) {
            MPI_Recv(g_in, kFew, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(holds(g_in, from, tag, kFew), "a message by its tag");
        }
    for (int tag = 0; g_rank && tag < kTags; ++tag) {
        const int size = tag * 1000;
        fill(g_out, g_rank, tag, size);
        MPI_Ssend(g_out, size, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
    }
    for (int n = 0; !g_rank && n < kTags * (g_ranks - 1); ++n) {
        MPI_Status status;
        int size;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &size);
        check(size == status.MPI_TAG * 1000, "the size of a message from anybody");
        MPI_Recv(g_in, size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(holds(g_in, status.MPI_SOURCE, status.MPI_TAG, size), "a message from anybody");
    }
}

static void collectives(MPI_Comm all)
{
    int rank, ranks;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    for (int root = 0; root < ranks; ++root) {
        if (rank == root)
            fill(g_out, root, 0, g_largest);
        else
            memset(g_out, 0, (size_t)g_largest);
        MPI_Bcast(g_out, g_largest, MPI_BYTE, root, all);
        check(holds(g_out, root, 0, g_largest), "MPI_Bcast");
    }
    for (int size = 1; size * ranks <= g_largest; size = size * 15 + 1) {
        for (int to = 0; to < ranks; ++to)
            fill(g_out + to * size, rank, to, size);
        MPI_Alltoall(g_out, size, MPI_BYTE, g_in, size, MPI_BYTE, all);
        for (int from = 0; from < ranks; ++from)
            check(holds(g_in + from * size, from, rank, size), "MPI_Alltoall");
    }
    const int many = g_largest / (int)sizeof(int);
    int *out = (int *)g_out, *in = (int *)g_in;
    for (int i = 0; i < many; ++i)
        out[i] = i + rank;
    MPI_Allreduce(out, in, many, MPI_INT, MPI_SUM, all);
    for (int i = 0; i < many; ++i)
        check(in[i] == i * ranks + ranks * (ranks - 1) / 2, "MPI_Allreduce");
}

/* Each rank puts what it has into the next one's window, and gets it back from there. */
static void windows(void)
{
    const int next = (g_rank + 1) % g_ranks, last = (g_rank + g_ranks - 1) % g_ranks;
    unsigned char *window;
    MPI_Win win;
    MPI_Win_allocate(g_largest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    fill(g_out, g_rank, next, g_largest);
    MPI_Win_fence(0, win);
    MPI_Put(g_out, g_largest, MPI_BYTE, next, 0, g_largest, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    check(holds(window, last, g_rank, g_largest), "MPI_Put");
    MPI_Get(g_in, g_largest, MPI_BYTE, next, 0, g_largest, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    check(holds(g_in, g_rank, next, g_largest), "MPI_Get");
    MPI_Win_free(&win);
}

/* As many as the program likes are begun before one is waited for: all receives first, or all sends. */
static void at_once(int count, int size, int receives_first)
{
    const int next = (g_rank + 1) % g_ranks, last = (g_rank + g_ranks - 1) % g_ranks;
    const size_t room = (size_t)count * (size_t)size;
    unsigned char *in = calloc(room, 1), *out = malloc(room);
    MPI_Request *requests = malloc(2 * (size_t)count * sizeof *requests);
    for (int i = 0; i < count; ++i)
        fill(out + (size_t)i * (size_t)size, g_rank, next + i, size);
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < count; ++i) {
            if ((half == 0) == receives_first)
                MPI_Irecv(in + (size_t)i * (size_t)size, size, MPI_BYTE, last, i, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Isend(out + (size_t)i * (size_t)size, size, MPI_BYTE, next, i, MPI_COMM_WORLD, &requests[count + i]);
        }
        if (receives_first)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; ++i)
        check(holds(in + (size_t)i * (size_t)size, last, g_rank + i, size), "many at once");
    free(requests);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    if (argc > 1)
        g_largest = atoi(argv[1]);
    if (argc > 2)
        g_rounds = atoi(argv[2]);
    check(g_largest >= kLeast && g_rounds > 0, "the arguments");
    g_out = malloc((size_t)g_largest);
    g_in = malloc((size_t)g_largest);
    for (int step = 1; step < g_ranks; ++step)
        exchange(step);
    by_tag();
    at_once(kMany, sizeof(int), 1);
    at_once(kManyLong, kLong, 0);
    collectives(MPI_COMM_WORLD);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, -g_rank, &half); /* in the reverse order */
    collectives(half);
    MPI_Comm_free(&half);
    windows();
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (g_rank == 0)
        printf("%d of %d ranks: all as sent\n", sum, g_ranks);
    MPI_Finalize();
    free(g_out);
    free(g_in);
    return 0;
}
