/*
 * One TCP connection of the stream protocol (doc/stream-protocol.md): two processes with the library, what they
 * share in memory, and the kernel between them. doc/model/README.md says what stands for what;
 * contrib/checks/model.py compiles it with the sizes and switches of each configuration. Direction d is what peer d
 * sends to peer 1 - d; a slot queue belongs to the direction its DATA travels in.
 */

#ifndef N0
#define N0 3 /* bytes that the programs of peer 0 want to send */
#endif
#ifndef N1
#define N1 0 /* and those of peer 1 */
#endif
#ifndef RB
#define RB 2 /* bytes of a ring */
#endif
#ifndef NS
#define NS 5 /* slots of a queue */
#endif
#ifndef KS
#define KS 1 /* bytes of the kernel's send buffer */
#endif
#ifndef KR
#define KR 1 /* bytes of its receive buffer */
#endif
#ifndef OPS0
#define OPS0 0 /* what peer 0 may do besides sending and receiving: a sum of the numbers below */
#endif
#ifndef OPS1
#define OPS1 0
#endif
#ifndef SPECIALS
#define SPECIALS 1 /* how many of FORK, PIN, HAND, SPAWN, LEND a peer does at most */
#endif
#ifndef HALT
#define HALT 0 /* 1: peer 0 may be stopped or killed, 2: peer 1, 3: one of them, 4: both */
#endif

#define FORK 1   /* fork(): the child holds the socket too */
#define PIN 2    /* a call that only the kernel has: the socket stays with it */
#define EARLY 4  /* shutdown(SHUT_WR) at any time; else behind the last byte */
#define CLOSE 8  /* close() or exit() at any time; else when both directions have ended */
#define HAND 16  /* exec() or SCM_RIGHTS: handed to a program that may be without the library */
#define SPAWN 32 /* a process of which the library knows nothing writes by the kernel while no span is open */
#define LEND 64  /* one reads by the kernel before the first START */
#define ENDS 128 /* a call that needs the kernel once: END without another reason */
#define PATIENT 256 /* sends without blocking: a full ring is not ended after 2 ms */

#define OPS(p) (p -> OPS1 : OPS0)
#define MAY(p, what) ((OPS(p) & what) != 0)
#define WANT(p) (p -> N1 : N0)

/* Slots. DATA leaves two slots to tags, CREDIT, READY and START one; so END and RETURN find one. */
mtype = { DATA, START, END, READY, CREDIT, RETURN };
#define ROOM(d, left) (len(queue[d]) + left < NS)

/* Values of `cut`: the number of slots that were accepted, or one of these. */
#define OPEN 255
#define CLAIMED 254
#define NONE 255 /* no END yet */

/* The kernel's connection: what stands in the send buffer of d, in the receive buffer of 1 - d, and what it has
 * counted. */
chan sndbuf[2] = [KS] of { byte };
chan rcvbuf[2] = [KR] of { byte };
byte sent[2], received[2];    /* tcpi_bytes_acked + SIOCOUTQ, tcpi_bytes_received */
#define taken(d) (received[d] - len(rcvbuf[d])) /* tcpi_bytes_received - SIOCINQ */
byte fin[2];                  /* 1: asked for, behind what is in the send buffer; 2: there */
bool rst;
byte holders[2] = 1;          /* processes that hold peer p's socket */
#define kernel_end(d) (fin[d] == 2 || rst) /* what poll() says besides bytes; a read says it behind them */

/* What lies in the receiver's memory, which both have mapped; it outlives the writer. */
chan queue[2] = [NS] of { mtype, byte };
byte published[2];
#define consumed(d) (published[d] - len(queue[d]))
byte ring[2 * RB];
#define RING_AT(d, position) ring[(d) * RB + (position) % RB]
bool rx_closed[2];            /* rx_state = closed */
byte cut[2] = OPEN;

/* The sender of d. */
mtype = { KERNEL, RING, RESEND };
mtype path[2] = KERNEL;
bool ready[2], shut[2];
bool peer_cut[2];             /* the sender of d has seen that its peer has closed its queue */
byte E[2];                    /* bytes that it has sent by the endpoint */
byte credit[2];
byte C[2], resent[2];         /* RETURN's number, and how far the resend is */
byte counted[2];              /* bytes that its own calls gave to the kernel: the library's sum */

/* The receiver of d. */
bool span[2];                 /* START was taken, and the span is not used up */
byte K[2], ended_at[2] = NONE, avail[2], used[2], credited[2];
bool owes_ready[2] = true;
bool gap[2];                  /* a reset took bytes before a span away: an error stands behind what is kept */
chan kept[2] = [N0 + N1 + 1] of { byte }; /* unread bytes after a cut, private or shared */

/* Peer p's process. */
bool plain[2];                /* its endpoint is finished */
bool got_end[2];              /* its reader was told the end, or an error */
bool busy[2];                 /* in a call that must not wait for others */
bool done[2], halted[2], killed[2], closed[2];
bool halt[2];
byte specials[2], ends[2];

/* What the invariants speak of: bytes that write calls of d accepted, and bytes that reads gave to programs. Bytes
 * are numbered from 1 in the order they were accepted. */
byte accepted[2], got[2];

hidden mtype tag;
hidden byte value, byte_;
hidden byte number;

inline deliver(d, what) {
    byte_ = what;
    assert(byte_ == got[d] + 1);
    got[d]++
}

inline reset() {
    rst = true;
    do
    :: sndbuf[0]?byte_
    :: (len(sndbuf[0]) == 0) && (len(sndbuf[1]) > 0) -> sndbuf[1]?byte_
    :: (len(sndbuf[0]) == 0) && (len(sndbuf[1]) == 0) -> break
    od;
    byte_ = 0
}

/* The last holder of p's socket is gone: unread bytes make it a reset, as in TCP. */
inline let_go(p) {
    holders[p]--;
    if
    :: holders[p] == 0 && (len(rcvbuf[1 - (p)]) > 0) -> reset()
    :: holders[p] == 0 && (len(rcvbuf[1 - (p)]) == 0) && fin[p] == 0 -> fin[p] = 1
    :: else
    fi
}

inline kernel_write(d) {
    accepted[d]++;
    sndbuf[d]!accepted[d];
    sent[d]++
}

/* The sender of d publishes one slot. `ok`: it was accepted. */
inline publish(d, what, number_) {
#ifdef FAULT_NO_FENCE_WRITER
    before = rx_closed[d];
#endif
    d_step {
        assert((len(queue[d]) < NS));
        queue[d]!what, number_;
        published[d]++;
        mine = published[d]
    }
    /* full fence */
#ifdef FAULT_NO_FENCE_WRITER
    d_step { closed_ = before; before = 0 }
#else
    closed_ = rx_closed[d];
#endif
    d_step {
        ok = true;
        if
        :: closed_ ->
            closed_ = false;
            peer_cut[d] = true;
#ifdef FAULT_NO_CAS
            ok = false
#else
            if
            :: cut[d] == OPEN -> cut[d] = mine
            :: else
            fi;
            ok = (cut[d] == CLAIMED || cut[d] >= mine)
#endif
        :: else
        fi;
        mine = 0;
        if
        :: what == DATA && ok -> E[d]++; accepted[d]++
        :: what == START && ok -> path[d] = RING
        :: what == CREDIT -> credited[1 - (d)] = number_
        :: what == READY -> owes_ready[1 - (d)] = false
        :: else
        fi;
        if
        :: path[d] != RESEND && (peer_cut[d] || what == END) -> path[d] = KERNEL
        :: path[d] == RESEND && what == END -> path[d] = KERNEL
        :: else
        fi;
        ok = false
    }
}

/* The receiver of d takes one slot. Those of READY, CREDIT and RETURN are about direction 1 - d, which it sends. */
inline take(d) {
    queue[d]?tag, value;
    if
    :: tag == DATA -> avail[d]++
    :: tag == START ->
        span[d] = true;
        K[d] = value;
        ended_at[d] = NONE;
        if
        :: value < taken(d) -> reset(); gap[d] = true
        :: else
        fi
    :: tag == END -> ended_at[d] = value
    :: tag == CREDIT -> credit[1 - (d)] = value
    :: tag == READY -> ready[1 - (d)] = true
    :: tag == RETURN && path[1 - (d)] == RING ->
        if
#ifndef FAULT_NO_CLAIM
        :: cut[1 - (d)] != OPEN -> path[1 - (d)] = KERNEL
        :: cut[1 - (d)] == OPEN ->
            cut[1 - (d)] = CLAIMED;
#else
        :: true ->
#endif
            path[1 - (d)] = RESEND;
            C[1 - (d)] = value;
            resent[1 - (d)] = value
        fi
    :: else
    fi
}

inline settle(d) {
    if
    :: span[d] && ended_at[d] == used[d] && taken(d) >= K[d] ->
        span[d] = false;
        owes_ready[d] = true
    :: else
    fi
}

/* All that is visible. Taking them one by one, with the writer between, is taking them all at the moment of the
 * last look. */
inline take_all(d) {
    do
    :: (len(queue[d]) > 0) -> take(d)
    :: else -> break
    od;
    tag = 0; value = 0;
    settle(d)
}

/* The reader of d is told the end: cleanly only behind all bytes that were accepted, and only if the peer that has
 * ended did not die with ring bytes of ours that it had not read. */
#define LEFT_UNREAD(d) (killed[1 - (d)] && cut[d] == OPEN && used[d] < E[d])
#ifdef FAULT_DEAD_READER
#define BROKEN(d) (rst || gap[d])
#else
#define BROKEN(d) (rst || gap[d] || LEFT_UNREAD(1 - (d)))
#endif
inline tell_end(d) {
    if
    :: BROKEN(d)
    :: else -> assert(got[d] >= accepted[d]); assert(!LEFT_UNREAD(1 - (d)))
    fi;
    got_end[1 - (d)] = true
}

#define RING_HAS(d) (span[d] && !BEFORE_K(d) && used[d] < avail[d])
#ifdef FAULT_OWN_COUNT_READER
#define BEFORE_K(d) (own_reads < K[d])
#else
#define BEFORE_K(d) (taken(d) < K[d])
#endif

#ifdef FAULT_START_UNASKED
#define MAY_START(d) true
#else
#define MAY_START(d) ready[d]
#endif
#ifdef FAULT_CREDIT_IGNORED
#define RING_ROOM(d) true
#else
#define RING_ROOM(d) (E[d] - credit[d] < RB)
#endif

#ifdef FAULT_CUT_UNSEEN
#define GIVES_UP(p) (!MAY(p, PATIENT))
#else
#define GIVES_UP(p) (!MAY(p, PATIENT) || rx_closed[p])
#endif

/* CREDIT for each half of a ring, and before READY. */
#define OWES_CREDIT(d) (used[d] - credited[d] >= (owes_ready[d] -> 1 : (RB + 1) / 2))
#define OWES_READY(d) (owes_ready[d] && WANT(d) > 0 && used[d] == credited[d])

inline read_ring(d) {
    deliver(d, RING_AT(d, used[d]));
    used[d]++;
    settle(d)
}

/* Bytes were seen in the kernel; then the queue is looked through; then one is read, if it lies before a span. */
inline read_kernel(d) {
#ifndef FAULT_NO_LOOK
    take_all(d);
#endif
    if
    :: !span[d] || BEFORE_K(d) -> rcvbuf[d]?byte_; deliver(d, byte_); own_reads++; settle(d)
    :: else
    fi
}

/* The kernel has said the end; then the queue is looked through. */
inline read_end(d) {
#ifndef FAULT_END_BEHIND_QUEUE
    take_all(d);
#endif
    if
    :: (len(rcvbuf[d]) > 0) && (!span[d] || BEFORE_K(d)) -> skip /* a START moved the border */
    :: (len(rcvbuf[d]) == 0) && span[d] && taken(d) < K[d] ->
#ifdef FAULT_GAP
        K[d] = taken(d)
#else
        gap[d] = true; tell_end(d) /* a reset took what stood before the span */
#endif
    :: RING_HAS(d) -> skip
    /* no END: the peer died. The kernel says how */
    :: span[d] && taken(d) >= K[d] && used[d] == avail[d] -> span[d] = false
    :: !span[d] && (len(rcvbuf[d]) == 0) -> tell_end(d)
    :: else
    fi
}

/* After a cut: what is kept, then the kernel. Any process that holds the socket does this. */
inline read_plain(d) {
    if
    :: (len(kept[d]) > 0) -> kept[d]?byte_; deliver(d, byte_)
    :: (len(kept[d]) == 0) && gap[d] -> tell_end(d)
    :: (len(kept[d]) == 0) && !gap[d] && (len(rcvbuf[d]) > 0) -> rcvbuf[d]?byte_; deliver(d, byte_)
    :: (len(kept[d]) == 0) && !gap[d] && (len(rcvbuf[d]) == 0) && kernel_end(d) -> tell_end(d)
    fi
}
#define PLAIN_HAS(d) ((len(kept[d]) > 0) || gap[d] || (len(rcvbuf[d]) > 0) || kernel_end(d))

/* The receiver's half of the cut. */
inline cut_queue(d) {
#ifdef FAULT_NO_FENCE_READER
    d_step { take_all(d) };
    rx_closed[d] = true;
#else
    rx_closed[d] = true;
    /* full fence */
    d_step { take_all(d) };
#endif
    d_step {
        if
        :: cut[d] == OPEN -> cut[d] = consumed(d)
        :: else
#ifndef FAULT_NO_CAS
            /* the writer decided: its slots up to there are visible */
            do
            :: cut[d] != CLAIMED && consumed(d) < cut[d] -> take(d)
            :: else -> break
            od;
            tag = 0; value = 0
#endif
        fi;
        ready[1 - (d)] = false
    }
}

/* END of one's own direction, or what stands for it. */
inline end_own(p) {
    if
    :: path[p] == RING -> publish(p, END, E[p])
#if defined(FAULT_DROPPED_RESEND)
    :: path[p] == RESEND -> publish(p, END, C[p]) /* as if all of it had been sent again */
#else
    :: path[p] == RESEND -> skip /* no END: the kernel's FIN says how much came */
#endif
    :: else
    fi
}

/* What may be written by other processes from now on must not come into the middle of a resend. */
inline finish_resend(p) {
    do
    :: d_step { path[p] == RESEND && resent[p] < E[p] && !rst && (len(sndbuf[p]) < KS) ->
        sndbuf[p]!RING_AT(p, resent[p]); resent[p]++; sent[p]++ }
    :: path[p] == RESEND && resent[p] == E[p] -> publish(p, END, C[p])
    :: d_step { path[p] == RESEND && (rst || (resent[p] < E[p] && (len(sndbuf[p]) == KS))) ->
        reset(); path[p] = KERNEL }
    :: path[p] != RESEND -> break
    od
}

/* Unread bytes move to memory of our own, those before K of the kernel's first. The kernel delivers them without
 * their sender. */
inline keep_unread(d) {
    do
    :: d_step { span[d] && !gap[d] && taken(d) < K[d] && (len(rcvbuf[d]) > 0) ->
        rcvbuf[d]?byte_; kept[d]!byte_; byte_ = 0 }
#ifdef FAULT_GAP
    :: d_step { span[d] && taken(d) < K[d] && (len(rcvbuf[d]) == 0) && kernel_end(d) -> K[d] = taken(d) }
#else
    :: d_step { span[d] && !gap[d] && taken(d) < K[d] && (len(rcvbuf[d]) == 0) && kernel_end(d) -> gap[d] = true }
#endif
#ifdef FAULT_KERNEL_FORGOTTEN
    :: d_step { span[d] && taken(d) < K[d] -> K[d] = taken(d) }
#endif
    :: d_step { span[d] && !gap[d] && taken(d) >= K[d] && used[d] < avail[d] ->
        kept[d]!RING_AT(d, used[d]); used[d]++ }
#ifdef FAULT_WAITS_FOR_END
    :: span[d] && taken(d) >= K[d] && used[d] == avail[d] && ended_at[d] != NONE -> break
    :: !span[d] || gap[d] -> break
#else
    :: !span[d] || gap[d] || (taken(d) >= K[d] && used[d] == avail[d]) -> break
#endif
    od;
    span[d] = false
}

/* Who closes last with something unread resets the connection. */
inline close_socket(p) {
    d_step {
#ifndef FAULT_CLEAN_CLOSE
        if
        :: holders[p] == 1 && ((len(kept[1 - (p)]) > 0) || (span[1 - (p)] && used[1 - (p)] < avail[1 - (p)])) -> reset()
        :: else
        fi;
#endif
        let_go(p);
        closed[p] = true
    }
}

#if ((OPS0) | (OPS1)) & (SPAWN | LEND)
bool starting[2], peeking[2]; /* such a process is nowhere where the rule of K allows none */
#define UNSEEN(x) x
#else
#define UNSEEN(x)
#endif

#if ((OPS0) | (OPS1)) & (SPAWN | LEND)
/* A process whose calls the library does not see: one byte in or out, while that is in order on the kernel. */
proctype Unseen(byte p) {
    bool lent;
    do
    :: d_step { MAY(p, SPAWN) && !lent && path[p] == KERNEL && !starting[p] && !shut[p] && accepted[p] < WANT(p) &&
        !rst &&
            (len(sndbuf[p]) < KS) -> kernel_write(p); lent = true }
    :: d_step { MAY(p, LEND) && !lent && published[1 - p] == 0 && (len(rcvbuf[1 - p]) > 0) && !peeking[p] ->
        rcvbuf[1 - p]?byte_; deliver(1 - p, byte_); lent = true }
    :: d_step { true -> let_go(p) } -> break
    od
}
#endif

/* A forked child. It has no endpoint: it writes by the kernel, reads what is kept and then the kernel's, and closes. */
proctype Child(byte p) {
    bool ended;
    do
    :: d_step { !shut[p] && accepted[p] < WANT(p) && !rst && (len(sndbuf[p]) < KS) && fin[p] == 0 -> kernel_write(p) }
    :: d_step { !ended && PLAIN_HAS(1 - p) -> number = got_end[p]; got_end[p] = false; read_plain(1 - p);
        ended = got_end[p]; got_end[p] = number }
    :: d_step { true ->
        if
        :: holders[p] == 1 && (len(kept[1 - p]) > 0) -> reset()
        :: else
        fi;
        let_go(p) } -> break
    od
}

proctype Peer(byte p) {
    bool ok, closed_, before;
    byte mine;
    byte own_reads;
    {
        do
        /* The helper thread, or any wait: slots are taken, what is owed is said. */
        :: d_step { !plain[p] && (len(queue[1 - p]) > 0) -> take_all(1 - p) }
        :: !plain[p] && !peer_cut[p] && OWES_READY(1 - p) && ROOM(p, 1) -> publish(p, READY, 0)
#ifndef FAULT_CREDIT_FORGOTTEN
        :: !plain[p] && !peer_cut[p] && OWES_CREDIT(1 - p) && ROOM(p, 1) ->
            publish(p, CREDIT, used[1 - p])
#endif

        /* Reading. */
        :: d_step { !plain[p] && !got_end[p] && RING_HAS(1 - p) -> read_ring(1 - p) }
        :: d_step { !plain[p] && !got_end[p] && (len(rcvbuf[1 - p]) > 0) && (!span[1 - p] || BEFORE_K(1 - p)) ->
            /* MSG_PEEK */
            UNSEEN(peeking[p] = true;)
            skip } ->
            d_step { read_kernel(1 - p); byte_ = 0; UNSEEN(peeking[p] = false) }
        :: !plain[p] && !got_end[p] && (len(rcvbuf[1 - p]) == 0) && kernel_end(1 - p) && !RING_HAS(1 - p) ->
            d_step { read_end(1 - p) }
#ifdef FAULT_END_BEHIND_QUEUE
        :: d_step { !plain[p] && !got_end[p] && (len(queue[1 - p]) == 0) && !RING_HAS(1 - p) &&
            (len(rcvbuf[1 - p]) == 0) -> skip } ->
            if
            :: d_step { kernel_end(1 - p) -> read_end(1 - p) }
            :: else
            fi
#endif
        :: d_step { plain[p] && !got_end[p] && PLAIN_HAS(1 - p) -> read_plain(1 - p); byte_ = 0 }

        /* Writing. */
        :: d_step { path[p] == KERNEL && !shut[p] && accepted[p] < WANT(p) && !rst && (len(sndbuf[p]) < KS) ->
            kernel_write(p); counted[p]++ }
        :: d_step { path[p] == KERNEL && !plain[p] && !peer_cut[p] && !shut[p] && accepted[p] < WANT(p) && !rst &&
            ROOM(p, 2) && MAY_START(p) && RING_ROOM(p) ->
            UNSEEN(starting[p] = true;)
            ready[p] = false } ->
#ifdef FAULT_OWN_SUM
            publish(p, START, counted[p]);
#else
            publish(p, START, sent[p]);
#endif
            UNSEEN(starting[p] = false)
        :: path[p] == RING && accepted[p] < WANT(p) && ROOM(p, 2) && RING_ROOM(p) ->
            RING_AT(p, E[p]) = accepted[p] + 1;
            publish(p, DATA, 0)
        :: path[p] == RING && GIVES_UP(p) && (E[p] - credit[p] >= RB || !ROOM(p, 2)) ->
            publish(p, END, E[p]) /* full for 2 ms, or the receiver has closed its queue */
        :: path[p] == RING && MAY(p, ENDS) && ends[p] == 0 ->
            ends[p] = 1;
            publish(p, END, E[p])
#ifdef FAULT_KERNEL_BEFORE_END
        :: d_step { path[p] == RING && accepted[p] < WANT(p) && !rst && (len(sndbuf[p]) < KS) &&
            E[p] - credit[p] >= RB ->
            kernel_write(p) }
#endif
        :: d_step { path[p] == RESEND && resent[p] < E[p] && !rst && (len(sndbuf[p]) < KS) ->
            sndbuf[p]!RING_AT(p, resent[p]); resent[p]++; sent[p]++ }
        :: path[p] == RESEND && resent[p] == E[p] -> publish(p, END, C[p])
#ifdef FAULT_END_BEFORE_RESEND
        :: path[p] == RESEND && resent[p] < E[p] && ends[p] == 0 -> ends[p] = 1; publish(p, END, C[p]); path[p] = RESEND
#endif
        :: d_step { rst && !shut[p] -> shut[p] = true; path[p] = KERNEL } /* the write fails */

        /* shutdown(SHUT_WR) */
        :: !shut[p] && !rst && (MAY(p, EARLY) || (WANT(p) > 0 && accepted[p] == WANT(p))) ->
            busy[p] = true;
            end_own(p);
            d_step {
                shut[p] = true;
                path[p] = KERNEL;
                if
                :: fin[p] == 0 -> fin[p] = 1
                :: else
                fi;
                busy[p] = false
            }

        :: MAY(p, FORK) && specials[p] < SPECIALS ->
            d_step { specials[p]++; busy[p] = true }
            finish_resend(p);
            end_own(p);
            if
            :: !plain[p] -> plain[p] = true; cut_queue(1 - p); keep_unread(1 - p)
            :: else
            fi;
            atomic { holders[p]++; busy[p] = false; run Child(p) }
        :: MAY(p, PIN) && specials[p] < SPECIALS && !plain[p] ->
            d_step { specials[p]++; busy[p] = true }
            finish_resend(p);
            end_own(p);
            plain[p] = true;
            cut_queue(1 - p);
            keep_unread(1 - p);
            busy[p] = false
#if ((OPS0) | (OPS1)) & HAND
        :: MAY(p, HAND) && specials[p] < SPECIALS && !plain[p] ->
            d_step { specials[p]++; busy[p] = true }
            finish_resend(p);
            end_own(p);
            plain[p] = true;
            d_step { take_all(1 - p) }
            if
            :: span[1 - p] && ended_at[1 - p] == NONE && used[1 - p] < avail[1 - p] && !peer_cut[p] ->
                publish(p, RETURN, used[1 - p]);
                do
                :: d_step { (len(queue[1 - p]) > 0) -> take_all(1 - p) }
                :: ended_at[1 - p] != NONE -> break
                :: true -> break /* a second has passed */
                od
            :: else
            fi;
            cut_queue(1 - p);
            if
            :: cut[1 - p] == CLAIMED ->
                do
                :: d_step { (len(queue[1 - p]) > 0) -> take_all(1 - p) }
                :: ended_at[1 - p] != NONE -> break
#ifdef FAULT_SILENCE
                :: killed[1 - p] && (len(rcvbuf[1 - p]) == 0) -> /* 10 ms without a byte */
#else
                :: fin[1 - p] == 2 || rst ->
#endif
                    d_step {
                        take_all(1 - p);
                        if
                        :: ended_at[1 - p] == NONE && received[1 - p] > K[1 - p] ->
                            used[1 - p] = used[1 - p] + received[1 - p] - K[1 - p];
                            K[1 - p] = received[1 - p]
                        :: else
                        fi
                    }
                    break
                /* it lives, and does not finish */
                :: d_step { ended_at[1 - p] == NONE -> reset(); gap[1 - p] = true } -> break
                od
            :: else
            fi;
            if
            :: ended_at[1 - p] == used[1 - p] -> span[1 - p] = false /* all came back by the kernel */
            :: else -> keep_unread(1 - p)
            fi;
#ifdef FOREIGN
            do
            :: d_step { kept[1 - p]?byte_ }
            :: (len(kept[1 - p]) == 0) -> break
            od;
#endif
            busy[p] = false
#endif
#if ((OPS0) | (OPS1)) & (SPAWN | LEND)
        :: MAY(p, SPAWN | LEND) && specials[p] < SPECIALS ->
            atomic { specials[p]++; holders[p]++; run Unseen(p) }
#endif

        /* close() and exit() */
        :: MAY(p, CLOSE) || (got_end[p] && (shut[p] || rst || accepted[p] == WANT(p))) ->
            busy[p] = true;
            end_own(p);
            if
            :: !plain[p] -> plain[p] = true; cut_queue(1 - p)
            :: else
            fi;
            close_socket(p);
            d_step { busy[p] = false; done[p] = true }
            break
        od
    } unless { halt[p] }
    if
    :: done[p]
    :: else ->
        halted[p] = true; /* stopped here, for ever or until it is killed */
        if
        :: d_step { true -> let_go(p); killed[p] = true }
        :: true
        fi
    fi
}

/* The kernel's network moves without any process. */
proctype Net() {
    do
    :: d_step { (len(sndbuf[0]) > 0) && holders[1] == 0 -> reset() }
    :: d_step { (len(sndbuf[1]) > 0) && holders[0] == 0 -> reset() }
    :: d_step { holders[1] > 0 && (len(sndbuf[0]) > 0) && (len(rcvbuf[0]) < KR) ->
        sndbuf[0]?byte_; rcvbuf[0]!byte_; received[0]++ }
    :: d_step { holders[0] > 0 && (len(sndbuf[1]) > 0) && (len(rcvbuf[1]) < KR) ->
        sndbuf[1]?byte_; rcvbuf[1]!byte_; received[1]++ }
    :: d_step { fin[0] == 1 && (len(sndbuf[0]) == 0) -> fin[0] = 2 }
    :: d_step { fin[1] == 1 && (len(sndbuf[1]) == 0) -> fin[1] = 2 }
    od
}

#if HALT
proctype Fate() {
#if HALT & 1
    if
    :: !done[0] -> halt[0] = true
#if HALT == 3
    :: !done[1] -> halt[1] = true
#endif
    :: skip
    fi
#endif
#if HALT == 2 || HALT == 4
    if
    :: !done[1] -> halt[1] = true
    :: skip
    fi
#endif
#if HALT == 4
    ;
    if
    :: !done[0] -> halt[0] = true
    :: skip
    fi
#endif
}
#endif

/* Nothing moves any more: who lives is not in a call that must not wait, and has come to its end unless it reads
 * from, or writes to, somebody who is stopped. */
#define STOPPED(p) (halted[p] && !killed[p])
#define FINISHED(p) (done[p] || halted[p] || STOPPED(1 - p))

init {
    atomic {
        run Net();
        run Peer(0);
        run Peer(1);
#if HALT
        run Fate()
#endif
    }
    timeout ->
    assert(!busy[0] || halted[0]);
    assert(!busy[1] || halted[1]);
    assert(FINISHED(0) && FINISHED(1));
    /* Bytes that a closed reader had and did not read: its writer is told by a reset. */
    assert(!closed[1] || got[0] >= accepted[0] || rst || holders[1] > 0 || STOPPED(0));
    assert(!closed[0] || got[1] >= accepted[1] || rst || holders[0] > 0 || STOPPED(1))
}
