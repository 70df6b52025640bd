/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Echoes datagrams and streams of one port without recv(), accept() or epoll_wait(): socketxtreme_poll() says all. It
 * ends with a stream that sends "quit". cc socketxtreme_echo.c -o socketxtreme_echo; VMA_SOCKETXTREME=1
 * LD_PRELOAD=libvma.so ./socketxtreme_echo PORT
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <mellanox/vma_extra.h>

static int bound(int type, uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    const int fd = socket(AF_INET, type, 0);
    const int on = 1;
    here.sin_port = htons(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0 || (type == SOCK_STREAM && listen(fd, 16) != 0)) {
        perror("bind");
        exit(1);
    }
    return fd;
}

/* 1: it was the word that ends this program. */
static int echo(int fd, int datagrams, const struct vma_completion_t *it)
{
    int quits = 0;
    for (struct vma_buff_t *part = it->packet.buff_lst; part != NULL; part = part->next) {
        quits = fd != datagrams && part->len == 4 && memcmp(part->payload, "quit", 4) == 0;
        if (fd == datagrams)
            sendto(fd, part->payload, part->len, 0, (const struct sockaddr *)&it->src, sizeof(it->src));
        else if (send(fd, part->payload, part->len, MSG_NOSIGNAL) != part->len)
            perror("send");
    }
    return quits;
}

int main(int argc, char **argv)
{
    struct vma_api_t *const vma = vma_get_api();
    struct vma_completion_t done[16];
    int ring = -1;
    if (vma == NULL || argc < 2 || !(vma->vma_extra_supported_mask & VMA_EXTRA_API_SOCKETXTREME_POLL)) {
        fprintf(stderr, "usage: VMA_SOCKETXTREME=1 LD_PRELOAD=libvma.so %s PORT\n", argv[0]);
        return 1;
    }
    const int datagrams = bound(SOCK_DGRAM, (uint16_t)atoi(argv[1]));
    const int listener = bound(SOCK_STREAM, (uint16_t)atoi(argv[1]));
    if (vma->get_socket_rings_fds(listener, &ring, 1) != 1) {
        perror("get_socket_rings_fds");
        return 1;
    }
    for (int quits = 0; !quits;) {
        const int n = vma->socketxtreme_poll(ring, done, 16, 0);
        for (int i = 0; i < n; ++i) {
            const int fd = (int)done[i].user_data;
            if (done[i].events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED)
                printf("accepted %d of %d\n", fd, done[i].listen_fd);
            if (done[i].events & VMA_SOCKETXTREME_PACKET) {
                quits |= echo(fd, datagrams, &done[i]);
                vma->socketxtreme_free_vma_packets(&done[i].packet, 1);
            }
            if (done[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
                printf("ended %d\n", fd);
                close(fd);
            }
        }
    }
    return 0;
}
