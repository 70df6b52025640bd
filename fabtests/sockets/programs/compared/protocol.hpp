// SPDX-License-Identifier: BSD-2-Clause
// What the comparer tells its actors to do, and what they answer. Both go through a SOCK_SEQPACKET pair, one message
// each, with a descriptor beside where the call needs one. Actors name descriptors by the slot of their process.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace compared {

constexpr int kSlots = 24;      // descriptors that a process may have of the comparer
constexpr int kBytes = 1 << 16; // the longest send or receive
constexpr int kItems = 12;      // of a poll, and events of a wait

enum class Op : std::int32_t {
    kSocket,
    kListen,
    kConnect,
    kAccept,
    kSend,
    kReceive,
    kMove, // a receive by splice(), a send by sendfile() or splice()
    kShutdown,
    kClose,
    kDuplicate,
    kReplace,
    kNonblocking,
    kUnread,
    kMark,
    kGetOption,
    kSetOption,
    kPoll,
    kSelect,
    kNewSet,
    kControl,
    kWaitSet,
    kDissolve, // connect() to AF_UNSPEC
    kBind,
    kName,
    kPeerName,
    kPause,
    kSpawn,
    kGive,
    kTake,
    kThread,
    kFork,
    kExec,
    kReap,
    kExit,
    kCount
};

const char *name_of(Op op) noexcept;

struct Item {
    std::int32_t slot = -1;
    std::uint32_t events = 0;

    bool operator==(const Item &) const = default;
};

struct Command {
    Op op{};
    std::int32_t slot = -1;
    std::int32_t other = -1; // a second slot, or where a new descriptor goes
    std::int32_t form = 0;   // which of the calls that do this
    std::int32_t flags = 0;
    std::int64_t length = 0;
    std::int64_t value = 0;
    std::uint64_t seed = 0; // of the bytes that are sent
    std::int32_t port = 0;  // the world's own
    std::int32_t count = 0;
    std::array<Item, kItems> items{};
};

struct Reply {
    std::int64_t result = 0;
    std::int32_t error = 0;
    std::int32_t flags = 0;   // what recvmsg() says
    std::int32_t signals = 0; // SIGPIPE, during the call
    std::uint64_t sum = 0;    // of the bytes that came
    std::int64_t value = 0;
    std::int32_t count = 0;
    std::array<Item, kItems> items{};
    std::int32_t port = 0; // the world's own, and so not compared
    std::int32_t process = 0;
    std::int32_t thread = 0;
};

bool same(const Reply &one, const Reply &other) noexcept;
std::string text_of(const Command &command);
std::string text_of(const Reply &reply);
std::uint64_t sum_of(const void *bytes, std::size_t length) noexcept;
void fill(void *bytes, std::size_t length, std::uint64_t seed) noexcept;

// One message, with at most one descriptor. send_message() is false where nobody is there; receive_message() says how
// it went.
enum class Arrival { kHere, kNothing, kOver };
bool send_message(int channel, const void *message, std::size_t length, int descriptor = -1) noexcept;
Arrival receive_message(int channel, void *message, std::size_t length, int *descriptor, bool wait) noexcept;

} // namespace compared
