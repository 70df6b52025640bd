/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extensions of the `vma` libfabric provider: everything a program can ask of it that libfabric's own
 * headers have no name for. Values are in the ranges libfabric reserves for providers (FI_VMA_SPECIFIC).
 */
#ifndef FI_EXT_VMA_H
#define FI_EXT_VMA_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_ext_vma_stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * FI_OPT_VMA_REGION (level FI_OPT_ENDPOINT, FI_EP_MSG): memory of this endpoint that its one peer may write.
 *
 * A region is allocated and registered by the provider where its device reaches it best: pages that the peer process
 * maps (local), registered memory (verbs). It lives until fi_close() of the endpoint. Where the endpoint was opened for
 * a connection request, or with the dest_addr of who listens there, it may be that of an earlier connection between the
 * two processes, and hold what was written then; fi_connect() to anybody else, or when the other process has ended,
 * then ends with FI_ECONNREFUSED, and another endpoint is what helps.
 *
 * fi_setopt: optval is a size_t, bytes wanted, 1 .. 1 GiB, before fi_enable(). Errors: -FI_EINVAL (size, length of
 *     optval), -FI_EOPBADSTATE (enabled already), -FI_ENOMEM.
 * fi_getopt: optval is a struct fi_vma_region, after fi_enable(). Not thread-safe with fi_close().
 *
 * The peer writes it with fi_write*(addr = offset in the region, key = FI_VMA_REGION_KEY). A write outside the region
 * fails at the sender with -FI_EINVAL, and is refused by the receiver (the connection ends) if a sender tries anyway.
 *
 * A sender must not write again to bytes of which the receiver has not yet read the completion of the earlier write:
 * the two writes may take effect in any order.
 *
 * Writes to a region may carry FI_INJECT (fi_inject_writedata included) up to FI_OPT_VMA_REGION_INJECT bytes, more than
 * inject_size says for other targets: the buffer is the caller's again on return, and no completion is made.
 */
#define FI_OPT_VMA_REGION (FI_VMA_SPECIFIC | 0x564d0001)

/*
 * fi_getopt: optval is a size_t: length of the peer's region in bytes, 0 if it has none. -FI_ENOTCONN before
 * FI_CONNECTED.
 */
#define FI_OPT_VMA_PEER_REGION (FI_VMA_SPECIFIC | 0x564d0002)

/*
 * fi_getopt: optval is an int: 1 where the memory that this endpoint receives in is what an earlier connection of the
 * same two processes has left, so that the way between them is short; else 0. -FI_EOPBADSTATE before fi_enable().
 */
#define FI_OPT_VMA_REUSED (FI_VMA_SPECIFIC | 0x564d0023)

/* fi_getopt: optval is a size_t: the most bytes that one FI_INJECT write to the peer's region may have. */
#define FI_OPT_VMA_REGION_INJECT (FI_VMA_SPECIFIC | 0x564d0003)

/*
 * fi_getopt: optval is a `const void *`: this side's mapping of the peer's region, NULL if the device has none. Before
 * it returns, the provider applies this side's own writes that the peer has not taken yet, so what was written can be
 * read back. For a connected endpoint, and after FI_SHUTDOWN until fi_close(). The peer must not take writes meanwhile
 * whose place is written again (a sender that stopped writing is safe). From then on the peer can't cut
 * (FI_OPT_VMA_CUT); -FI_ESHUTDOWN where it has: what it accepted stays its own.
 */
#define FI_OPT_VMA_PEER_VIEW (FI_VMA_SPECIFIC | 0x564d0004)

/*
 * FI_OPT_VMA_CUT (FI_EP_MSG of the local device): fi_setopt without a value (optlen 0) ends what this endpoint
 * receives, at one place that both sides know: each write to the region that its sender was told has succeeded is
 * taken, and has its completion; each later one fails at the sender, with -FI_ESHUTDOWN or -FI_ENOTCONN. Neither side
 * waits for the other, which may be stopped. Call it until it returns 0; then read the completion queue until it is
 * empty. What this endpoint sends isn't changed by it.
 *
 * Errors: -FI_EAGAIN: read the completion queue and call again; -FI_ENORX: a message waits for a receive, so post one
 * and call again; -FI_EBUSY: the peer reads back what it has written (FI_OPT_VMA_PEER_VIEW), so nothing is cut;
 * -FI_EIO: the peer breaks the rules of the queue, and FI_SHUTDOWN follows: what it wrote last may be lost;
 * -FI_ENOTCONN before FI_CONNECTED; -FI_EINVAL: a value; -FI_ENOPROTOOPT: another device. Thread-safe, but with
 * fi_close().
 */
#define FI_OPT_VMA_CUT (FI_VMA_SPECIFIC | 0x564d0018)

/*
 * FI_OPT_VMA_NUDGE (FI_EP_MSG of the local device): fi_setopt without a value (optlen 0): the peer is to look at its
 * completion queues now, for what was written before: the wait object of its endpoint's event queue gets readable, and
 * fi_trywait() of that queue says -FI_EAGAIN, until a read that began later has found no event. For what can't wait
 * for a peer that computes, and has a thread asleep on its event queue. It costs a system call. -FI_ENOTCONN before
 * FI_CONNECTED and after the end; -FI_EINVAL: a value; -FI_ENOPROTOOPT: another device. Thread-safe, but with
 * fi_close().
 */
#define FI_OPT_VMA_NUDGE (FI_VMA_SPECIFIC | 0x564d001a)

/*
 * FI_OPT_VMA_DISCARD (FI_EP_MSG of the local device): fi_setopt: optval is a struct fi_vma_range, a part of the peer's
 * region of which nobody needs what is in it. Its whole pages go back to the system, and are zeros until something is
 * written there. The caller makes sure that the peer reads nothing of it, and that nothing of this side's is on its way
 * there. -FI_EINVAL: beyond the region; -FI_ENOTCONN before FI_CONNECTED; -FI_ENOPROTOOPT: another device; any other
 * error: the system keeps them, as after mlock(2).
 */
#define FI_OPT_VMA_DISCARD (FI_VMA_SPECIFIC | 0x564d0019)

struct fi_vma_range {
    uint64_t offset;
    uint64_t length;
};

/*
 * FI_OPT_VMA_KEEP_REGION (FI_EP_MSG): fi_getopt: optval is a struct fi_vma_mapping, which is filled. From then on the
 * memory that this endpoint's region is in stays after fi_close(), as it then is: the caller ends it, by munmap().
 * -FI_EOPBADSTATE before fi_enable(), or without a region.
 */
#define FI_OPT_VMA_KEEP_REGION (FI_VMA_SPECIFIC | 0x564d000c)

struct fi_vma_mapping {
    void *base;
    size_t len; /* bytes */
};

/*
 * Datagrams (FI_EP_DGRAM) that were lost, as a uint64_t, since the endpoint was enabled. fi_getopt only, at any time.
 *
 * FI_OPT_VMA_TX_DROPS: of those that this endpoint sent: the receiver had no room, or nobody had the name.
 * FI_OPT_VMA_RX_DROPS: of those sent to this endpoint, which found its room full. -FI_EOPBADSTATE before fi_enable().
 */
#define FI_OPT_VMA_TX_DROPS (FI_VMA_SPECIFIC | 0x564d0005)
#define FI_OPT_VMA_RX_DROPS (FI_VMA_SPECIFIC | 0x564d0006)

/*
 * FI_OPT_VMA_TAKER (FI_EP_DGRAM): a function that is given the datagrams that arrive, instead of posted receives. For a
 * program that finds out itself where each one belongs, and wants them copied once.
 *
 * fi_setopt only: optval is a struct fi_vma_taker, before fi_enable(). Errors: -FI_EINVAL (length of optval, no
 * function),
 *     -FI_EOPBADSTATE (enabled already). fi_recv() and its relatives then fail with -FI_EOPNOTSUPP.
 *
 * `take` is called while the completion queue is read that the endpoint's receives are bound to, or anything else is
 * called that reads it (fi_cq_sread, fi_cntr_read), by that thread and with the queue's lock held: it must not block
 * nor call into the provider. Of one endpoint there is one call at a time; datagrams of one sender come in their order.
 * `payload`, not aligned to more than 16 bytes, is memory that the sending process can still write: copy first, then
 * check the copy. `data` is FI_REMOTE_CQ_DATA, or 0 for a datagram without. Result:
 *
 * 1  taken. No completion is made; a counter of receives counts it. 0  not now. It stays, and what its sender sent
 * after it, and is offered again when the queue is read next, or later
 *      in the same read. Nothing of it is lost or counted, but its sender's room may fill up meanwhile. As long as one is
 *      left, fi_trywait() returns -FI_EAGAIN, and fi_cq_sread() doesn't sleep.
 */
#define FI_OPT_VMA_TAKER (FI_VMA_SPECIFIC | 0x564d0007)

/*
 * Who lends what has arrived. give_back() ends a loan, by any thread, once, in any order, also after the endpoint was
 * closed: the memory stays until then. `payload` and `length` are those that were given. Not in a forked child, which
 * has no such memory.
 */
struct fi_vma_lender {
    void (*give_back)(struct fi_vma_lender *lender, const void *payload, size_t length);
    /*
     * Of what is offered to a function that may keep it: makes it a loan now. That function calls it before another
     * thread can know of the payload, and give it back; it may leave it out if none can before the function has
     * returned. NULL: what this one lends is a loan already.
     */
    void (*lend)(struct fi_vma_lender *lender, const void *payload, size_t length);
};

/*
 * FI_OPT_VMA_LEND (FI_EP_VMA_STREAM, fi_getopt only; optval is a struct fi_vma_loan, *optlen its size): fi_recv()
 * without the copy into the program's memory. `length` says how much is wanted, 1 or more. 0, and the rest is filled:
 * bytes that lie in one piece in the stack's memory are read, and stay there, readable, until lender->give_back(); at
 * the end of the stream `length` is 0, and there is nothing to give back. The peer's window is not narrower for them. A
 * quarter of a station's memory can be lent. Errors: -FI_ENOBUFS (nothing was read: as much is lent, or 0 bytes are
 * wanted; fi_recv() reads), and those of fi_recv(). Thread-safe as fi_recv() is.
 */
#define FI_OPT_VMA_LEND (FI_VMA_SPECIFIC | 0x564d0016)

struct fi_vma_loan {
    struct fi_vma_lender *lender;
    const void *payload;
    size_t length; /* bytes */
    size_t left;   /* bytes that can be read after these */
};

/*
 * `keep`, where it is not NULL, is called instead of `take`, and may have a third result, if `lender` is not NULL:
 *
 * 2  taken, and the payload stays where it is, readable, until lender->give_back(). Half of a sender's room can be
 * lent.
 */
struct fi_vma_taker {
    int (*take)(void *context, const void *payload, size_t length, uint64_t data);
    void *context;
    int (*keep)(void *context, const void *payload, size_t length, uint64_t data, struct fi_vma_lender *lender);
};

enum {
    FI_VMA_KEPT = 2,
};

/*
 * FI_OPT_VMA_MEET (FI_EP_DGRAM, local device): makes the way to a receiver before something is sent. What is sent
 * before the receiver has taken its end of it arrives as soon as it has, which a receiver that only looks now and then
 * finds late; what is sent after success is there for the receiver's next look.
 *
 * fi_setopt only, after fi_enable(): optval is an fi_addr_t. It doesn't wait: call it again. Thread-safe as the data
 * calls are. Errors: -FI_EINPROGRESS (the receiver has not taken it yet), -FI_ECONNREFUSED (nobody has the name),
 * -FI_EAGAIN (tried a moment
 *     ago), -FI_EINVAL (length of optval, a group, an address that is not in the vector), -FI_EOPBADSTATE (not enabled).
 */
#define FI_OPT_VMA_MEET (FI_VMA_SPECIFIC | 0x564d000b)

/*
 * FI_OPT_VMA_WARM (FI_EP_MSG and FI_EP_DGRAM, local device): fi_setopt only: the memory that a send would write, or a
 * write to the peer's region, is brought to this processor's caches, to be written soon. Nothing is sent, and nothing
 * changes. Thread-safe as the data calls are. Errors: -FI_EINVAL (length of optval), -FI_ENOTCONN (there is no way to
 * the peer now).
 */
#define FI_OPT_VMA_WARM (FI_VMA_SPECIFIC | 0x564d0020)

struct fi_vma_warm {
    fi_addr_t to;    /* FI_EP_DGRAM: whom; no group */
    uint64_t offset; /* FI_EP_MSG: in the peer's region; beyond it: nothing of that */
    uint64_t length; /* bytes; of many, the first ones */
};

/*
 * FI_OPT_VMA_TCP_SOCKET (FI_EP_MSG, local device): the endpoint stands beside a TCP connection of the kernel's, and is
 * only connected with a process that shows that it has the descriptor of the connection's other end, or that may trace
 * this process (ptrace(2)) and says so, to an endpoint of which the same was asked. No privilege is needed, and nothing
 * is given away with which the peer could use or keep the connection.
 *
 * fi_setopt only, before fi_connect() or fi_accept(): optval is an int, the descriptor of an established TCP socket,
 * or a struct fi_vma_tcp_socket, which spares asking the kernel for what the program knows. The descriptor stays the
 * program's and must be open until fi_accept() has returned, or until FI_CONNECTED or the error that fi_connect() ends
 * with, as what it asks may be asked again. fi_accept() fails with -FI_EACCES, and fi_connect() ends with the error
 * FI_EACCES or FI_ECONNREFUSED, where the peer doesn't show it. Errors: -FI_EINVAL (length of optval, no TCP socket, no
 * network), -FI_ENOTCONN, -FI_ENOENT (no process of this network namespace has the other end), -FI_EOPBADSTATE
 * (connected already), another negative errno where the kernel can't be asked.
 */
#define FI_OPT_VMA_TCP_SOCKET (FI_VMA_SPECIFIC | 0x564d0022)

/* Where it is wrong the endpoint is not connected, as the two ends don't find each other. */
struct fi_vma_tcp_socket {
    int fd;
    uint32_t unused;
    uint64_t network;          /* SO_NETNS_COOKIE of the socket; not 0 */
    struct sockaddr_in6 local; /* addresses of IPv4 are v4-mapped */
    struct sockaddr_in6 peer;
};

/*
 * FI_OPT_VMA_LINK (local device): a way to a process that the directory of names does not lead to, another user's
 * perhaps: a SOCK_SEQPACKET socket of the UNIX domain, in `socket`. On success it is the provider's.
 *
 * On a passive endpoint that listens: the socket is connected, or listens itself (then `id` names it). Requests that
 * come by it are for this endpoint alone. On an endpoint (FI_EP_MSG), after FI_OPT_VMA_TCP_SOCKET and before
 * fi_connect(), which goes by it and needs no address: the socket is connected. Who comes so is a guest: its
 * connections have doorbells of their own, all that is copied goes by their segments, and no memory is registered for
 * it. So it can spoil, stop or end what it shares with us, and nothing else; but only an endpoint that asks for
 * FI_OPT_VMA_TCP_SOCKET before fi_accept() knows whom it takes.
 *
 * FI_OPT_VMA_UNLINK, on the passive endpoint: the socket that listens by the name of `id` is closed; what has come by
 * it stays. Errors of both: -FI_EINVAL (length of optval, no such socket), -FI_EOPBADSTATE (it doesn't listen, is
 * connected), -FI_ENOENT (no such id), -FI_ENOMEM.
 */
#define FI_OPT_VMA_LINK (FI_VMA_SPECIFIC | 0x564d0030)
#define FI_OPT_VMA_UNLINK (FI_VMA_SPECIFIC | 0x564d0031)

/*
 * `flags`: FI_VMA_LINK_INTRODUCED, of a connected socket: the program knows that who has the other one is at the other
 * end of the connection, as somebody whom both trust has given each of them one. FI_OPT_VMA_TCP_SOCKET is not needed
 * then, and `id`, not 0, is the number of the peer's process: all links of the same number share a doorbell. Its upper
 * half is the number of the peer's user, as that somebody counts users: what guests may take is shared out by users.
 */
#define FI_VMA_LINK_INTRODUCED 1U

struct fi_vma_link {
    int32_t socket;
    uint32_t flags;
    uint64_t id; /* the program's to choose; of a socket that listens, or was introduced */
};

/*
 * FI_OPT_VMA_RATE_LIMIT (FI_EP_MSG, FI_EP_DGRAM): how fast this endpoint sends. By the device's own limiter where it
 * has one, else in software, which sleeps on no thread: the endpoint's progress carries it out.
 *
 * fi_setopt, fi_getopt: optval is a struct fi_vma_rate_limit, at any time; a new rate holds from its moment on.
 * fi_getopt
 *     gives back what was set, and in `max_burst` the burst that holds. Errors: -FI_EINVAL (length of optval), a
 *     negative errno where no timer can be made, and nothing is changed. Thread-safe as the endpoint's data calls are.
 *
 * Counted are the bytes of messages, datagrams, writes (one without bytes is free), not those that fi_read*() asks for.
 * No more than `max_burst` bytes go at once, nor in any stretch of time more than that and what the rate gives for it;
 * but what is longer than half a burst and can't be cut goes whole, and what follows waits until it is paid for. A
 * sender that had something to send and came too late for its turn, as on a busy processor, makes up for up to 50 ms:
 * it then goes at up to twice the rate.
 *
 * FI_EP_MSG: operations are taken into the transmit queue as ever, go in their order when they are due, and complete
 * then; long ones
 *     go in pieces. One with FI_INJECT, a write to a region included, fails with -FI_EAGAIN when it is not due.
 * FI_EP_DGRAM: what is not due fails with -FI_EAGAIN, and is neither sent nor counted as lost.
 *
 * Whoever sleeps on the completion queue (fi_cq_sread, its wait descriptor, a counter) is woken when the next is due.
 * What was refused makes no completion: when it is due, or the limit is lifted, one fi_cq_sread() of the queue comes
 * back with -FI_EAGAIN before its time, or one fi_trywait() says -FI_EAGAIN, whichever looks first. A sender that has
 * gone on by itself meanwhile may be told all the same. fi_cntr_wait() waits for its threshold.
 *
 * On an RDMA device whose own limiter takes the rate, operations are taken and complete when they were due. On another
 * one each that is not due fails with -FI_EAGAIN: none waits in software. fi_cq_sread() then comes back when it is due,
 * as above; wait descriptors and counters don't wake for it (FI_OPT_VMA_RATE_DUE says when).
 */
#define FI_OPT_VMA_RATE_LIMIT (FI_VMA_SPECIFIC | 0x564d0008)

struct fi_vma_rate_limit {
    uint64_t rate;           /* bytes a second. 0, UINT64_MAX: no limit */
    uint32_t max_burst;      /* bytes. 0: 2 ms of the rate and at least 2 packets, or 50 ms of a slow rate */
    uint16_t typical_packet; /* bytes, a hint for it and for NICs. 0: 1500 */
};

/*
 * FI_OPT_VMA_RATE_DUE: fi_getopt only: optval is a uint64_t: when what was refused last, or is first in the transmit
 * queue, is due, in ns of CLOCK_MONOTONIC. 0: it is not the rate limit that anything waits for.
 */
#define FI_OPT_VMA_RATE_DUE (FI_VMA_SPECIFIC | 0x564d0009)

/*
 * FI_OPT_VMA_DEVICE_MEMORY (FI_EP_MSG of an RDMA device): memory on the NIC that this endpoint copies what it sends
 * into, if it is more than goes inline and there is room; else it is sent from where it is. Buffers need their
 * registration all the same.
 *
 * fi_setopt: optval is a size_t, bytes wanted, 1 .. 1 MiB, before fi_enable(). A device that has none, or none left, is
 * no error:
 *     `allocated` is then 0. Errors: -FI_EINVAL (size, length of optval), -FI_EOPBADSTATE (enabled already).
 * fi_getopt: optval is a struct fi_vma_device_memory.
 */
#define FI_OPT_VMA_DEVICE_MEMORY (FI_VMA_SPECIFIC | 0x564d000a)

struct fi_vma_device_memory {
    uint64_t allocated;     /* bytes on the device, 0: there is none */
    uint64_t bytes;         /* sent from there */
    uint64_t packets;       /* operations sent from there */
    uint64_t out_of_buffer; /* operations that found no room */
};

/*
 * Time-outs of a connection (FI_EP_MSG of an RDMA device). fi_setopt, fi_getopt: optval is a uint64_t, microseconds,
 * 1,000 (1 ms) to 86,400,000,000 (a day), 0: none, as it is from the start. At any time, also before the connection is
 * there. Errors: -FI_EINVAL (value, length of optval), a negative errno where no timer can be made. Thread-safe as
 * fi_connect() is.
 *
 * FI_OPT_VMA_KEEPALIVE_TIMEOUT: when nothing was received or acknowledged for so long, the peer's device is probed, of
 * which
 *     the peer's program notices nothing. Without an answer for as long again the connection ends. It is looked at four
 *     times in the time. While operations are under way it is the device that watches the peer (FI_VMA_RETRY_COUNT,
 *     FI_VMA_ACK_TIMEOUT).
 * FI_OPT_VMA_SEND_TIMEOUT: an operation (send, write, read) that is not complete after so long, and at most an eighth
 *     longer, fails with FI_ETIMEDOUT, and the connection ends, because the device can't take back a single one. Those
 *     posted later are cancelled (FI_ECANCELED). A peer that posts no receive counts as much as one that is dead.
 *
 * The end is FI_SHUTDOWN, as every end of a connection that was there. Time passes for who reads an event queue of the
 * fabric, sleeps in fi_eq_sread(), fi_cq_sread() or on an event queue's descriptor, or goes on reading completion
 * queues without a pause. The descriptor of a completion queue alone doesn't wake for it.
 */
#define FI_OPT_VMA_KEEPALIVE_TIMEOUT (FI_VMA_SPECIFIC | 0x564d0010)
#define FI_OPT_VMA_SEND_TIMEOUT (FI_VMA_SPECIFIC | 0x564d0011)

/*
 * FI_VMA_UNTIMED, in the flags of fi_cq_attr: nobody who sleeps on this queue is woken because something is due by the
 * rate limit, and FI_GETWAIT gives a plain eventfd. For a program that keeps time itself (FI_OPT_VMA_RATE_DUE), or
 * limits nothing: one epoll set less below its own.
 */
static const uint64_t FI_VMA_UNTIMED = UINT64_C(1) << 60;

/*
 * FI_VMA_SLEEPERS, a command of fi_control(3) for completion queues of the local device, whose argument is a `const
 * uint32_t *` that lives as long as the queue: the program counts there, atomically and before fi_trywait(3), the
 * threads that are to sleep on the descriptor, and takes each off before it reads again. Then a read wakes the others
 * only where there are some, where the queue else has to remember for ever that there may be. Somebody else reads an
 * event queue of the fabric all the time: fi_trywait(3) does not look at connections.
 */
#define FI_VMA_SLEEPERS (FI_VMA_SPECIFIC | 0x564d0027)

/*
 * FI_VMA_PLACES, a command of fi_control(3) for completion queues of the local device, whose argument is a struct
 * fi_vma_places, which is filled: where threads sleep by futex(2) that wait each for an endpoint of its own, so that
 * what comes for one wakes nobody else, and no descriptor is needed. `places` lie in memory that processes share, and
 * are there as long as the queue. The place of an endpoint is FI_OPT_VMA_PLACE, below; that of a datagram is bits 32 to
 * 63 of its data, modulo `count`.
 *
 * A thread that is to sleep reads `turn`; adds 2^32 + 1 to `asleep`; calls fi_trywait(3) for the queue, after which, if
 * that is 0, it sleeps by FUTEX_WAIT (not PRIVATE) as long as `turn` is what it has read; and takes 1 off `asleep`,
 * whatever has woken it. Then it reads the queue. All atomically, sequentially consistent. Who stops to read while
 * threads sleep calls fi_trywait(3) too. Another thread of the process wakes it by adding to `turn` and FUTEX_WAKE. It
 * may be woken for nothing: others may have the same place.
 *
 * Needs FI_VMA_SLEEPERS, which tells whether anybody sleeps on the descriptor besides. What ends a connection, and what
 * there is for senders, comes by the descriptor and the event queue alone.
 */
#define FI_VMA_PLACES (FI_VMA_SPECIFIC | 0x564d0028)

struct fi_vma_place {
    uint64_t asleep; /* upper half: sleeps begun; lower half: threads that sleep, or are about to */
    uint32_t turn;
    uint32_t reserved;
};

struct fi_vma_places {
    struct fi_vma_place *places;
    uint32_t count;
};

/*
 * fi_getopt (FI_EP_MSG of the local device): optval is a uint32_t: the endpoint's place. -FI_EOPBADSTATE before
 * fi_enable().
 */
#define FI_OPT_VMA_PLACE (FI_VMA_SPECIFIC | 0x564d0029)

/*
 * FI_VMA_PASSIVE, in the flags of fi_eq_attr: neither reading this queue nor sleeping on it makes progress; its
 * descriptor becomes readable for events alone, and for what other processes ask that share an Ethernet NIC, which
 * reading the queue answers. For a program that reads completion queues of the same fabric in any case.
 */
static const uint64_t FI_VMA_PASSIVE = UINT64_C(1) << 59;

/*
 * FI_VMA_TIMESTAMP, in the flags of fi_cq_attr (RDMA devices): completions have in `tag` the time at which the NIC made
 * them, in ns. The format is FI_CQ_FORMAT_TAGGED, or FI_CQ_FORMAT_UNSPEC, which then is the same.
 *
 * It is the NIC's own clock, one for all queues of a domain: it counts from some moment before the domain was opened,
 * is never set, and drifts from the host's clocks, as quartzes do, by some parts in 100,000. FI_VMA_CLOCKS compares. A
 * receive is stamped when the message is there, a send when it is acknowledged. Entries of fi_cq_readerr() have no
 * time: 0.
 *
 * fi_cq_open() fails with -FI_EOPNOTSUPP where there are no times (the local device, Soft-RoCE), with -FI_EINVAL for
 * another format,
 *     and a warning says so. Messages of such queues go by no short-message ring (FI_VMA_FAST_CONNECTIONS).
 */
static const uint64_t FI_VMA_TIMESTAMP = UINT64_C(1) << 61;

/*
 * FI_VMA_CLOCKS, a command of fi_control() on a queue with FI_VMA_TIMESTAMP: the argument is a struct fi_vma_clocks,
 * which is filled. It takes some microseconds. Two of them tell how much faster one clock is, and so what a time is by
 * the other. Errors: -FI_EINVAL (no argument), a negative fi_errno where the device does not answer; -FI_ENOSYS on
 * other queues. Thread-safe.
 */
#define FI_VMA_CLOCKS (FI_VMA_SPECIFIC | 0x564d0020)

struct fi_vma_clocks {
    uint64_t nic;       /* ns, as completions have them */
    uint64_t monotonic; /* ns of CLOCK_MONOTONIC at that moment */
    uint64_t within;    /* ns: `monotonic` is no farther off than this */
};

/*
 * FI_VMA_MODERATE, a command of fi_control() on a completion queue (RDMA devices, and Ethernet ports by their raw
 * packets): the argument is a struct fi_vma_moderation. The device holds back the interrupt that wakes who sleeps on
 * the queue until there are so many completions, or the first of them is so old. Whoever polls sees nothing of it. Both
 * 0: it holds back nothing, as in the beginning.
 *
 * Errors: -FI_EINVAL (no argument), -FI_EOPNOTSUPP (the device can't, as Soft-RoCE; or it is not this queue's alone, as
 * with AF_XDP),
 *     others that the device gives; -FI_ENOSYS on queues of the local device, which has no interrupts. Thread-safe.
 */
#define FI_VMA_MODERATE (FI_VMA_SPECIFIC | 0x564d0024)

struct fi_vma_moderation {
    uint16_t completions;
    uint16_t period; /* us */
};

/*
 * FI_VMA_QUEUE_COUNTERS, a command of fi_control() on a completion queue: the argument is a struct
 * fi_vma_queue_counters, which is filled. Counted is where somebody is about to sleep, and never where a queue is read.
 *
 * Errors: -FI_EINVAL (no argument); -FI_EOPNOTSUPP on queues of Ethernet ports by AF_XDP, whose wakes are the kernel's.
 * Thread-safe.
 */
#define FI_VMA_QUEUE_COUNTERS (FI_VMA_SPECIFIC | 0x564d0025)

struct fi_vma_queue_counters {
    uint64_t asked;   /* times that it was armed, so that something that comes wakes who sleeps */
    uint64_t woken;   /* times that something did: interrupts of a device, bells of a peer */
    uint64_t waiting; /* entries that wait in memory to be read; what is in a device's own queue nobody knows */
};

/*
 * FI_VMA_LOCAL_KEY, a command of fi_control() on registered memory (fi_mr_reg()) of an RDMA device, or of an Ethernet
 * port by its raw packets: the argument is a uint32_t, which becomes the key by which the device's own work requests
 * name the memory (lkey of ibv_reg_mr(3)).
 *
 * Errors: -FI_EINVAL (no argument), -FI_ENOSYS (the device has no such keys). Thread-safe.
 */
#define FI_VMA_LOCAL_KEY (FI_VMA_SPECIFIC | 0x564d0026)

/*
 * FI_VMA_TELL_DROP, a flag of fi_sendmsg() on an FI_EP_DGRAM: a datagram that can't be placed is an error of the call,
 * and not only a number in FI_OPT_VMA_TX_DROPS. No completion is made, no counter counts, and the datagram is gone. To
 * a group the flag means nothing.
 *
 * -FI_EAGAIN        the receiver's room is full: counted in FI_OPT_VMA_TX_DROPS and the receiver's FI_OPT_VMA_RX_DROPS.
 * Or,
 *                     not counted, there is no room for the completion in the queue.
 * -FI_ECONNREFUSED  nobody has the name, or its holder is gone: counted in FI_OPT_VMA_TX_DROPS. A process that was
 * killed
 *                     is found out some milliseconds later.
 *
 * FI_VMA_TRY is FI_VMA_TELL_DROP, and -FI_EAGAIN also while the receiver is behind: 256 KiB wait for it. Nothing is
 * counted then, and the caller tries again, or sends without FI_VMA_TRY: what a receiver leaves waiting, to 8 MiB, has
 * room in memory that it takes longer to reach.
 *
 * Bits 60 to 63 of operation flags are the providers', says <rdma/fabric.h>.
 */
static const uint64_t FI_VMA_TELL_DROP = UINT64_C(1) << 60;
static const uint64_t FI_VMA_TRY = UINT64_C(1) << 61;

#define FI_VMA_REGION_KEY (UINT64_C(0xfffffffffffffffe))

struct fi_vma_region {
    void *base;   /* owned by the provider */
    size_t len;   /* bytes, what was asked for */
    uint64_t key; /* FI_VMA_REGION_KEY */
};

/*
 * Completions of a peer's fi_*writedata (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) carry in op_context the context that the
 * *endpoint* was opened with (fi_endpoint's last argument), so that one completion queue can serve many connections.
 * fi_close() of an endpoint waits for nobody and leaves no entry of that endpoint in its completion queue.
 */

/*
 * FI_VMA_PROCESS_OPS: what a program needs that loads the provider itself (dlopen, fi_prov_ini) and not through
 * libfabric. fi_open_ops(&fabric->fid, FI_VMA_PROCESS_OPS, 0, (void **)&ops, NULL); the table lives as long as the
 * library. A later version may be longer: look at `size` before using what was added. All calls are thread-safe.
 */
#define FI_VMA_PROCESS_OPS "vma_process_1"

struct fi_vma_log {
    int (*enabled)(int level);                                         /* level: enum fi_log_level. 0 or 1 */
    void (*write)(int level, const char *subsystem, const char *text); /* one line, without its end */
};

/* Of one thread; FI_VMA_PROCESS_OPS, count_held. */
struct fi_vma_held {
    uint32_t locks;   /* others may count theirs here, too */
    uint64_t put_off; /* signals; the provider only reads it */
};

struct fi_ops_vma_process {
    size_t size;
    /* As fi_freeinfo(), with the allocator that the provider has: the program's may be another. NULL is allowed. */
    void (*freeinfo)(struct fi_info *info);
    /* 1 if the descriptor is one of the provider's own, which nobody else may close, replace or read; else 0. May be
     * called in a signal handler and in a forked child. */
    int (*owns_fd)(int fd);
    /* Where log lines go from now on, NULL: standard error. Not while libfabric.so uses the provider: then it has no
     * effect, and lines go to libfabric's log. `log` must stay for ever. */
    void (*set_log)(const struct fi_vma_log *log);
    /*
     * The directory that FI_VMA_DIR would name, for programs whose environment is gone by now; `path` must stay for
     * ever, NULL: as the environment says. Before the fabric's first endpoint.
     */
    void (*set_directory)(const char *path);
    /* The number that FI_VMA_GRO_STREAMS_MAX would say, likewise: for ports that are opened from then on. */
    void (*set_gro_streams)(const char *number);
    /* The word that FI_VMA_HUGE_PAGES would say, likewise. */
    void (*set_huge_pages)(const char *word);
    /* The word that FI_VMA_ETHERNET_STAMPS means where it isn't set, likewise; NULL: as the manual says. */
    void (*set_ethernet_stamps)(const char *word);
    /*
     * Where the memory of frames comes from, of ports that are opened from then on, in place of mmap(): some MiB a
     * queue, from any thread and with locks of the provider's held, so neither may call into it. It is given back when
     * the port is closed and nothing of it is lent. `allocate` may return NULL: then mmap() is asked. Both NULL: as at
     * first. Both must stay for ever.
     */
    void (*set_frame_allocator)(void *(*allocate)(size_t bytes), void (*release)(void *memory));
    /*
     * Opens the libraries that the devices of a fabric need ("verbs": rdma-core with its drivers, "ethernet": libmnl
     * and libbpf; hwloc), which the first call that needs them would do: for who would make that call with a lock held
     * that a constructor of any library may wait for. What is not installed is said in the log. Nothing for other
     * names.
     */
    void (*open_libraries)(const char *fabric);
    /*
     * Each thread has a struct fi_vma_held, 0 at first, as far from its thread pointer as `mine` is from the caller's
     * (C++: thread_local, initial-exec), and counts in it the locks of the provider's that it holds: those that are
     * taken from now on, for ever. Who ends the last one while `put_off` isn't 0 calls `deliver`, from which a handler
     * of the program's may run, or jump. This is for who puts handlers off meanwhile, as one that called into the
     * provider would wait for its own thread.
     */
    void (*count_held)(struct fi_vma_held *mine, void (*deliver)(void));
};

/*
 * FI_VMA_UDP_OPS: UDP of a port of the fabric "ethernet" for a socket of the kernel's, which stays as it is: it keeps
 * the port, gets what the port leaves to the kernel (fragments, other interfaces, this host's own), and its errors.
 * fi_open_ops(&fabric->fid, FI_VMA_UDP_OPS, 0, ...); -FI_ENOSYS: another fabric. The table lives as long as the
 * library. Calls for one domain, and reads of completion queues of it, are not made at the same time: the caller sees
 * to it. Event queues of its fabric are FI_VMA_PASSIVE.
 */
#define FI_VMA_UDP_OPS "vma_udp_3"

/* Addresses are 16 bytes, IPv4's as ::ffff:a.b.c.d; ports in network byte order. */
struct fi_vma_datagram {
    const void *payload; /* until the function returns */
    size_t length;
    uint8_t source[16];
    uint8_t target[16];
    uint16_t source_port;
    uint8_t traffic_class;
    uint8_t hop_limit;
    uint32_t interface;           /* index of the port's */
    int64_t arrived_ns;           /* CLOCK_MONOTONIC, when the kernel's driver had it; 0: not known */
    int64_t hardware_ns;          /* the device's own clock; 0: it has not stamped it */
    struct fi_vma_lender *lender; /* NULL: the payload can't be kept */
};

/* Which of these times are known: FI_VMA_ETHERNET_STAMPS. */
enum {
    FI_VMA_STAMPS_SOFTWARE = 1,
    FI_VMA_STAMPS_HARDWARE = 2,
};

struct fi_vma_times {
    int64_t device_ns;        /* as hardware_ns of datagrams */
    int64_t system_ns;        /* CLOCK_REALTIME at that moment */
    int64_t system_within_ns; /* it is no farther off than this, unless it was set just then */
    int64_t ptp_ns;           /* the PTP clock of the interface (/dev/ptpN) at that moment, where there is one */
    int64_t ptp_within_ns;    /* likewise */
    uint32_t has_ptp;         /* 0 or 1 */
    uint32_t unused;
};

/* Of all queues of a port. Frames are buffers of AF_XDP sockets or raw packet queue pairs. Since it was opened: */
struct fi_vma_port_counters {
    uint64_t dropped;        /* received frames that were lost, as far as the kernel says; a NIC counts its own */
    uint64_t shortage;       /* times that the driver found no frame to receive into */
    uint64_t send_shortage;  /* times that there was no frame to send */
    uint64_t block_shortage; /* segments that the stack had no memory for */
    uint64_t most_at_once;   /* the most frames that one look at a queue has taken */
    /* Now: */
    uint64_t waiting;     /* received frames that nobody has taken */
    uint64_t frames;      /* to receive into, */
    uint64_t frames_free; /* those of them that wait for one */
    uint64_t frames_lent; /* and those that the program keeps (FI_VMA_KEPT) */
    uint64_t send_frames; /* to send, */
    uint64_t send_free;   /* and those of them that are free: not those that were sent and not collected yet */
    uint64_t blocks;      /* of the memory of the stack's TCP, */
    uint64_t blocks_free; /* and those of them that are free */
};

struct fi_vma_udp_to {
    uint8_t address[16];
    uint16_t port;
    uint8_t traffic_class;
    uint8_t hop_limit;
    uint8_t source[16];   /* of a sender; sockets have their own */
    uint16_t source_port; /* likewise */
};

struct fi_vma_udp; /* one socket's, or a sender */

/* In the flags of open(): the socket gets what is sent to groups, and no more. */
static const uint32_t FI_VMA_UDP_GROUPS = 1;

struct fi_ops_vma_udp {
    size_t size;
    /*
     * `socket` is bound, perhaps connected. From here on the port takes what comes for it, and gives each datagram to
     * `take` while a completion queue of the domain is read, or close() is called; `take` calls nothing of the
     * provider; its result is FI_VMA_KEPT, where the payload stays until lender->give_back(), or another number. 0;
     * -FI_EADDRNOTAVAIL: its address is not of this port; -FI_EADDRINUSE: another socket of this process has the same;
     * -FI_ENOSPC: no more flows; -FI_EMFILE, -FI_ENOMEM. `flags`: FI_VMA_UDP_GROUPS or 0.
     */
    int (*open)(struct fid_domain *domain, int socket, uint32_t flags,
                int (*take)(void *context, const struct fi_vma_datagram *datagram), void *context,
                struct fi_vma_udp **udp);
    /*
     * Its length, and it is on its way. Else nothing is sent, and the socket may do it: -FI_EAGAIN (the way is not
     * known yet, or no room), -FI_EMSGSIZE (it takes fragments), -FI_ENETUNREACH and others (it doesn't leave by this
     * port). To a group it leaves by the port's own interface, whatever the routes say, and reaches no member on this
     * host.
     */
    ssize_t (*send)(struct fi_vma_udp *udp, const struct iovec *parts, size_t count, const struct fi_vma_udp_to *to);
    void (*close)(struct fi_vma_udp *udp); /* what has come is given to `take` before */
    /*
     * Datagrams to a group and port (network byte order), which sockets of this domain with that port and an address
     * that takes them get, each its own; or no more of them. Members that are not of this domain get none meanwhile. 0;
     * -FI_EADDRINUSE: somebody else has done so; -FI_ENOENT: nobody has; -FI_ENOSPC.
     */
    int (*take_group)(struct fid_domain *domain, const uint8_t group[16], uint16_t port, int on);
    int (*stamps)(struct fid_domain *domain); /* FI_VMA_STAMPS_... */
    /*
     * One that only sends, to groups, for any number of sockets: `to` says from where. 0, -FI_ENOMEM. close() ends it.
     */
    int (*open_sender)(struct fid_domain *domain, struct fi_vma_udp **udp);
    /* What was sent has been taken by the driver: 0. -FI_EAGAIN: not all of it, within a millisecond. */
    int (*drain)(struct fi_vma_udp *udp);
    /*
     * What the port's frames to a peer begin with: Ethernet and IP header of a packet with so many bytes of `protocol`
     * behind them (IPv4's checksum is right for these). `to` says from where, its ports mean nothing; `out` has
     * FI_VMA_HEADERS_MOST bytes. How many were written; -FI_EAGAIN: the way is not known, as nothing goes there;
     * -FI_EINVAL: too many bytes.
     */
    ssize_t (*headers)(struct fid_domain *domain, const struct fi_vma_udp_to *to, uint8_t protocol, size_t bytes,
                       void *out);
    /*
     * The clock that hardware_ns of datagrams is of, and others, at one moment. Two of these tell how much faster a
     * clock is, and so what a time is by the other. Some microseconds. 0; -FI_EOPNOTSUPP: the device does not tell;
     * others for a time, as -FI_EAGAIN. Unlike the others it may be called at the same time as all but fi_close() of
     * the domain. Look at `size`: older ones end before it.
     */
    int (*read_times)(struct fid_domain *domain, struct fi_vma_times *times);
    /* How the port is doing. 0. A system call a queue, with AF_XDP. Likewise at the same time as others. */
    int (*read_counters)(struct fid_domain *domain, struct fi_vma_port_counters *counters);
};

/* Ethernet with a VLAN tag, and IPv6. */
enum { FI_VMA_HEADERS_MOST = 58 };

#ifdef __cplusplus
}
#endif

#endif /* FI_EXT_VMA_H */
