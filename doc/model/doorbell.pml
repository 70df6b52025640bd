/*
 * How a sleeper is woken (doc/stream-protocol.md, "Where a wait waits"): the receiver says "ring me" (rx_state = 1),
 * looks at its queue once more and sleeps; a sender that has published looks at rx_state, takes the flag and writes
 * to the receiver's eventfd. Any sender may be stopped between the two. Each of N senders publishes one slot; one of
 * them may be stopped for ever at any step.
 */

#ifndef SENDERS
#define SENDERS 2
#endif

byte rx_state;       /* 0: watching, 1: ring me */
byte published, consumed;
bool bell;           /* the eventfd is readable */
byte accepted;       /* slots whose writers have returned, or live: they have to be consumed */
bool stopped[SENDERS], ended[SENDERS];
byte stops;
bool asleep;

proctype Sender(byte me) {
    bool mine;
    {
        published++;
        /* full fence */
#ifdef FAULT_FLAG_BEFORE_BELL
        /* the one that takes the flag away writes; it may be stopped between: nobody else rings then */
        d_step { mine = (rx_state == 1); rx_state = 0 }
        if
        :: mine -> bell = true
        :: else
        fi;
#else
        /* the flag is taken back by the receiver alone, when it is awake: every sender that sees it rings */
        mine = (rx_state == 1);
        if
        :: mine -> bell = true
        :: else
        fi;
#endif
        ended[me] = true
    } unless { stopped[me] }
}

proctype Receiver() {
    do
    :: d_step { consumed < published -> consumed = published }
    :: consumed == published && consumed == SENDERS -> break
    :: consumed == published && consumed < SENDERS ->
#ifdef FAULT_LOOK_BEFORE_FLAG
        if
        :: consumed < published
        :: else ->
            rx_state = 1;
            asleep = true;
            d_step { bell -> bell = false; asleep = false };
            rx_state = 0
        fi
#else
        rx_state = 1;
        /* full fence */
        if
        :: consumed < published -> rx_state = 0
        :: else ->
            asleep = true;
            d_step { bell -> bell = false; asleep = false };
            rx_state = 0
        fi
#endif
    od
}

proctype Fate() {
    if
    :: !ended[0] -> stopped[0] = true
    :: skip
    fi
}

init {
    byte i;
    atomic {
        do
        :: i < SENDERS -> run Sender(i); i++
        :: else -> break
        od;
        run Receiver();
        run Fate()
    }
    timeout ->
    /* Nothing moves any more: a receiver that sleeps has nothing unread, but what the stopped sender has just
     * published. */
    assert(!asleep || consumed == published || (stopped[0] && !ended[0] && published - consumed == 1))
}
