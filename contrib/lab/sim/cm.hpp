// SPDX-License-Identifier: BSD-2-Clause
// The connection manager of the simulated NIC: its ids, events and channels, and the state an id is in. As the rest,
// all of it is under World::mutex.
#pragma once

#include "contrib/lab/sim/world.hpp"

namespace vma::sim {

// Private data that a message of the CM has room for (RDMA_PS_TCP over InfiniBand's CM), and that its event shows,
// filled up with zeros.
constexpr std::size_t kRequestData = 56;
constexpr std::size_t kReplyData = 196;
constexpr std::size_t kRejectData = 148;

// Reasons of a reject.
constexpr int kRejectTimeout = 4;
constexpr int kRejectNoListener = 8;
constexpr int kRejectConsumer = 28;

struct Endpoint {
    ibv_gid ip{}; // IPv4 as ::ffff:a.b.c.d
    sa_family_t family = AF_UNSPEC;
    std::uint16_t port = 0; // host's byte order
};

bool from_sockaddr(const sockaddr *from, Endpoint &to);
void to_sockaddr(const Endpoint &from, sockaddr_storage &to);
bool is_any(const Endpoint &endpoint);
inline bool same_ip(const ibv_gid &a, const ibv_gid &b)
{
    return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

enum class CmState {
    idle,
    bound,
    resolving, // an address that nobody has, until the time-out
    address,
    route,
    listening,
    requesting, // active: REQ is on its way, or unanswered
    requested,  // passive: it has to accept or reject
    replying,   // passive: REP unanswered
    responded,  // active: it has the REP
    connected,
    leaving, // DREQ unanswered
    left,    // the peer's DREQ is unanswered
    closed,  // rejected, unreachable, or over
    removed, // with its device
};

struct CmMessage {
    enum Kind { none, request, reply, goodbye } kind = none; // what is repeated until it is answered
    Ns deadline{};
    Timers::Key timer{};
};

struct CmChannel;

struct CmEvent : rdma_cm_event {
    CmId *counted = nullptr; // whose it is: of a request the listener's
    std::array<std::byte, kReplyData> data{};
};

struct CmChannel : rdma_event_channel {
    EventQueue<CmEvent *> events;
};

struct ConnectionValues {
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t flow_control = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry_count = 0;
    std::uint8_t srq = 0;
    std::uint32_t qp_num = 0;
    std::array<std::byte, kReplyData> data{};
};

struct CmId : rdma_cm_id {
    CmState state = CmState::idle;
    Device *nic = nullptr;
    Endpoint source;
    Endpoint destination;
    bool owns_port = false;
    bool reuses = false;
    bool visible = true; // a passive id is not, until its request is read
    int backlog = 0;
    CmId *listener = nullptr; // of one that is not visible yet
    CmId *peer = nullptr;
    bool passive = false;   // it came of a request
    ConnectionValues own;   // as connect() or accept() was told
    ConnectionValues other; // as the peer told
    std::uint32_t psn = 0;
    std::uint8_t ack_timeout = 19; // kernel's for RoCE; 4.096 us * 2^n
    bool ack_timeout_set = false;
    bool disconnect_told = false;
    CmMessage message;
    Timers::Key timer{}; // TIMEWAIT_EXIT, or the end of resolving
    unsigned reported = 0;
    unsigned acknowledged = 0;
    ibv_sa_path_rec path{};
};

inline CmId *of(rdma_cm_id *id)
{
    return static_cast<CmId *>(id);
}
inline CmChannel *of(rdma_event_channel *channel)
{
    return static_cast<CmChannel *>(channel);
}

inline int failed(int error)
{
    errno = error;
    return -1;
}

CmId *make_id(rdma_event_channel *channel, void *context, rdma_port_space space);
// Gives the id its device, and shows its addresses to the caller.
void settle(CmId &id, Device *device);
void show_addresses(CmId &id);

// Queues an event; `values` and its first `size` bytes of private data go with it.
CmEvent *tell(CmId &id, rdma_cm_event_type type, int status = 0, const ConnectionValues *values = nullptr,
              std::size_t size = 0);
void forget_message(CmId &id);
// The id goes away: what its peer hears then.
void say_farewell(CmId &id);
void discard(CmId &id);

} // namespace vma::sim
