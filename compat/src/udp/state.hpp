// SPDX-License-Identifier: BSD-2-Clause
// What a tracked UDP socket has besides what every tracked socket has, and the operations on it. Its kernel socket
// stays bound and open; datagrams of accelerated senders of this host come by the process's datagram endpoint
// (doc/datagrams.md).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "compat/src/engine/arrivals.hpp"
#include "compat/src/engine/device.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/diag.hpp"
#include "compat/src/rendezvous/names.hpp"
#include "compat/src/sharing/leftovers.hpp"
#include "compat/src/table/socket_state.hpp"
#include "compat/src/udp/kernel_error.hpp"
#include "compat/src/udp/losses.hpp"
#include "compat/src/udp/queue.hpp"
#include "compat/src/udp/routes.hpp"

namespace vma::sock::udp {

// What the program wants to know of each datagram.
struct Wanted {
    bool any = false;
    bool timestamp = false;    // SO_TIMESTAMP
    bool timestamp_ns = false; // SO_TIMESTAMPNS
    bool timestamping = false; // SO_TIMESTAMPING, software receive stamps
    bool hardware = false;     // those of the device: a port must have them
    bool overflows = false;    // SO_RXQ_OVFL
    bool packet_info = false;  // IP_PKTINFO
    bool ttl = false;
    bool tos = false;
    bool packet_info6 = false; // IPV6_RECVPKTINFO
    bool hop_limit6 = false;
    bool traffic_class6 = false;
};

// Whether a socket takes what comes from a source to a group by an interface (members.cpp); 0 is no interface.
struct Verdict {
    in6_addr group = {};
    in6_addr source = {};
    std::uint32_t interface = 0;
    bool takes = false;
};

// Those that a socket has joined at some time.
struct JoinedGroups {
    in6_addr list[32];
    std::uint32_t count = 0;
};

// A port that brings a socket its datagrams.
struct Attachment {
    fi_vma_udp *tap = nullptr;
    Device *device = nullptr;
    bool groups_only = false; // who gets the others is the kernel's to say
};

struct State {
    sa_family_t family = AF_UNSPEC;
    Identity identity;                        // once asked for; inode 0: not yet
    Racy<std::uint32_t> seen = 0;             // generation of the names at our last look for a wish
    std::atomic<bool> look_is_due{false};     // the one that was due found the offload lock taken
    std::atomic<bool> sends_by_kernel{false}; // an option of it is only the kernel's to follow
    std::atomic<bool> used_memory{false};     // there are routes to forget
    KernelError kernel_error;
    std::atomic<bool> hears_errors{
        false}; // of datagrams that it has sent: it is, or was, connected, or IP_RECVERR is set

    // Receiving.
    std::atomic<std::uint32_t> cookie{0}; // what datagrams for it show; 0: none is taken
    std::atomic<bool> named{false};       // rx_lock: its name stands in the directory
    std::atomic<bool> is_unnamed{false};  // a rule keeps it from local senders, who would go past the kernel
    Queue queue;                          // read with rx_lock, filled with the poll lock of its ring
    bool on_ring = false;                 // it has chosen one; changed with offload and rx_lock
    Wanted wanted;                        // changed with rx_lock and the poll lock
    Racy<bool> tells_losses = false;      // wanted.overflows, for those who hold neither
    bool connected = false;               // likewise: only what comes from `peer` is taken
    in6_addr peer = {};
    std::uint16_t peer_port = 0;
    Verdict verdicts[4]; // likewise
    std::uint32_t next_verdict = 0;
    Losses losses;                              // what SO_RXQ_OVFL tells
    std::atomic<std::uint32_t> arrival_tick{0}; // of the last one by the endpoint
    std::atomic<bool> lends{false};             // the program takes datagrams where they are: they are queued so
    std::atomic<bool> kernel_brings{false};     // the last datagram came by the kernel
    std::atomic<std::uint64_t> kernel_look{0};  // ticks of the last look at the kernel that found nothing
    std::uint32_t turn_tick = 0;                // rx_lock: of the kernel's last turn, while the endpoint has plenty
    std::uint32_t since_turn = 0;               // rx_lock: datagrams by the endpoint

    // On Ethernet ports (port.cpp). Changed with offload, tx, rx and poll lock.
    Attachment ports[kMostDevices];
    Racy<std::uint32_t> port_count = 0;
    std::uint32_t sends_by = 0; // devices whose senders its routes have, a bit each; offload and tx lock
    std::atomic<bool> port_tried{false};
    std::atomic<bool> may_share{false};    // others may be bound to its port
    in_port_t port_number = 0;             // of the local address, network byte order
    std::unique_ptr<JoinedGroups> groups;  // once there was one; offload lock
    Racy<bool> has_groups = false;         // whether there are; changed with them
    std::atomic<bool> kernel_first{false}; // what the kernel had when the port was attached is not read yet

    // Of the list of those that the helper thread looks after. Offload lock.
    Racy<bool> listed = false;
    Socket *next_listed = nullptr;
    Socket *prev_listed = nullptr;

    // Sending, tx_lock.
    Routes routes;
    std::unique_ptr<std::uint8_t[]> bounce;      // for datagrams of many parts, once there was one
    std::uint32_t group_interface[2] = {};       // of IP_MULTICAST_IF and IPV6_MULTICAST_IF, 0 none
    bool loops[2] = {true, true};                // the program's IP_MULTICAST_LOOP and IPV6_MULTICAST_LOOP
    bool kernel_loops[2] = {true, true};         // what the kernel's socket has instead
    std::atomic<std::uint32_t> kernel_sends{0};  // changes with each datagram by the kernel, wherever to
    std::atomic<SentPlace> peer_place{kNoPlace}; // of whom it is connected to, once asked for
    std::atomic<bool> corked{false};             // the kernel waits for the rest of a datagram (MSG_MORE)
    std::atomic<bool> has_wire_groups{false}; // so it may differ: what goes to groups by the kernel says what it wants
    std::atomic<bool> ask_kernel_for_room{false}; // its send buffer was full
};

// Of a socket that is, or was when the call began, a UDP socket: another thread may have closed it since.
inline State &state_of(const Socket &s)
{
    return *s.udp_memory;
}

// Addresses at which nothing can be, as the kernel finds out too.
inline bool is_nowhere(const void *address)
{
    return reinterpret_cast<std::uintptr_t>(address) < 65536;
}

inline bool are_somewhere(const iovec *parts, std::size_t count)
{
    for (std::size_t i = 0; i < count; ++i)
        if (parts[i].iov_len != 0 && is_nowhere(parts[i].iov_base))
            return false;
    return true;
}

// A datagram of no more bytes than the kernel takes. What can't be read is the kernel's to refuse.
inline bool can_read(const iovec *parts, std::size_t count)
{
    for (std::size_t i = 0; i < count; ++i)
        if (!libc::can_read(parts[i].iov_base, parts[i].iov_len))
            return false;
    return true;
}

inline bool has_room_for_name(const msghdr &msg)
{
    return msg.msg_name == nullptr ||
           libc::can_update(msg.msg_name,
                            msg.msg_namelen < sizeof(sockaddr_in6) ? msg.msg_namelen : sizeof(sockaddr_in6));
}

// That `length` bytes go to.
inline bool can_overwrite(const iovec *parts, std::size_t count, std::size_t length)
{
    for (std::size_t i = 0; i < count && length != 0; ++i) {
        const std::size_t n = parts[i].iov_len < length ? parts[i].iov_len : length;
        if (!libc::can_overwrite(parts[i].iov_base, n))
            return false;
        length -= n;
    }
    return true;
}

inline bool is_on(int fd, int level, int name, int bits = ~0)
{
    return (libc::read_option(fd, level, name, 0) & bits) != 0;
}

inline constexpr int kIpv6MulticastAll = 29; // not in glibc's headers yet

// ---- life (life.cpp)
void begin(Socket &s, int fd, int family); // tracked: gets a state
void end(Socket &s);                       // its last descriptor is closed
int connect(Socket &s, int fd, const sockaddr *address, socklen_t length);
int get_option(Socket &s, int fd, int level, int name, void *value, socklen_t *len);
int set_option(Socket &s, int fd, int level, int name, const void *value, socklen_t len);

inline constexpr std::uint32_t kMixedTicks =
    20; // so long after the last one by the endpoint the order of both ways is kept

// Those that are offloaded or send by the endpoint: the helper thread looks after them.
void list(Socket &s);         // offload lock held
void unlist(Socket &s);       // offload lock held
std::uint32_t current_tick(); // changes some 20 times a second while there are any
// Of those that are listed: routes that still hold do so until that tick is over. Helper thread, offload lock held.
void look_at_routes(std::uint32_t tick);

// In a forked child: of all sockets, then of each.
void after_fork_in_child();
void after_fork_in_child(Socket &s);
void withdraw_all(); // the process ends

// ---- what several processes may read (share.cpp)
void share_queue(Socket &s); // what is queued goes to memory of all who hold the socket, if there is any. rx_lock held
Socket *begin_foreign(int fd, int family, SharedLeftovers *u); // a socket of another process; nullptr: no memory
// The first of it. A look, then what is done with it, then take(): false where another process was faster, and all
// begins anew.
struct SharedDatagram {
    Queued head = {};
    const std::uint8_t *bytes = nullptr; // others may write there
    std::uint64_t place = 0;
    std::size_t left = 0;                // from its head on
    bool is_peeked = false;              // an empty one
    bool look(const SharedLeftovers &u); // false: there is none
    bool next();                         // the one behind it
    bool take(const SharedLeftovers &u) const;
    void note_peek() const; // it was peeked at

private:
    bool read();
};
inline bool has_shared(const Socket &s)
{
    return s.unread.load(std::memory_order_relaxed) != nullptr && shared_left(s) != 0;
}

// ---- acceleration (offload.cpp)
bool wants_offload(Socket &s);           // cheap; a receiving call asks before it goes to the kernel
void offload(Socket &s, int fd);         // no lock held; it may stay as it is
void offload_unasked(Socket &s, int fd); // offload lock held
// A sender with a rate limit: where it waits for its turn, poll() and its kin have to look here too. False: the kernel
// sends.
bool offload_to_pace(Socket &s, int fd);     // no lock held
void publish_if_due(Socket &s);              // rx_lock held
void withdraw(Socket &s);                    // senders go to the kernel from now on; no lock held
void fall_back(Socket &s, bool keep_unread); // offload lock held
void finish_fall_back(Socket &s);            // no lock held: kernel-only again if all that was left has been read
void read_options(Socket &s, int fd);
// The kernel's count of what it has dropped; what it dropped after its last datagram stands in no datagram.
void learn_kernel_losses(State &u, int fd);

struct Departure; // departure.hpp

// Of what is kept by family: the kernel asks the socket's, not the datagram's, whether it loops.
inline int place_of(const State &u)
{
    return u.family == AF_INET6 ? 1 : 0;
}

// What a call sends, whichever it is.
struct Message {
    const iovec *parts;
    std::size_t count;
    std::size_t length;
    const sockaddr *to;
    socklen_t to_length;
    int flags;
};

// ---- Ethernet ports (port.cpp)
bool may_attach_port(const Socket &s); // cheap; a receiving call asks
bool find_ports(Socket &s);            // offload lock held. False: not yet, or there are none
void attach_ports(Socket &s, int fd);  // offload lock held; it is offloaded
void detach_ports(State &u);           // offload, tx, rx and poll lock held
inline bool is_on_port(const State &u)
{
    return u.port_count != 0;
}
bool is_still_alone(Socket &s,
                    int fd); // it may go on getting what is sent to this host by its ports; offload lock held
bool ports_lack_stamps(
    const Socket &s); // it is on one, and wants the device's times, which that doesn't know; no lock held
// Groups, port_groups.cpp.
void note_membership(State &u, int level, int name, const void *value, socklen_t len); // after it was set; no lock held
void look_after_port_groups();                          // helper thread, offload lock held
void leave_port_groups(in_port_t port, Device *device); // offload and poll lock held
void port_groups_after_fork_in_child();

// Sending by ports, port_send.cpp. tx lock held.
void point_to_port(State &u, int fd, Route &route); // and the offload lock
// What goes to a group leaves by the port that the kernel would send it by, if there is one. False: the kernel sends
// it. With the offload lock.
bool point_group_to_port(Socket &s, int fd, Route &route, const Departure &departure);
ssize_t put_to_port(const State &u, int fd, Route &route, const Message &m); // its length, or kByKernel
void go_by_kernel(Route &route);                                             // before the kernel sends
void release_senders(State &u);                                              // no route is left; offload lock

// ---- arrivals (arrive.cpp)
// A receiving call that polls: the first datagram for its socket goes straight to the program's memory.
struct Direct {
    Socket *socket;
    const msghdr *msg;
    Loan *loan = nullptr; // is preferred, where it is given, for what is longer than `copied`
    std::size_t copied = 0;
    bool force = false;     // `loan` alone will do: what can't be lent is queued
    std::size_t length = 0; // of the datagram
    bool done = false;
    bool is_nowhere = false; // the program's memory is not there: the datagram is lost
    std::uint8_t behind = 0; // datagrams that were queued behind it, as loans
    About about = {};
};

// A datagram of a socket of this process to another one. No poll lock held. False: that one takes none (any more).
bool take_own(std::uint64_t data, const About &about, const iovec *parts, std::size_t count, std::size_t length);

bool wants_time(const Wanted &wanted);               // of day
std::int64_t time_of_day(std::int64_t monotonic_ns); // CLOCK_REALTIME then, of CLOCK_MONOTONIC

// One that came by a port. Poll lock held.
// `loan`: the bytes; where it can be kept, and is, it has no lender afterwards.
void take_foreign(Socket &s, About &about, Loan &loan, std::int64_t hardware_ns);

// Copies to where the program wants it, as far as there is room.
void scatter(const msghdr &msg, const iovec *parts, std::size_t count);

bool is_member(Socket &s, const About &about); // of the group that the datagram was sent to

// ---- sending (send.cpp, resolve.cpp)
ssize_t send(Socket &s, int fd, const void *buf, std::size_t len, int flags, const sockaddr *to, socklen_t to_len);
ssize_t send_msg(Socket &s, int fd, const msghdr *msg, int flags);
// sendmmsg() of a socket that has nobody to send to by the endpoint.
bool only_kernel_sends(const Socket &s);
// Brings what a send of so many bytes would write to this processor's caches.
void warm(Socket &s, std::size_t length, const sockaddr *to, socklen_t to_length);
int send_messages_kernel_only(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags);
inline constexpr ssize_t kByKernel = -1000;
inline constexpr ssize_t kNotDue = -1001;    // by its rate
inline constexpr std::size_t kMostParts = 3; // and the header
// Writes it for one receiver of the route. Its length, also where it was lost and nobody is to be told; -EAGAIN, or
// kByKernel: the receiver is gone. tx_lock held.
ssize_t put(const Socket &s, Route &route, Receiver &receiver, const Message &m);
ssize_t put_to_group(Socket &s, int fd, Route &route, const Message &m);
// By the kernel, which gives it to this host as well if the program wants that.
ssize_t send_to_group_by_kernel(State &u, int fd, const Message &m, bool loops);
void loop_in_kernel(State &u, int fd,
                    bool on); // whether the kernel's socket gives its own host what it sends to groups
bool is_group(int fd, const Destination &to);
inline bool is_group_address(const in6_addr &a)
{
    return IN6_IS_ADDR_MULTICAST(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && (a.s6_addr[12] & 0xf0) == 0xe0);
}
// Looks a route up anew. tx_lock held. A negative errno is the socket's own that was waiting to be told.
int resolve(Socket &s, int fd, Route &route);
// Parts of it; offload lock held.
About describe_flow(int fd, const Flow &flow);
bool point_to(Receiver &receiver, const Identity &who, const Target &target); // false: it can't be reached
bool has_met(const Receiver &receiver);                                       // else the kernel is the way for now
void wish_for(Route &route, const std::vector<Identity> &who);                // and for nobody else
void resolve_group(Socket &s, int fd, Route &route);
bool read_destination(int fd, const Destination &to, sockaddr_in6 &out);
bool flow_on_this_host(int fd, const Destination &to, Flow &flow); // false too while the socket has no port
void forget_endpoints();
bool is_stale(const Route &route);

// ---- receiving (receive.cpp, ancillary.cpp; receiving.hpp has the parts)
ssize_t receive(Socket &s, int fd, void *buf, std::size_t len, int flags, sockaddr *from, socklen_t *from_len);
ssize_t receive_msg(Socket &s, int fd, msghdr *msg, int flags);
// The same without a copy if it can be: then `loan` has a lender, and nothing was written where `msg` says. Not with
// MSG_PEEK. `force`: EIO, and nothing is taken, where the kernel has it. `about` may be nullptr.
ssize_t receive_lent(Socket &s, int fd, msghdr *msg, int flags, bool force, Loan &loan, About *about);
// One look at the endpoint's side; -EAGAIN, or another negative errno. Up to `copied` bytes are always copied.
ssize_t glance(Socket &s, int fd, msghdr *msg, std::size_t copied, Loan &loan, About &about);
// recvmmsg() by the kernel alone. False: it may come by the endpoint.
bool receive_messages_kernel_only(Socket &s, int fd, mmsghdr *messages, unsigned count, int flags, timespec *timeout,
                                  int &n);
bool only_kernel_brings(const Socket &s); // the last datagram came by the kernel, and none is in the queue
int bytes_readable(Socket &s, int fd, int *count);
void describe(const Socket &s, const About &about, msghdr *msg); // address and ancillary data
// What the kernel's count in a message says of its losses. rx_lock held where others may take datagrams meanwhile.
void learn_overflows(Socket &s, msghdr *msg);
// Makes of the kernel's count in a message the sum; `capacity`: of its control buffer before the kernel wrote there.
void add_overflows(Socket &s, msghdr *msg, std::size_t capacity);

// ---- readiness (readiness.cpp)
std::uint32_t ready_events(Socket &s, int fd, std::uint32_t interest);
std::uint32_t ready_events_fast(const Socket &s, std::uint32_t interest);
void note_kernel_events(Socket &s, std::uint32_t events);
// Whether the kernel has an error for it now, which those who wait for the socket then hear of. errno stays.
bool look_for_error(Socket &s, int fd);
int take_kernel_error(Socket &s, int fd); // 0: there is none (any more)

// The error that a send or receive ends with before it does anything else, as in the kernel.
inline int take_pending_error(Socket &s, int fd)
{
    const int own = take_error(s);
    if (own == 0 && state_of(s).kernel_error.may_fail()) [[unlikely]]
        return take_kernel_error(s, fd);
    return own;
}

const char *name_of(int fd, char (&out)[kNameMax]); // "fd=7 UDP 127.0.0.1:5001"

} // namespace vma::sock::udp
