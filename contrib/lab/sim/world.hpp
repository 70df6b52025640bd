// SPDX-License-Identifier: BSD-2-Clause
// The inside of the simulated NIC: its objects, each derived from what the caller sees of it, and the world they are
// in. One lock, World::mutex, is held for all of it; functions here expect it to be held.
#pragma once

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "contrib/lab/sim/events.hpp"
#include "contrib/lab/sim/real_wire.hpp"
#include "contrib/lab/sim/sim.hpp"
#include "contrib/lab/sim/timers.hpp"

namespace vma::sim {

struct CmId;
struct Context;
struct Headers;
struct Qp;

struct Device : ibv_device {
    DeviceConfig config;
    unsigned place = 0;
    std::vector<ibv_gid> gids;
    bool up = true;
    bool removed = false;
    std::size_t dm_used = 0;
    Context *cm_context = nullptr; // what ids on it have as `verbs`, made when the first is
    std::unique_ptr<RealWire> wire;
};

struct AsyncEvent {
    ibv_async_event event;
    const void *element; // the object that may not go before it is acknowledged, or nullptr
};

struct Context : verbs_context {
    Device *nic = nullptr;
    EventQueue<AsyncEvent> events;
};

struct Pd : ibv_pd {
    unsigned users = 0;
};

struct Dm : ibv_dm {
    std::vector<std::byte> bytes;
    unsigned users = 0;
};

struct Mr : ibv_mr {
    std::byte *start = nullptr; // where it is in this process
    std::uint64_t iova = 0;     // what work requests say for `start`
    unsigned access = 0;
    Dm *dm = nullptr;
};

struct Cq;

struct Channel : ibv_comp_channel {
    EventQueue<Cq *> events;
};

struct Srq;

struct Cqe {
    ibv_wc wc{};
    Qp *qp = nullptr;
    Srq *srq = nullptr; // a receive that came from it
    bool send = false;
    std::uint64_t upto = 0; // a send's: all requests before this one leave the queue with it
    Ns time{};
};

enum class Armed { no, solicited, any };

struct Cq : ibv_cq_ex {
    std::deque<Cqe> entries;
    Cqe current; // between start_poll and end_poll
    Armed armed = Armed::no;
    bool overrun = false;
    unsigned users = 0;
    unsigned given = 0; // completion events that get_cq_event() returned
};

struct RecvWr {
    std::uint64_t wr_id = 0;
    std::vector<ibv_sge> sges;
};

// A receive queue, a QP's own or an SRQ's.
struct RecvQueue {
    std::deque<RecvWr> posted;
    std::uint32_t max_wr = 0;
    std::uint32_t max_sge = 0;
    std::uint32_t used = 0; // posted, or completed and not polled yet
};

struct Srq : ibv_srq {
    RecvQueue queue;
    std::uint32_t limit = 0;
    unsigned users = 0;
};

struct Ah : ibv_ah {
    ibv_ah_attr attr{};
};

struct SendWr {
    std::uint64_t wr_id = 0;
    std::uint64_t place = 0; // in the order of posting
    ibv_wr_opcode opcode{};
    unsigned flags = 0;
    bool signaled = false;
    std::uint32_t imm = 0; // as it travels
    std::uint64_t remote_addr = 0;
    std::uint32_t rkey = 0;
    ibv_gid sgid{}; // UD only, as the next three
    ibv_gid dgid{};
    std::uint32_t remote_qpn = 0;
    std::uint32_t remote_qkey = 0;
    std::uint64_t length = 0;
    std::vector<ibv_sge> sges;
    std::vector<std::byte> inlined;
    std::vector<std::uint8_t> tso_header; // of a segment to be cut
    std::uint16_t tso_size = 0;           // bytes of data of each piece
};

// How far the first request of a send queue is, and why it is not done.
struct Head {
    enum Wait { none, rate, rnr, timeout } wait = none;
    bool started = false; // all of these are set
    Ns due{};             // when its last packet may leave
    int retries = 0;      // left; of the QP's retry_cnt
    int rnr_retries = 0;  // left; 7: no limit
    Timers::Key timer{};
};

struct Qp : ibv_qp {
    ibv_qp_attr attr{};
    ibv_qp_cap cap{};
    bool all_signaled = false;
    std::uint32_t max_tso_header = 0; // bytes; 0: it cuts no segments
    std::deque<SendWr> sends;
    std::uint64_t sends_posted = 0;
    std::uint64_t sends_freed = 0;
    Head head;
    RecvQueue own;          // unused with an SRQ
    std::uint32_t rate = 0; // kbit/s; 0: none
    std::uint32_t burst = 0;
    Ns paid_until{};
    bool last_wqe_told = false;
    bool established_told = false;
    bool drop_completion = false;
    unsigned forced_rnr = 0;
    int post_error = 0;
    unsigned flows = 0;
};

struct Flow : ibv_flow {
    Qp *qp = nullptr;
    Device *nic = nullptr;
    unsigned priority = 0;
    std::vector<std::byte> rule;
};

struct Fault {
    unsigned after; // calls that go well before it
    int error;
};

struct CmChannel;

struct World {
    std::mutex mutex;
    std::condition_variable acknowledged;
    Config config;
    std::vector<std::unique_ptr<Device>> devices;
    Timers timers{mutex};
    std::unordered_set<Context *> contexts;
    std::unordered_set<Pd *> pds;
    std::unordered_set<Dm *> dms;
    std::unordered_map<std::uint32_t, Mr *> mrs; // by key
    std::unordered_set<Channel *> channels;
    std::unordered_set<Cq *> cqs;
    std::unordered_set<Srq *> srqs;
    std::map<std::uint32_t, Qp *> qps; // by number
    std::unordered_set<Ah *> ahs;
    std::vector<Flow *> flows; // in order
    std::unordered_set<CmChannel *> cm_channels;
    std::vector<CmId *> ids;             // in order, so that one seed gives one run
    std::multiset<const void *> unacked; // of async events: whose
    std::set<std::pair<unsigned, unsigned>> cuts;
    std::map<std::string, int> route_faults; // by the bytes of a GID
    std::map<std::string, Fault, std::less<>> faults;
    std::uint32_t next_key = 0x1000;
    std::uint32_t next_qpn = 0x11;
    std::uint16_t next_port = 32768;
    unsigned frame_loss = 0; // of 10,000
    std::uint64_t random = 0;
    unsigned rnr_waits = 0; // QPs with Head::rnr
    unsigned cm_unacked = 0;
    Stats stats{};
};

World &world();

inline Context *of(ibv_context *c)
{
    return static_cast<Context *>(verbs_get_ctx(c));
}
inline Device &nic(ibv_context *c)
{
    return *of(c)->nic;
}
inline Pd *of(ibv_pd *p)
{
    return static_cast<Pd *>(p);
}
inline Mr *of(ibv_mr *m)
{
    return static_cast<Mr *>(m);
}
inline Dm *of(ibv_dm *d)
{
    return static_cast<Dm *>(d);
}
inline Channel *of(ibv_comp_channel *c)
{
    return static_cast<Channel *>(c);
}
// ibv_cq is how ibv_cq_ex begins: rdma-core casts the same way.
inline Cq *of(ibv_cq *c)
{
    return static_cast<Cq *>(reinterpret_cast<ibv_cq_ex *>(c));
}
inline Srq *of(ibv_srq *s)
{
    return static_cast<Srq *>(s);
}
inline Qp *of(ibv_qp *q)
{
    return static_cast<Qp *>(q);
}
inline Ah *of(ibv_ah *a)
{
    return static_cast<Ah *>(a);
}

// errno for the caller who gets a null pointer.
inline std::nullptr_t null_errno(int error)
{
    errno = error;
    return nullptr;
}

// Waits, with the lock given up, until `done()`; aborts the process after Config::ack_patience, as the caller has
// events that it never acknowledges.
void wait_acknowledged(std::unique_lock<std::mutex> &lock, const char *what, const std::function<bool()> &done);

// The errno that a test ordered for this call, or 0. See fail_call().
int take_fault(std::string_view function);
bool known_function(std::string_view function);

// ---- device.cpp
void async_event(ibv_context *context, ibv_event_type type, void *element);
void forget_async(ibv_context *context, const void *element); // the object goes: its unread events go with it
Context *make_context(Device &device);
std::uint64_t ticks(const Device &device, Ns time); // of the clock that stamps completions
bool gid_of(const std::string &address, ibv_gid &gid);
Device *device_of(const ibv_gid &gid);
// Whether anything gets from one to the other now.
bool reachable(const Device &from, const Device &to);

// ---- memory.cpp
// Where a scatter-gather entry lies; nullptr: this PD's key does not allow it.
std::byte *local_bytes(const Pd &pd, const ibv_sge &sge, unsigned access, bool *from_dm = nullptr);
std::byte *remote_bytes(const Qp &qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t length, unsigned access);

// ---- cq.cpp
void push(ibv_cq *cq, Cqe entry, bool solicited);
void purge(ibv_cq *cq, const Qp &qp);
// Gives back what the completion held.
void release(const Cqe &entry);

// ---- qp_*.cpp, transport.cpp, datagram.cpp, raw.cpp, flow.cpp
RecvQueue &receives(Qp &qp);
void to_error(Qp &qp); // flushes all
void forget_head(Qp &qp);
void complete_send(Qp &qp, const SendWr &wr, ibv_wc_status status);
void complete_receive(Qp &qp, const RecvWr &wr, const ibv_wc &wc, bool solicited);
// Takes the next receive of the QP's or its SRQ's. False: there is none.
bool take_receive(Qp &qp, RecvWr &wr);
// Copies into (or, `out`, from) the entries, `length` bytes at most.
ibv_wc_status scatter(const Pd &pd, const std::vector<ibv_sge> &sges, const std::byte *from, std::uint64_t length);
ibv_wc_status gather(const Pd &pd, const SendWr &wr, std::vector<std::byte> &bytes, bool *from_dm);
std::uint64_t mtu_bytes(ibv_mtu mtu);
void run(Qp &qp);                          // works the send queue as far as it goes
void run_waiting(const RecvQueue &posted); // those who wait for a receive here
ibv_wc_status send_datagram(Qp &qp, const SendWr &wr);
ibv_wc_status send_frame(Qp &qp, const SendWr &wr);
// A frame from the device's wire. False: no rule takes it, it is the host's.
bool take_frame(const Device &device, std::span<const std::uint8_t> frame);
bool matches(const Flow &flow, const Headers &headers);

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad);
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad);
int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad);
int poll_cq(ibv_cq *cq, int count, ibv_wc *wc);
int req_notify_cq(ibv_cq *cq, int solicited_only);
int modify_qp_rate_limit(ibv_qp *qp, ibv_qp_rate_limit_attr *attr);
ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *attr);
ibv_cq_ex *create_cq_ex(ibv_context *context, ibv_cq_init_attr_ex *attr);
int modify_cq(ibv_cq *queue, ibv_modify_cq_attr *attr);
ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr);
int free_dm(ibv_dm *dm);
ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length, unsigned access);
ibv_flow *create_flow(ibv_qp *qp, ibv_flow_attr *attr);
int destroy_flow(ibv_flow *flow);

// ---- cm_*.cpp
void cm_device_removed(Device &device);
void cm_peers_replaced(const Device &device);
void cm_reset();

// Rdma-core's functions as the table has them, under its members' names.
namespace calls {
#pragma push_macro("ibv_query_port")
#pragma push_macro("ibv_reg_mr")
#undef ibv_query_port
#undef ibv_reg_mr
#define VMA_SIM_CALL(member, symbol) extern decltype(::symbol) member;
VMA_VERBS_FUNCTIONS(VMA_SIM_CALL)
#undef VMA_SIM_CALL
#pragma pop_macro("ibv_reg_mr")
#pragma pop_macro("ibv_query_port")
} // namespace calls

} // namespace vma::sim
