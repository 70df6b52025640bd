// SPDX-License-Identifier: BSD-2-Clause
// An epoll set as user space sees it: the entries of tracked sockets and of nested sets, the list of those that may be
// ready, who waits. doc/multiplexing.md tells how it works together with the kernel's set. Private to compat/src/mux.
//
// Lock order: Set::lock, then MuxHook::lock; Set::lock, then a socket's watcher lock (watch, unwatch) or
// Set::watch_lock, then Set::ready_lock; an inner set's watch_lock before an outer set's locks of the same kind.
// Sockets are asked for their readiness with none of them held.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/clock.hpp"
#include "compat/src/base/lock.hpp"
#include "compat/src/base/spin_habit.hpp"
#include "compat/src/base/stable_pool.hpp"
#include "compat/src/engine/engine.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/stats/layout.hpp"
#include "compat/src/table/socket.hpp"

namespace vma::mux {

using sock::LockGuard;
using sock::Mutex;

struct Set;

// Where an entry is registered, and so who reports its events.
enum class Place : std::uint8_t {
    kFree,    // the entry is unused
    kKernel,  // in the program's kernel set, as the program asked
    kTagged,  // the same, but with our tag for data: one-shot, we must see it fire
    kNowhere, // a one-shot that has fired, which EPOLL_CTL_MOD brings back; or it is about to be registered
    kTaken,   // in the side set (a nested set: in the kernel set, tagged); its events are reported from here
    kParked,  // removed by the program while taken, kept in the side set: it mostly comes back at once
    kStuck,   // its number is closed while the file lives on: nobody can change what the kernel has
};

// One registration. Written with the set's lock and ready_lock held, so that either is enough to read; what an event
// changes (queued, disabled, edges) is written and read with ready_lock.
struct alignas(128) Entry {
    sock::Watcher watcher; // first: notify() finds the entry by it
    std::atomic<Set *> set{nullptr};
    void *source = nullptr; // sock::Socket, or Set when nested
    epoll_data_t data = {};
    Entry *ready_next = nullptr; // the set's ready list
    Entry *ready_prev = nullptr;
    union {
        Entry *set_next = nullptr; // the set's entries
        Entry *next_free;
    };
    Entry *set_prev = nullptr;
    Entry *source_next = nullptr; // the source's entries, its hook's lock
    Entry *source_prev = nullptr;
    int fd = -1;
    std::uint32_t events = 0;     // as the program asked
    std::uint32_t edges = 0;      // counts events, queued already or not
    std::uint32_t told = 0;       // bits of the last report, EPOLLRDHUP in any case, while edge-triggered
    std::uint32_t generation = 0; // changes with the registration: what was found out about the old one is void
    std::uint64_t since = 0;      // only rounds after this one may report it
    std::atomic<Place> place{Place::kFree};
    bool nested = false;
    bool queued = false;     // on the ready list
    bool bare_end = false;   // by sock::kBeforeEnd alone
    bool disabled = false;   // one-shot that has fired
    bool seen = false;       // on the kernel's list, by who reads that; the set's lock
    bool given_back = false; // or tried to, by who gives all of the set back; likewise

    sock::Socket *socket() const { return static_cast<sock::Socket *>(source); }
    Set *inner() const { return static_cast<Set *>(source); }
};

struct alignas(64) Set {
    // What every wait looks at.
    std::atomic<std::uint32_t> taken{0};   // entries that are reported from here
    std::atomic<std::uint32_t> tracked{0}; // all entries
    std::atomic<bool> filter{false};       // the kernel set may return what is not the program's; or `dead`
    std::atomic<bool> dead{false};         // its last descriptor is closed
    std::atomic<bool> pooled{true};        // not a set at all
    std::atomic<bool> storm{false};        // see begin_storm()
    // So many more reports count it among the sets with something that only the kernel knows of: a look has found a
    // taken socket to wait for the kernel, whose FIN may be on its way.
    std::atomic<std::uint32_t> kernel_waits{0};
    // Something has come, or is about to, since the kernel was asked, that may be later than what that has.
    std::atomic<bool> kernel_first{true};
    std::atomic<bool> always_asks{false}; // of some that it has, or had, nobody tells that
    std::atomic<bool> tells_ends{false};  // an entry of it asks for EPOLLRDHUP, or did
    std::atomic<std::uint32_t> added{0};  // untracked descriptors, at least so many as are in it
    std::atomic<std::uint32_t> moving{0}; // entries on their way between the kernel's set and ours; written with `lock`
    KernelShare kernel_share;
    SpinHabit spins;
    std::atomic<sock::RingMask> rings{0};      // that its taken entries are on, or were
    std::atomic<stats::Mux *> record{nullptr}; // what it counts in, once it has waited for tracked sockets

    Mutex lock;
    std::uint32_t descriptors = 0;
    std::atomic<int> epfd{-1}; // one of its descriptors
    Entry *entries = nullptr;
    std::atomic<int> side_fd{
        -1}; // side set: kernel's news of taken entries, kick and engine descriptors, edge-triggered
    std::atomic<int> engine_fd{-1};            // the main ring's, registered in it
    std::atomic<sock::RingMask> more_rings{0}; // the others whose descriptors are
    std::atomic<bool> side_hangs{false};       // it is in the kernel set; written with `lock`
    std::int64_t storm_end = 0;
    std::atomic<std::uint32_t> users{0}; // besides those that the thread records tell of

    Mutex ready_lock;
    Entry *head = nullptr;
    Entry *tail = nullptr;
    std::atomic<std::uint32_t> ready{0}; // length of the list
    std::uint64_t round = 0;             // see begin_round()
    std::atomic<std::uint32_t> asleep{0};
    bool kicked = false; // the kick descriptor was written and the side set not drained since
    int kick_fd = -1;

    // The set as something that others wait for.
    sock::MuxHook hook;
    Mutex watch_lock;
    std::atomic<sock::Watcher *> watchers{nullptr};

    // See shared_sets.cpp. Written with `lock` held.
    // Its number in the family while others may have it, or kForGood, kForExec; 0: our own.
    std::atomic<std::uint32_t> shared{0};
    std::uint32_t changes = 0;      // so many of the family's are known here
    std::int64_t read_again_ns = 0; // CLOCK_MONOTONIC: not before, while others have it

    bool inherited = false; // a fork has just made it: what is taken is so for the parent alone

    Set *next_free = nullptr;
};

inline bool is_disabled(Set &set, const Entry &entry)
{
    LockGuard guard(set.ready_lock);
    return entry.disabled;
}

inline bool is_taken(const Set &set)
{
    return set.taken.load(std::memory_order_acquire) != 0;
}

// Is there something in it that only the kernel knows of?
inline bool is_mixed(const Set &set)
{
    return set.added.load(std::memory_order_relaxed) != 0 || set.moving.load(std::memory_order_relaxed) != 0 ||
           set.tracked.load(std::memory_order_relaxed) != set.taken.load(std::memory_order_relaxed);
}

inline constexpr std::uint32_t kControlBits = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;
inline constexpr std::uint32_t kAlwaysReported = EPOLLERR | EPOLLHUP;
inline constexpr std::uint32_t kSideEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;
inline constexpr std::uint64_t kTagGenerations = alignof(Entry) - 1; // bits of a tag that are the generation
// In the upper bits of what is ours in the kernel set, where no address has such: a program's data may be any number,
// also a small one below the upper half of whatever address was there before (Java's), which our memory's address can
// be.
inline constexpr std::uint64_t kMark = std::uint64_t{0xb5c3} << 48;

// Data values in the side set; anything else there is an entry's address.
inline constexpr std::uint64_t kKickMarker = 1;
inline constexpr std::uint64_t kEngineMarker = 2;

// Marks the side set in the kernel set.
inline std::uint64_t side_marker(const Set &set)
{
    return kMark | reinterpret_cast<std::uintptr_t>(&set);
}

inline std::uint64_t tag_of(const Entry &entry)
{
    return kMark | reinterpret_cast<std::uintptr_t>(&entry) | (entry.generation & kTagGenerations);
}

// Where the entry of a tag is, if it is one: the pool knows.
inline std::uint64_t place_of_tag(std::uint64_t tag)
{
    return (tag ^ kMark) & ~kTagGenerations;
}

using EntryPool = StablePool<Entry, std::size_t{1} << 20>;
using SetPool = StablePool<Set, std::size_t{1} << 16>;

// What all epoll sets share.
struct EpollSets {
    std::atomic<bool> no_pwait2{false};        // kernel_wait.cpp: a kernel before 5.11; set once
    std::atomic<int> end{0};                   // above all numbers that sets ever had; written with the lock held
    Mutex lock;                                // descriptors that are entered and removed; before Set::lock
    std::atomic<Set *> main_owner{nullptr};    // the first that has accelerated sockets: it has the main ring
    std::atomic<std::uint32_t> main_poller{0}; // likewise of the threads that poll
    std::atomic<std::uint32_t> shared{0};      // so many sets that others may have
    // Each has a lock of its own.
    SetPool pool;
    alignas(64) EntryPool entries;
    alignas(64) Set *slots[sock::kMaxTracked]; // by descriptor and set_slot() only: atomic, written with the lock held
};
extern constinit EpollSets g_mux;

// ---- set_table.cpp: descriptors of sets, their life ----------------------------------------------------------------

inline std::atomic_ref<Set *> set_slot(int fd)
{
    return std::atomic_ref<Set *>(g_mux.slots[fd]);
}

inline Set *set_of(int fd)
{
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(sock::kMaxTracked))
        return nullptr;
    return set_slot(fd).load(std::memory_order_acquire);
}

// Nothing in the set concerns us now, or it is no set that we know: a look that doesn't wait may go to the kernel
// directly.
inline bool only_kernel(int epfd)
{
    const Set *const set = set_of(epfd);
    return set == nullptr ||
           (set->tracked.load(std::memory_order_acquire) == 0 && !set->filter.load(std::memory_order_relaxed));
}

int highest_set();                         // the highest number that one has had
Set *adopt_set(int epfd);                  // an epoll descriptor that is not known yet; nullptr: no memory
stats::Mux &make_record(Set &set);         // that it counts in
void recycle_if_unused(Set &set);          // of a dead set: gives its descriptors and memory back
int live_number(const Set &set, int epfd); // epfd, or another descriptor of the same set; -1 when all are closed

// ---- entry.cpp: entries and the lists they are on -------------------------------------------------------------------

struct ThreadRecord;
// The thread is about to wait for the socket beside others, in poll() or select().
void note_poller(sock::Socket &s, const ThreadRecord &thread);
sock::MuxHook &hook_of(const Entry &entry);
sock::MuxHook &hook_of(void *source, bool nested);
Entry *find_entry(Set &set, void *source, bool nested, int fd); // set.lock held
Entry *new_entry(Set &set, void *source, bool nested, int fd);  // set.lock held; nullptr: no memory
void drop_entry(Set &set, Entry &entry);                        // set.lock held

// ---- interest_migration.cpp: between the kernel set and the side set ------------------------------------------------

// To the kernel set as the program asked, or the same for an entry that is there (`op` ADD or MOD). set.lock held.
int register_in_kernel(Set &set, Entry &entry, int op);

// An entry on its way is seen on neither side: true where there was one, and now it has arrived. No lock held.
bool awaits_move(Set &set);
bool take_over(Set &set, Entry &entry);            // set.lock held; false: can't be, the entry is as it was
void give_back(Set &set, Entry &entry);            // set.lock held
void leave_side(Set &set, Entry &entry);           // the kernel forgets a taken entry; set.lock held
void detach(Set &set, Entry &entry);               // of a taken entry: no watcher, not on the ready list; set.lock held
void watch_engine(Set &set, sock::RingMask rings); // before a sleep: the engine's descriptors belong into the side set
void park(Set &set, Entry &entry);    // EPOLL_CTL_DEL of a taken entry without a system call; set.lock held
void unpark(Set &set, Entry &entry);  // taken again, as described now; set.lock held
void discard(Set &set, Entry &entry); // a parked entry goes for good; set.lock held

// In a forked child, which has neither the parent's side set nor its watchers: of sockets whose unread bytes both may
// read.
void take_over_again(Set &set); // no lock held

// Takes over, or gives back, all entries of a source that became offloaded or kernel-only. No lock held. False: one
// can't be.
bool move_entries(sock::MuxHook &hook, bool take);

// Call without locks when `taken` may have left or reached 0: the set as a source became offloaded or kernel-only.
bool tell_taken(Set &set, bool was_taken);

void end_storm(Set &set);     // if nobody needs it any more
void take_side_out(Set &set); // of the kernel set, which others look at, while nothing is taken; set.lock held

// ---- shared_sets.cpp: sets that other processes may have ------------------------------------------------------------

bool share_before_fork(Set &set); // offload lock and set.lock held; false: nobody has it
void leave_shared(Set &set);      // set.lock held: it is closed, or this process has it alone
void note_change(Set &set);       // the program has changed what the kernel has; set.lock held

// It can't be taken over, as another process is to hear of it too, or as it is not known whether it has fired.
bool stays_in_kernel(Set &set, const Entry &entry); // set.lock held, or its source's hook's
bool stays_in_kernel(sock::MuxHook &hook);          // one of the source's
bool is_seen_by_others(Set &set);                   // another process has it, or one around it
void give_to_kernel(void *source, bool nested);     // what is accelerated of it; no lock held
void give_back_all(Set &set);                       // of what is in it; no lock held
void discard_parked(Set &set); // the others would hear of what the program has deleted; no lock held

// ---- ready.cpp: the ready list --------------------------------------------------------------------------------------

void notify_entry(sock::Watcher *watcher, std::uint32_t events); // Watcher::notify of taken entries
void requeue(Set &set, Entry &entry);                            // look at it again; no ready_lock held
void unqueue(Set &set, Entry &entry);                            // ready_lock held
void kick(Set &set);                                             // wakes one sleeper, if there is one
// For a thread that will harvest this set.
unsigned poll_engine(Set &set, unsigned (*poll)(sock::RingMask) = sock::engine_poll);

inline constexpr unsigned kMostLooks = 8; // while news keep coming

// Takes in all that has come by the engine. Another thread that is at it is waited for.
void drain_rings(Set &set);

// Numbers a look at both sides, so that nobody is in its result twice: an entry that is taken over after the round
// began may be in the kernel's part already, and waits for the next one.
std::uint64_t begin_round(Set &set);

// At what a look at the list ends early: what is behind it may be later than what the kernel has by now.
enum class Heeds : std::uint8_t {
    kNothing,
    kMarks,  // something has come since the kernel was asked (`kernel_first`)
    kKernel, // that, or an entry that waits for the kernel's news (`kernel_waits`)
};

// What is ready of the first `most` on the list, each entry once. `round`: of a look whose kernel's part is to be
// reported with this; 0: there is none.
int harvest(Set &set, epoll_event *out, int max, unsigned most, std::uint64_t round, Heeds heeds = Heeds::kNothing);

// A sleep in a set, from before the last look at the list until it is over, also if it ends by a jump.
class SetSleep
{
public:
    explicit SetSleep(Set &set);
    ~SetSleep() { end(); }
    SetSleep(const SetSleep &) = delete;
    SetSleep &operator=(const SetSleep &) = delete;

    bool begin();                   // a handler from here on ends the sleep. False: there is something on the list
    bool arm(sock::RingMask rings); // sock::engine_arm()
    void end();                     // keeps errno

private:
    Set &set_;
    const int outer_; // what handlers were to wake before
    const unsigned process_;
    bool counted_ = false;
    sock::RingMask armed_ = 0;
    const libc::WhenLeft<SetSleep, &SetSleep::end> when_left_{*this};
};

void relay(Set &set); // on leaving: others sleep, and what is left may be for them

// Takes the kernel's news of taken entries out of the side set, and wake-ups, whoever they were for: after it the
// caller harvests and relays. True: the engine's descriptor was readable.
bool drain_side(Set &set);

// The same by a thread that won't harvest: wakes a sleeper for what it took.
void drain_side_for_others(Set &set);

// ---- nested.cpp: sets inside of sets, poll() and select() ----------------------------------------------------------

bool list_ready(Set &set);   // an entry on the ready list has something to report
bool set_readable(Set &set); // as poll() of its descriptor: does epoll_wait() have something to report?
void watch_set(Set &set, sock::Watcher &watcher);
void notify_watchers(Set &set);

} // namespace vma::mux
