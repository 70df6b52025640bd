/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MPI of which one rank kills itself while the others wait for its messages. The harness compiles it with mpicc; it is
 * not part of the build.
 */
#include <mpi.h>
#include <signal.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, value = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 1)
        raise(SIGKILL);
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
