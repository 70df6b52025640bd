// SPDX-License-Identifier: BSD-2-Clause
// UDP's sockets: whose a datagram or an ICMP error is, and what waits to be read. Sending needs no table: header.hpp,
// inet/wire/fragment.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "prov/vma/src/inet/udp/datagram_queue.hpp"
#include "prov/vma/src/inet/udp/groups.hpp"
#include "prov/vma/src/inet/udp/header.hpp"
#include "prov/vma/src/inet/wire/icmp.hpp"

namespace vma::inet {

using UdpSocketId = std::uint32_t;
inline constexpr UdpSocketId kNoUdpSocket = ~UdpSocketId{0};

// Who takes a socket's datagrams as they come, in the place of its queue. Called by deliver().
struct UdpTaker {
    virtual void take(const DatagramInfo &info, Bytes data) noexcept = 0;

protected:
    ~UdpTaker() = default;
};

// How a socket was made; as the socket options of these names.
struct UdpOptions {
    bool v6_only = false;
    bool reuse_address = false;
    bool reuse_port = false;
    bool multicast_all = true;             // groups that others have joined, too (IP_MULTICAST_ALL, on in Linux)
    bool receive_errors = false;           // IP_RECVERR: errors of datagrams sent are queued, soft ones as well
    UdpTaker *taker = nullptr;             // nullptr: they wait to be read
    bool groups_only = false;              // it gets nothing that is sent to a host, or to all
    std::uint32_t receive_bytes = 212'992; // of blocks: when as many wait, further ones are dropped
};

enum class UdpDelivered : std::uint8_t {
    kDelivered, // to one socket at least
    kNoSocket,
    kDropped, // every socket whose it was had no room
    kInvalid, // parse_udp has refused it
};

class UdpTable
{
public:
    struct Limits {
        std::uint32_t sockets = 1024;
        std::uint32_t group_records = 1024;
    };

    struct Counters {                                        // of all sockets, those closed included
        std::array<std::uint64_t, kUdpParsedKinds> parsed{}; // packets, by UdpParsed
        std::uint64_t delivered = 0;                         // datagrams, once for each socket
        std::uint64_t no_socket = 0;                         // packets
        std::uint64_t dropped_full = 0;                      // datagrams, for each socket whose queue was full
        std::uint64_t dropped_pool = 0;                      // likewise, as the pool had too few blocks
        std::uint64_t errors_told = 0;                       // ICMP errors that a socket has got
        std::uint64_t errors_unheard = 0;                    // ICMP errors that none has got
        std::uint64_t errors_dropped = 0;                    // told, but not queued for want of room
    };

    // `pool`: of blocks of DatagramQueue::kMinBlock bytes at least; it outlives this, and others may use it.
    UdpTable(const Limits &limits, BlockPool &pool);
    ~UdpTable();
    UdpTable(const UdpTable &) = delete;
    UdpTable &operator=(const UdpTable &) = delete;

    // Calls of sockets answer 0 or a negative errno; `id` is of a socket that is open.
    UdpSocketId open(const UdpOptions &options); // kNoUdpSocket: all are in use
    void close(UdpSocketId id);

    // May be changed, the first three before bind() only.
    UdpOptions &options(UdpSocketId id) { return socket(id).options; }

    // Once. `local`: a port that is not 0; :: takes IPv4 too unless v6_only. -EINVAL, or -EADDRINUSE by Linux's rules.
    int bind(UdpSocketId id, const Endpoint &local);

    // From then on it gets this peer's datagrams only. `source`: its address if it is bound to any, by the route. May
    // be repeated. -EINVAL: not bound, or a part is missing; -EAFNOSUPPORT: of another family.
    int connect(UdpSocketId id, const IpAddress &source, const Endpoint &remote);
    void disconnect(UdpSocketId id);

    int change_group(UdpSocketId id, GroupChange change, const IpAddress &group, const IpAddress &source = {});

    // `broadcast`: the target is a broadcast address of the port's; it goes to every socket that wants it, as to a
    // group.
    UdpDelivered deliver(const Packet &packet, bool broadcast = false);

    // True: a socket has got it. As Linux: a connected one as pending error if it is hard or says too big; any if it
    // has receive_errors, with an entry in its queue of errors.
    bool tell_error(const IcmpError &error);

    struct Received {
        int error = 0;          // negative errno: -EAGAIN, nothing waits, or the pending error, which is so cleared
        std::size_t copied = 0; // less than info.length: truncated
        DatagramInfo info;
    };
    enum class Read : std::uint8_t { kTake, kPeek };
    Received receive(UdpSocketId id, std::span<const std::span<std::uint8_t>> room, Read read = Read::kTake);

    // MSG_ERRQUEUE: of each error, the data that was sent, as far as it was quoted.
    Received receive_error(UdpSocketId id, std::span<const std::span<std::uint8_t>> room);

    int take_error(UdpSocketId id); // the pending error, 0: none; it is so cleared (SO_ERROR)

    bool readable(UdpSocketId id) const { return !socket(id).received.empty() || socket(id).error; }
    bool has_errors(UdpSocketId id) const { return !socket(id).errors.empty(); }
    std::uint32_t first_length(UdpSocketId id) const;                          // of data, 0 if nothing waits (FIONREAD)
    std::uint64_t dropped(UdpSocketId id) const { return socket(id).dropped; } // datagrams, since it was opened
    const Flow &flow(UdpSocketId id) const { return socket(id).flow; }         // remote port 0: not connected

    // A socket to which something came since it was last named here; kNoUdpSocket: none.
    UdpSocketId next_event();

    const Counters &counters() const { return counters_; }

private:
    struct Socket {
        bool open = false;
        bool listed = false; // among the events
        int error = 0;
        UdpOptions options;
        Flow flow;                       // remote port 0: not connected; local port 0: not bound
        IpAddress bound;                 // what flow.local.address is again when it is disconnected
        UdpSocketId next = kNoUdpSocket; // of those free, or of those with the same hash of the port
        UdpSocketId next_event = kNoUdpSocket;
        UdpGroups::Chain groups = 0;
        std::uint64_t dropped = 0;
        DatagramQueue received;
        DatagramQueue errors;
    };

    Socket &socket(UdpSocketId id) { return sockets_[id]; }
    const Socket &socket(UdpSocketId id) const { return sockets_[id]; }
    UdpSocketId &bucket(std::uint16_t port) const { return buckets_[port & (bucket_count_ - 1)]; }
    int score(const Socket &socket, const Flow &flow) const;
    UdpSocketId find(const Flow &flow) const;
    UdpSocketId pick(const Flow &flow, int best, unsigned ties) const;
    bool wants_group(const Socket &socket, const Flow &flow) const;
    bool enqueue(UdpSocketId id, const Packet &packet, const UdpDatagram &datagram);
    void add_event(UdpSocketId id);

    const std::uint32_t bucket_count_; // a power of two
    BlockPool &pool_;
    UdpGroups groups_;
    std::unique_ptr<Socket[]> sockets_;
    std::unique_ptr<UdpSocketId[]> buckets_;
    UdpSocketId free_ = kNoUdpSocket;
    UdpSocketId first_event_ = kNoUdpSocket;
    UdpSocketId last_event_ = kNoUdpSocket;
    Counters counters_;
};

} // namespace vma::inet
