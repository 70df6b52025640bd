/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives datagrams where they lie, without a copy, and says how many bytes they were.
 * cc zcopy_receiver.c -o zcopy_receiver; LD_PRELOAD=libvma.so ./zcopy_receiver PORT COUNT
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <mellanox/vma_extra.h>

/* Room for one packet of up to 8 parts, or for a datagram that had to be copied. */
static union {
    struct vma_packets_t packets;
    char bytes[65536];
} room;

static size_t look_at(const struct vma_packet_t *packet)
{
    size_t bytes = 0;
    for (size_t i = 0; i < packet->sz_iov; ++i)
        bytes += packet->iov[i].iov_len; /* iov_base: the first of them */
    return bytes;
}

int main(int argc, char **argv)
{
    struct vma_api_t *const vma = vma_get_api();
    struct sockaddr_in here = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const long count = argc > 2 ? atol(argv[2]) : 0;
    long lent = 0;
    size_t bytes = 0;
    if (vma == NULL || count <= 0) {
        fprintf(stderr, "usage: LD_PRELOAD=libvma.so %s PORT COUNT\n", argv[0]);
        return 1;
    }
    here.sin_port = htons((uint16_t)atoi(argv[1]));
    if (bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0) {
        perror("bind");
        return 1;
    }
    for (long i = 0; i < count; ++i) {
        int flags = 0;
        const int n = vma->recvfrom_zcopy(fd, &room, sizeof(room), &flags, NULL, NULL);
        if (n < 0) {
            perror("recvfrom_zcopy");
            return 1;
        }
        if (flags & MSG_VMA_ZCOPY) {
            ++lent;
            bytes += look_at(&room.packets.pkts[0]);
            vma->free_packets(fd, room.packets.pkts, room.packets.n_packet_num);
        } else {
            bytes += (size_t)n;
        }
    }
    printf("%ld datagrams, %ld of them without a copy, %zu bytes\n", count, lent, bytes);
    return 0;
}
