/* SPDX-License-Identifier: BSD-2-Clause */
/* Two MPI ranks: messages of many sizes both ways, checked, a reduction and a barrier. The harness compiles it with
 * mpicc where there is one; it is not part of the build. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte_of(int size, int i) { return (unsigned char)(size * 31 + i * 7); }

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    enum { kLargest = 4 << 20 };
    unsigned char *out = malloc(kLargest), *in = malloc(kLargest);
    for (int size = 1; size <= kLargest; size = size * 3 + 1) {
        for (int round = 0; round < 10; ++round) {
            for (int i = 0; i < size; ++i)
                out[i] = byte_of(size, i);
            MPI_Request requests[2];
            MPI_Irecv(in, size, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(out, size, MPI_BYTE, 1 - rank, round, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < size; ++i)
                if (in[i] != byte_of(size, i)) {
                    printf("wrong byte %d of %d\n", i, size);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
        }
    }
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d of %d ranks: all as sent\n", sum, ranks);
    MPI_Finalize();
    return 0;
}
