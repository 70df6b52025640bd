// SPDX-License-Identifier: BSD-2-Clause
// What carries the bytes of an offloaded stream beside the kernel's connection: a ring in shared memory
// (ring_transport.cpp), a ring of a peer on another host (remote.cpp), or TCP of our own on an Ethernet port
// (port_transport.cpp). A transport is one table; what they have in common is written once above it.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/base/loan.hpp"
#include "compat/src/stats/layout.hpp"
#include "compat/src/table/socket.hpp"

struct fi_info;
struct fid_ep;

namespace vma::sock {

enum class Tag : std::uint8_t;

// Bytes on their way, of a transport that knows them better than the kernel.
struct QueuedBytes {
    std::uint32_t readable = 0;
    std::uint32_t unacknowledged = 0;
    std::uint32_t unsent = 0;
};

// Every function is there.
struct Transport {
    const char *name;
    stats::Way way;

    // ---- facts
    // It and the kernel take turns, in spans (doc/stream-protocol.md); else it carries both directions whole, and the
    // kernel's socket is a shell.
    bool spans;
    // What the kernel brings and what it brings is seen in the order of the sender's calls, and a peer's death after
    // all that it sent.
    bool ordered;
    bool ends_with_process; // unlike memory that is shared: it has to be given back before the process ends
    bool lingers;           // after close() the peer has to say that it has all
    bool wakes_sleepers;    // its peer wakes who sleeps at a place (places.hpp)
    bool shrinks;           // pages of its rings that lie idle can be given back (idle.hpp)
    bool needs_ticks;       // the helper thread looks at it at each turn

    // ---- bytes. Bytes moved, or -errno; they never block. tx_lock held
    std::size_t (*send_small)(Stream &s, const void *bytes, std::size_t len); // 0: not so simple
    ssize_t (*send)(Stream &s, int fd, const msghdr *msg, std::size_t skip, int flags);
    bool (*send_nothing)(Stream &s); // a send of no bytes; false: the kernel's call tells what comes of it
    void (*warm)(Stream &s,
                 std::size_t len); // the endpoint is open: brings what the next send writes to into the cache
    // rx_lock held
    ssize_t (*receive_small)(Stream &s, void *out, std::size_t len); // 0: not so simple
    ssize_t (*receive)(Stream &s, int fd, msghdr *msg, std::size_t skip, int flags);
    Loan (*lend)(Stream &s, std::size_t most); // in one piece; no lender: nothing is there, or it can't be lent

    // ---- readiness. No lock needed
    bool (*has_input)(const Stream &s);
    bool (*has_room)(const Stream &s);           // but for a rate limit
    bool (*confirm_input)(Stream &s);            // has_input() said so: is it true?
    std::uint64_t (*room_mark)(const Stream &s); // changes when room is made

    // ---- settings and counts. No lock held
    bool (*count)(Stream &s, QueuedBytes &bytes); // false: the kernel knows
    void (*publish)(Stream &s);                   // what it counts itself, for vma_stats; the offload lock is held
    // setsockopt(): true: it is done, with `result`.
    bool (*set_option)(Stream &s, int fd, int level, int name, const void *value, socklen_t len, int &result);
    void (*option_was_set)(Stream &s, int fd, int level, int name, const void *value);  // in the kernel
    void (*correct_option)(Stream &s, int level, int name, void *value, socklen_t len); // what the kernel said of it

    // ---- its life. Offload lock held
    void (*prepare)(Stream &s, fi_info &info);     // before its endpoint is opened
    int (*prepared)(Stream &s, fid_ep &endpoint);  // behind that; 0 or a negative fi_errno
    void (*offloaded)(Stream &s);                  // its endpoint is connected, and nothing can be in the way now
    void (*went_down)(Stream &s, const char *why); // the peer, or the device, has ended it; it is offloaded
    bool (*may_close)(const Stream &s);            // nothing is lost if it is closed now. No lock needed
    void (*leave)(Stream &s); // its endpoint is about to be closed; tx, rx and poll lock held as well

    // ---- of a ring that takes turns with the kernel; nobody calls the others
    ssize_t (*post_tag)(Stream &s, Tag tag, std::uint64_t value); // START and FINAL. tx_lock held
    void (*end_not_told)(Stream &s);             // END could not be sent: the endpoint is gone. tx_lock
    void (*ended_for_good)(Stream &s);           // nothing is sent by it any more. tx_lock
    void (*endpoint_failed)(Stream &s);          // in the middle of our span. tx_lock
    bool (*handle_tag)(Stream &s, Tag tag);      // one that only it knows; false: nor does it. Poll lock
    void (*start_came)(Stream &s);               // poll lock
    bool (*may_be_ready)(const Stream &s);       // the peer may START. rx_lock or poll lock
    bool (*peer_is_gone)(Stream &s, int fd);     // the kernel or the event queue has news. rx_lock
    bool (*may_bring_more)(Stream &s);           // though the kernel is at its end. No lock needed
    void (*start_leaving)(Stream &s, Heir heir); // no lock held
    void (*give_up_waiting)(Stream &s);          // no lock held
    void (*tick)(Stream &s);                     // helper thread
};

// Where the tables lie: the loader writes their pointers, and it writes to that page anyway (libc/sections.hpp).
namespace storage {
extern Transport shared_ring;
extern Transport remote_ring;
extern Transport port;
} // namespace storage

inline constexpr const Transport &kSharedRing = storage::shared_ring;
inline constexpr const Transport &kRemoteRing = storage::remote_ring;
inline constexpr const Transport &kPort = storage::port;

} // namespace vma::sock
