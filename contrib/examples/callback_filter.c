/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams that begin with '!' never reach the program's recv(): a receive callback drops them.
 * cc callback_filter.c -o callback_filter; LD_PRELOAD=libvma.so ./callback_filter PORT COUNT
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <mellanox/vma_extra.h>

static vma_recv_callback_retval_t filter(int fd, size_t parts, struct iovec part[], struct vma_info_t *info, void *context)
{
    long *const dropped = context;
    (void)fd;
    if (parts == 0 || info->payload_sz == 0 || *(const char *)part[0].iov_base != '!')
        return VMA_PACKET_RECV;
    ++*dropped;
    return VMA_PACKET_DROP;
}

int main(int argc, char **argv)
{
    struct vma_api_t *const vma = vma_get_api();
    struct sockaddr_in here = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const long count = argc > 2 ? atol(argv[2]) : 0;
    long dropped = 0;
    if (vma == NULL || count <= 0) {
        fprintf(stderr, "usage: LD_PRELOAD=libvma.so %s PORT COUNT\n", argv[0]);
        return 1;
    }
    here.sin_port = htons((uint16_t)atoi(argv[1]));
    if (bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0 || vma->register_recv_callback(fd, filter, &dropped) != 0) {
        perror("bind, register_recv_callback");
        return 1;
    }
    for (long i = 0; i < count; ++i) {
        char bytes[65536];
        const ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        if (n < 0 || bytes[0] == '!') {
            fprintf(stderr, "recv() gave what was to be dropped\n");
            return 1;
        }
    }
    vma->register_recv_callback(fd, NULL, NULL);
    printf("%ld received, %ld dropped\n", count, dropped);
    return 0;
}
