// SPDX-License-Identifier: BSD-2-Clause
// A simulation of two processes that share a TCP connection: two sockets run the library's own code, in one thread,
// over a kernel (stream_sim_kernel.cpp) and a ring of the provider (stream_sim_ring.cpp) that do nothing by themselves.
// What happens next is a step that the test chooses (stream_sim.cpp), so that any order of events can be had, and had
// again. All of it is one object, which can be copied and put back.
#pragma once

#include <rdma/fi_endpoint.h>

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "compat/src/engine/device.hpp"
#include "compat/src/table/stream.hpp"

namespace vma::test::sim {

// ---- the kernel's connection

constexpr std::uint32_t kMostInPipe = 512; // bytes; a power of two

// What one side sends to the other.
struct Pipe {
    std::uint8_t bytes[kMostInPipe];
    std::uint32_t sent; // since the connection was made, as the two below
    std::uint32_t arrived;
    std::uint32_t read;
    std::uint32_t send_room; // bytes
    std::uint32_t receive_room;
    bool fin_sent;
    bool fin_arrived;
};

struct KernelSocket {
    linger at_close;
    int error;         // that the next call is told
    bool reset;        // by the peer, or by connect(AF_UNSPEC)
    bool disconnected; // by the latter
    bool gone;         // its process has ended
};

// ---- the provider's endpoints

constexpr std::size_t kRing = 8;  // bytes
constexpr unsigned kSlots = 9;    // six are for tags
constexpr unsigned kEntries = 16; // what a queue holds of them: some faults tell a tag twice

struct Entry {
    std::uint64_t data;
    std::uint32_t length;
};

struct Endpoint {
    fid_ep ep;
    std::uint8_t region[kRing]; // the process's own: its peer writes here
    Entry entries[kEntries];    // what came and has not been told
    unsigned count;
    unsigned arrived; // of these; between hosts the others are on their way, and lost where either side ends
    bool open;
    bool cut;        // by its owner
    bool claimed;    // back, by its peer
    bool connecting; // FI_CONNECTED is to be read
    bool down_due;   // FI_SHUTDOWN is
    bool polled;     // somebody takes entries out
};

// ---- the programs

struct Sleep {
    sock::Watcher watcher;
    short events; // 0: nobody sleeps
    short asked;  // of the kernel's descriptor
    bool woken;
};

// Of an epoll set, the kernel tells what comes once, also to who is awake: of what has told of itself before only the
// library knows.
using Edge = std::uint64_t; // what has come until it was told

enum class Phase : std::uint8_t { kStays, kLeaves, kGivesUp };

struct Program {
    Sleep in;
    Sleep out;
    std::uint32_t accepted; // bytes that sends took
    std::uint32_t received;
    sock::Heir heir;
    Phase phase;
    Edge told;
    bool ended; // it was told the end of what it reads, or an error
    bool shut;
    bool dead;
};

// What the simulation does wrong, to see that it is found.
enum class Fault : std::uint8_t {
    kNone,
    kCountOff,     // the kernel counts a byte more than was sent
    kKernelDrops,  // a send to a kernel that is nearly full is said to have gone whole
    kEarlyFin,     // the kernel tells FIN before the bytes in front of it
    kNoQueued,     // FIONREAD says that nothing is there
    kEarlyStart,   // START names a byte less than the kernel got
    kLateStart,    // START is told behind what comes after it
    kMoreCredit,   // CREDIT before it was consumed
    kNoCredit,     // CREDIT is lost
    kEndLost,      // END is lost
    kEndTwice,     // END is told again when the next tag is
    kEndMore,      // END(E + 1)
    kReadyTwice,   // READY is told twice
    kReturnLess,   // RETURN(C - 1): what was read is sent again
    kDataTwice,    // a completion comes twice
    kReordered,    // two completions change places
    kCutLate,      // a write behind the cut is said to have gone
    kClaimIgnored, // what the peer keeps is sent again
    kNoNotify,     // who sleeps is not woken
    kDownLost,     // the peer's end is not told
    kPollLies,     // poll() has no news of the kernel's end
    // Between hosts:
    kNoSeen,  // SEEN is lost
    kNoFinal, // FINAL is lost
    kNoHere,  // HERE is lost
    kCount,
};

struct World {
    alignas(sock::Stream) std::byte sockets[2][sizeof(sock::Stream)];
    sock::Device device;
    Pipe pipes[2]; // by who sends
    KernelSocket kernel[2];
    Endpoint endpoints[2];
    Program programs[2];
    std::uint8_t leftovers[2][kRing]; // of a copy only: what the sockets have on the heap
    bool kept[2];
    std::int64_t now; // nanoseconds
    bool between_hosts;
    bool by_edges;          // who awaits input is an epoll set
    bool given_up;          // somebody has not waited for the other host's answer, or died
    bool room_refused;      // SO_SNDBUF can't be made larger
    bool may_reset;         // a reset of the connection is nobody's fault
    std::uint32_t offloads; // so far
    std::uint32_t spans;    // STARTs
    std::uint32_t resets;   // by the library
    std::uint32_t told;     // completions, in this step
    bool others;            // another process, which the library does not know, has sent by the kernel
    Fault fault;
    const char *found; // what is wrong; nullptr: nothing
};

extern World g_world;

inline sock::Stream &socket_of(unsigned p)
{
    return *reinterpret_cast<sock::Stream *>(g_world.sockets[p]);
}

inline unsigned peer_of(unsigned p)
{
    return 1 - p;
}

inline int fd_of(unsigned p)
{
    return static_cast<int>(p) + 1000;
}

inline Program &program(unsigned p)
{
    return g_world.programs[p];
}

inline bool is_asleep(const Sleep &sleep)
{
    return sleep.events != 0 && !sleep.woken;
}

// The first that is found stays.
inline void report(const char *what)
{
    if (g_world.found == nullptr)
        g_world.found = what;
}

// stream_sim_kernel.cpp
void install_kernel();
short kernel_poll(unsigned p, short events);
Edge kernel_edge(unsigned p); // of what can be read
bool can_move(unsigned from);
void move(unsigned from); // what is on its way arrives, as far as there is room
void end_process(unsigned p);

// stream_sim_ring.cpp
void open_endpoints(); // of both sides, not connected
void connected(unsigned p);
bool deliver(unsigned p);         // one entry. False: there is none
void lose_on_the_way(unsigned p); // to it
int pass_time();

// ---- stream_sim.cpp

struct Setting {
    std::uint32_t send_room = 4; // of the kernel, bytes
    std::uint32_t receive_room = 4;
    bool room_refused = false;
    bool between_hosts = false;
    bool by_edges = false;
    Fault fault = Fault::kNone;
};
void begin(const Setting &setting);

enum class Do : std::uint8_t {
    kSend, // `size` bytes
    kReceive,
    kPeek,
    kAwaitInput,
    kAwaitRoom,
    kDeliver,
    kArrive, // of what p is told; on one host it is there at once
    kTick,
    kMove,       // of what p sends
    kKernelNews, // who sleeps hears of the kernel's descriptor
    kDown,
    kConnected,
    kOffload,
    kOtherSends,  // another process that has the socket, by the kernel
    kSpill,       // END, as a blocking send has it where the ring stays full
    kLeave,       // a fork; the idle fallback
    kLeaveForAll, // a program that may know only the kernel's bytes gets the socket
    kGiveUp,      // a second is over
    kClose,       // the third step of leaving
    kShut,        // SHUT_WR
    kDie,
    kCount,
};
struct Step {
    Do what;
    std::uint8_t who;
    std::uint8_t size;
};
const char *name_of(Do what);

bool can(const Step &step);
void act(const Step &step); // and looks at what must hold always

// Of the program: 0 or errno. It is checked what came.
int receive(unsigned p, std::size_t size, int flags);
int send(unsigned p, std::size_t size);

// stream_sim_wait.cpp
void lie_down(unsigned p, Sleep &sleep, short events); // unless there is something
void get_up(Sleep &sleep);
bool has_news(unsigned p, const Sleep &sleep); // of the kernel, for who sleeps
void tell_kernel_news(unsigned p);
void get_up_if_woken(unsigned p);

// ---- stream_sim_end.cpp

// Nothing happens any more but what has to: then both have all that the other sent, and its end. The world is used up.
void conclude();

// A copy of the world.
void save(World &to);
void restore(const World &from);
void drop_heap(); // what the sockets have there
std::uint64_t hash_of(const World &saved);

} // namespace vma::test::sim
