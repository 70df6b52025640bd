/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extensions of the `vma` libfabric provider, the part of TCP over Ethernet ports: the type of endpoint, how TCP is
 * done, how a connection comes from the kernel's socket and goes back. Included by fi_ext_vma.h, which programs
 * include.
 */
#ifndef FI_EXT_VMA_STREAM_H
#define FI_EXT_VMA_STREAM_H

#include <stdint.h>
#include <string.h>

#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The highest bit, which values of providers have. libfabric 2.x has no name for it any more. */
#define FI_VMA_SPECIFIC (1U << 31)

/*
 * FI_EP_VMA_STREAM, a type of endpoint (fi_vma_make_stream() of ep_attr) of Ethernet ports: a TCP connection of our own
 * to any peer, past the kernel. Fabric "ethernet", one domain a port, by the interface's name. A stream of bytes, so
 * calls mean what those of sockets do; nothing is ever posted:
 *
 * fi_send(), fi_sendv(), fi_sendmsg()   take as many bytes as there is room for: the number, 1 or more, or -FI_EAGAIN.
 *       They are copied. With FI_MORE they may wait for what comes next. -FI_EPIPE after fi_shutdown().
 * fi_recv(), fi_recvv(), fi_recvmsg()   give the bytes that are there: the number, 0 at the peer's end, or -FI_EAGAIN.
 *       With FI_PEEK (fi_recvmsg) they stay.
 * both: how the connection has failed, once, as a negative fi_errno: -FI_ECONNRESET, -FI_ETIMEDOUT.
 *
 * fi_connect(), fi_listen(), fi_accept(), fi_reject(), fi_shutdown() (the sending half) and the event queue are those
 * of FI_EP_MSG, but for private data, of which TCP has none. FI_SHUTDOWN tells that the peer sends no more, or that the
 * connection has failed; what it sent can be read after it. fi_close() lets what was sent arrive.
 *
 * Completion queues tell readiness, by its edge: one entry with FI_RECV when there is something to read (its length
 * says how much) after a -FI_EAGAIN or for the first time, one with FI_SEND when there is room again after a send that
 * took less than all; the entry's op_context is the endpoint's. Reading the queue, or an event queue of the fabric,
 * makes the progress of all connections of the port.
 *
 * The port of the local address is kept from the kernel's sockets while it is used. It takes CAP_NET_RAW, CAP_NET_ADMIN
 * and CAP_BPF.
 */
#define FI_EP_VMA_STREAM (FI_VMA_SPECIFIC | 0x564d0001)

/* Makes it the type. The value is none of enum fi_ep_type's, which C++ may not assign. */
static inline void fi_vma_make_stream(struct fi_ep_attr *attr)
{
    const uint32_t type = FI_EP_VMA_STREAM;
    memcpy(&attr->type, &type, sizeof type);
}

/*
 * FI_OPT_VMA_TCP (FI_EP_VMA_STREAM, also passive endpoints, whose connections inherit it): how TCP is done. fi_getopt,
 * and fi_setopt at any time; what is marked (o) holds for connections that are opened later. Errors: -FI_EINVAL (length
 * of optval, a value). Read it, change what is to be another, set it.
 */
#define FI_OPT_VMA_TCP (FI_VMA_SPECIFIC | 0x564d0012)

enum fi_vma_congestion { FI_VMA_CUBIC = 0, FI_VMA_NEWRENO = 1 };

struct fi_vma_tcp {
    uint32_t send_buffer;    /* bytes that are taken before they are acknowledged; 1 or more */
    uint32_t receive_buffer; /* the largest window, bytes; (o) for its scale; 1 or more */
    uint32_t max_segment;    /* bytes (o); 0: as the path allows; else 64 or more, to 65535 */
    uint32_t
        user_timeout; /* ms until what isn't acknowledged ends the connection (RFC 5482); 0: by the number of retries */
    uint32_t keepalive_idle;     /* s; 1 or more */
    uint32_t keepalive_interval; /* s; 1 or more */
    uint64_t rate;               /* bytes of data a second; 0: no limit */
    uint8_t keepalive_probes;    /* 1 or more */
    uint8_t syn_retries;         /* (o) */
    uint8_t congestion;          /* enum fi_vma_congestion */
    uint8_t traffic_class;       /* of IP, without the two bits of ECN */
    uint8_t hop_limit;           /* 1 or more */
    uint8_t keepalive;           /* this and all below: 0 or 1 */
    uint8_t nodelay;             /* no Nagle */
    uint8_t cork;                /* full segments only */
    uint8_t quick_ack;           /* each segment is acknowledged at once */
    uint8_t timestamps;          /* (o) RFC 7323 */
    uint8_t sack;                /* (o) RFC 2018 */
    uint8_t window_scaling;      /* (o) RFC 7323 */
    uint8_t ecn;                 /* (o) RFC 3168: ask for it */
    uint8_t unused[3];           /* 0 */
    uint32_t syn_rate; /* of a passive endpoint: connections that begin a second, the rest try again; 0: no limit */
    uint32_t quick_ack_most; /* bytes of a segment to which quick_ack applies; 0: all */
};

/*
 * FI_OPT_VMA_LIFT (FI_EP_VMA_STREAM, fi_setopt only; optval is an int): the descriptor of a TCP socket of the kernel's.
 * Its connection is carried on by this endpoint, as if both had always been one; the peer notices nothing. The endpoint
 * is enabled and has no connection; it is connected afterwards, and FI_CONNECTED is not told. The socket stays open,
 * keeps the port, and is not to be used for anything but FI_OPT_VMA_LAND: nothing comes by it, and closing it tells the
 * peer nothing. What the socket has not sent, or its program has not read, comes along. Settings don't
 * (FI_OPT_VMA_TCP), SO_KEEPALIVE should be off. Errors, after which the socket is as before: -FI_EOPBADSTATE (the
 * endpoint), -FI_ENOTCONN (the socket is not connected, or one side has
 *     finished), -FI_ENODEV (its peer is not reached by this port), -FI_EBUSY (it has a socket filter), -FI_EPERM (CAP_NET_ADMIN),
 *     -FI_EAGAIN (more is queued than can be taken, or a mark of urgent data is ahead: later), -FI_ENOMEM, -FI_ENOSPC (no more flows can be steered), others of the socket.
 * Nobody else may be in a call on the socket meanwhile.
 *
 * FI_OPT_VMA_LAND (likewise): the way back, into the same socket, with what is queued on both sides. A connection that
 * the peer has finished or reset is so for the socket, too, after what came before. The endpoint can only be closed
 * then. Urgent data has a place in the kernel's socket only: when the peer sends some, the endpoint takes and
 * acknowledges nothing more and tells FI_SHUTDOWN (`urgent` of FI_OPT_VMA_TCP_STATE); the peer sends it again to the
 * socket. Errors: -FI_EOPBADSTATE (it has not lifted a connection); else the connection is lost, reset towards the
 * peer, and the socket closed: -FI_ETIMEDOUT and
 *     others that ended the connection before, or what the kernel said.
 *
 * Both take the station's lock for their whole length, some 0.1 ms.
 */
#define FI_OPT_VMA_LIFT (FI_VMA_SPECIFIC | 0x564d0013)
#define FI_OPT_VMA_LAND (FI_VMA_SPECIFIC | 0x564d0014)

/*
 * FI_OPT_VMA_TCP_STATE (FI_EP_VMA_STREAM, fi_getopt only; -FI_ENOTCONN before there is a connection): how it is doing.
 */
#define FI_OPT_VMA_TCP_STATE (FI_VMA_SPECIFIC | 0x564d0015)

struct fi_vma_tcp_state {
    uint64_t bytes_sent; /* of data, retransmissions not counted */
    uint64_t bytes_received;
    uint64_t segments_sent;
    uint64_t segments_received;
    uint32_t readable;          /* bytes */
    uint32_t unacknowledged;    /* bytes that were taken: not sent, or not acknowledged */
    uint32_t unsent;            /* of these: not sent */
    uint32_t retransmissions;   /* segments */
    uint32_t rtt;               /* smoothed round trip, us; 0: not known */
    uint32_t rtt_variation;     /* us */
    uint32_t rto;               /* us */
    uint32_t segment;           /* bytes of data in a full one */
    uint32_t congestion_window; /* bytes */
    uint32_t threshold;         /* of slow start, bytes; UINT32_MAX: none yet */
    uint32_t peer_window;       /* bytes */
    uint32_t receive_window;    /* bytes */
    uint32_t
        urgent; /* 1: the peer has sent urgent data to a connection that was lifted; nothing more is taken until it lands */
    uint32_t reserved; /* 0 */
};

#ifdef __cplusplus
}
#endif

#endif /* FI_EXT_VMA_STREAM_H */
