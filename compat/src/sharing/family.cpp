// SPDX-License-Identifier: BSD-2-Clause
// The table: a record of each process, how many of them hold each cell, and a row of bits for each process, so that
// others can take it out of the counts when it has died. What can't be known counts as held: that costs speed, never a
// byte.
#include "compat/src/sharing/family.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>

#include "compat/src/base/lock.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/rendezvous/owner.hpp"

namespace vma::sock::family {

namespace {

using Count = std::atomic<std::uint32_t>;
using Word = std::atomic<std::uint64_t>;

constexpr std::uint32_t kForGood = 1U << 31; // of a count
constexpr unsigned kBits = 64;               // of a word
// Who a record is of: the namespace of process numbers in the upper half, the number in it in the lower one.
constexpr std::uint64_t kNobody = 0;
constexpr std::uint64_t kBeingTaken = ~std::uint64_t{0}; // or taken out of the counts
constexpr std::uint64_t kBeingBorn = std::uint64_t{1}
                                     << 31; // no process number is so large; and the number of the fork above

struct alignas(64) Process {
    std::atomic<std::uint64_t> who;
    std::atomic<bool> execs; // it holds the lock of its record until the kernel has closed its descriptors
};

struct alignas(64) Head {
    std::atomic<std::uint32_t> forks;
    std::atomic<std::uint32_t> processes; // records that were ever used: those behind are zeros
    std::atomic<std::uint32_t> words;     // likewise of each row
    std::atomic<std::uint32_t> cells;     // in use
    std::atomic<std::uint32_t> swept;     // the record that was looked at last
};

// Virtual: a page is taken when it is written to.
struct Limits {
    std::uint32_t processes;
    std::uint32_t cells; // a multiple of 64; the first one is not used
};
constexpr Limits kLarge = {4096, 1U << 17};
constexpr Limits kSmall = {256, 1U << 14};
constexpr rlim_t kRoomForLarge = rlim_t{8} << 30; // where a program may not have more, it needs it itself

// What this process knows of its family. Offload lock; who leaves a cell reads it without, as `self` and `process`
// change in a forked child only.
constinit struct {
    Limits limits = {0, 0};
    std::uint8_t *memory = nullptr;
    bool failed = false;
    int fd = -1;                  // an empty file in memory, whose locks tell who has become another program
    ino_t inode = 0;              // its
    std::uint32_t self = 0;       // our record, and one; 0: none
    std::uint32_t child = 0;      // likewise of the child that is being made
    std::uint32_t next_cell = 1;  // where a free one is looked for first
    pid_t process = 0;            // ours, when `self` was taken: a copy made behind our back holds nothing
    std::uint64_t space = 0;      // our namespace of numbers
    bool knows_numbers = true;    // false: which namespaces our ancestors were in can't be told
    bool looked_for_room = false; // since the last fork, among the dead
    Mutex row_lock;               // of our row: what is copied for a child is what is counted for it. Taken last
} g_family;

// Of a thread that forks, its own.
struct Fork {
    std::uint32_t number; // of it in the family
    std::uint32_t child;  // its record, and one; 0: none
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Fork t_fork = {};

// What stands for the child of this thread's fork until its number is known.
std::uint64_t token()
{
    return kBeingBorn | std::uint64_t{t_fork.number} << 32;
}

std::size_t row_words()
{
    return g_family.limits.cells / kBits;
}

std::size_t table_bytes()
{
    return sizeof(Head) + g_family.limits.processes * (sizeof(Process) + row_words() * sizeof(Word)) +
           2 * sizeof(Count) * g_family.limits.cells;
}

Head &head()
{
    return *reinterpret_cast<Head *>(g_family.memory);
}

Process &process(std::uint32_t i)
{
    return reinterpret_cast<Process *>(g_family.memory + sizeof(Head))[i];
}

Count &count(Cell cell)
{
    return reinterpret_cast<Count *>(g_family.memory + sizeof(Head) +
                                     g_family.limits.processes * sizeof(Process))[cell];
}

Count &changes_of(Cell cell)
{
    return (&count(g_family.limits.cells))[cell];
}

Word *row(std::uint32_t i)
{
    return reinterpret_cast<Word *>(&changes_of(g_family.limits.cells)) + i * row_words();
}

template <typename T> void raise_to(std::atomic<T> &most, T value)
{
    T seen = most.load(std::memory_order_relaxed);
    while (seen < value && !most.compare_exchange_weak(seen, value)) {
    }
}

std::uint64_t own_name()
{
    return g_family.space << 32 | static_cast<std::uint32_t>(::getpid());
}

void choose_limits()
{
    rlimit room = {};
    const bool wide =
        ::getrlimit(RLIMIT_AS, &room) == 0 && (room.rlim_cur == RLIM_INFINITY || room.rlim_cur >= kRoomForLarge);
    if (g_family.limits.cells == 0)
        g_family.limits = wide ? kLarge : kSmall;
}

// Without it (no descriptor is left) a process that becomes another program counts for as long as that runs.
void open_locks()
{
    struct stat st = {};
    const int fd = ::memfd_create("vma-family", MFD_CLOEXEC);
    if (fd < 0)
        return;
    g_family.fd = libc::make_private(fd);
    g_family.inode = ::fstat(g_family.fd, &st) == 0 ? st.st_ino : 0;
}

bool map_table()
{
    void *const memory =
        ::mmap(nullptr, table_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    g_family.memory = static_cast<std::uint8_t *>(memory); // zeros
    open_locks();
    return true;
}

bool make_table()
{
    if (g_family.memory != nullptr || g_family.failed)
        return !g_family.failed;
    choose_limits();
    g_family.space = pid_space() & UINT32_MAX; // the kernel counts them in 32 bits
    g_family.failed = !map_table();
    return !g_family.failed;
}

// ---- who is gone ----------------------------------------------------------------------------------------------------

struct flock lock_of(std::uint32_t i, short type)
{
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = i;
    lock.l_len = 1;
    return lock;
}

// The program may have closed ours past us, and have another one of the number.
bool have_locks()
{
    struct stat st = {};
    return g_family.fd >= 0 && ::fstat(g_family.fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == g_family.inode &&
           st.st_nlink == 0;
}

bool has_become_another_program(std::uint32_t i)
{
    struct flock lock = lock_of(i, F_WRLCK);
    return process(i).execs.load(std::memory_order_acquire) && have_locks() &&
           libc::real.fcntl(g_family.fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool is_gone(std::uint32_t i)
{
    const std::uint64_t who = process(i).who.load(std::memory_order_acquire);
    if (who == kNobody || who == kBeingTaken || (who & kBeingBorn) != 0)
        return who == kNobody;
    if (has_become_another_program(i))
        return true;
    return g_family.knows_numbers && who >> 32 == g_family.space &&
           ::kill(static_cast<pid_t>(who & UINT32_MAX), 0) != 0 && errno == ESRCH;
}

void give_up(Cell cell)
{
    const std::uint32_t left = count(cell).fetch_sub(1) - 1;
    if ((left & ~kForGood) != 0)
        return;
    if (left != 0)
        count(cell).store(0); // it was nobody's to take before this
    head().cells.fetch_sub(1);
}

template <typename Visit> void each_bit(std::uint64_t bits, std::uint32_t word, Visit visit)
{
    for (; bits != 0; bits &= bits - 1)
        visit(static_cast<Cell>(word * kBits + static_cast<unsigned>(std::countr_zero(bits))));
}

// Out of the counts, and its record is free.
void clear_record(std::uint32_t i)
{
    const std::uint32_t words = head().words.load(std::memory_order_acquire);
    Word *const held = row(i);
    for (std::uint32_t w = 0; w < words; ++w)
        if (held[w].load(std::memory_order_relaxed) != 0)
            each_bit(held[w].exchange(0), w, give_up);
    process(i).execs.store(false, std::memory_order_relaxed);
    process(i).who.store(kNobody, std::memory_order_release);
}

// Of several processes that find it gone one does it. If that one is killed in the middle, the rest counts as held.
bool forget_if_gone(std::uint32_t i)
{
    std::uint64_t who = process(i).who.load(std::memory_order_acquire);
    if (!is_gone(i))
        return false;
    if (who != kNobody && process(i).who.compare_exchange_strong(who, kBeingTaken))
        clear_record(i);
    return true;
}

// ---- records --------------------------------------------------------------------------------------------------------

// Each fork adds one, and looks for two of the dead: they never become many.
void sweep(std::uint32_t most)
{
    const std::uint32_t known = std::min(head().processes.load(), g_family.limits.processes);
    for (std::uint32_t n = 0; n < std::min(most, known); ++n) {
        const std::uint32_t i = head().swept.fetch_add(1, std::memory_order_relaxed) % known;
        if (process(i).who.load(std::memory_order_relaxed) != kNobody)
            forget_if_gone(i);
    }
}

// The record's place and one, or 0.
std::uint32_t take_free(std::uint64_t who)
{
    const std::uint32_t known = std::min(head().processes.load() + 1, g_family.limits.processes);
    for (std::uint32_t i = 0; i < known; ++i) {
        std::uint64_t nobody = kNobody;
        if (process(i).who.load(std::memory_order_relaxed) != kNobody ||
            !process(i).who.compare_exchange_strong(nobody, who))
            continue;
        raise_to(head().processes, i + 1);
        return i + 1;
    }
    return 0;
}

std::uint32_t take_record(std::uint64_t who)
{
    constexpr std::uint32_t kLooks = 2;
    sweep(kLooks);
    const std::uint32_t taken = take_free(who);
    if (taken != 0)
        return taken;
    sweep(UINT32_MAX);
    return take_free(who);
}

bool has_record()
{
    if (g_family.self != 0)
        return true;
    if (!make_table())
        return false;
    g_family.self = take_record(own_name());
    g_family.process = ::getpid();
    return g_family.self != 0;
}

Word &word_of(std::uint32_t record, Cell cell)
{
    return row(record - 1)[cell / kBits];
}

std::uint64_t bit_of(Cell cell)
{
    return std::uint64_t{1} << (cell % kBits);
}

bool reserve_cell(std::uint32_t cells)
{
    for (;;) {
        if (head().cells.fetch_add(1) < cells)
            return true;
        head().cells.fetch_sub(1);
        if (g_family.looked_for_room)
            return false;
        g_family.looked_for_room = true;
        sweep(UINT32_MAX);
    }
}

} // namespace

void set_limits(std::uint32_t processes, std::uint32_t cells)
{
    g_family.limits = {processes, cells};
}

Cell take()
{
    if (!has_record())
        return kNoCell;
    const std::uint32_t cells = g_family.limits.cells - 1;
    if (!reserve_cell(cells))
        return kNoCell;
    for (std::uint32_t tries = 0; tries < 2 * cells;
         ++tries) { // there is one, unless others take and give while we look
        const Cell cell = g_family.next_cell;
        g_family.next_cell = cell == cells ? 1 : cell + 1;
        std::uint32_t none = 0;
        if (count(cell).load(std::memory_order_relaxed) != 0 || !count(cell).compare_exchange_strong(none, 1))
            continue;
        raise_to(head().words, cell / kBits + 1);
        word_of(g_family.self, cell).fetch_or(bit_of(cell));
        return cell;
    }
    head().cells.fetch_sub(1);
    return kNoCell;
}

// Under a filter of system calls it stays held: others find out when the process has ended.
void leave(Cell cell)
{
    if (g_family.self == 0 || sandboxed() || ::getpid() != g_family.process)
        return;
    const LockGuard guard(g_family.row_lock);
    if ((word_of(g_family.self, cell).fetch_and(~bit_of(cell)) & bit_of(cell)) != 0)
        give_up(cell);
}

void keep_for_good(Cell cell)
{
    count(cell).fetch_or(kForGood);
}

std::uint32_t changes(Cell cell)
{
    return changes_of(cell).load();
}

void note_change(Cell cell)
{
    changes_of(cell).fetch_add(1);
}

bool is_alone(Cell cell)
{
    const std::uint32_t known = std::min(head().processes.load(), g_family.limits.processes);
    if (count(cell).load() >= kForGood)
        return false;
    for (std::uint32_t i = 0; i < known && count(cell).load() > 1; ++i) {
        if (i + 1 == g_family.self || (row(i)[cell / kBits].load() & bit_of(cell)) == 0)
            continue;
        if (!forget_if_gone(i))
            return false;
    }
    return count(cell).load() == 1;
}

// ---- forks ----------------------------------------------------------------------------------------------------------

void no_fork_shares()
{
    g_family.looked_for_room = false;
    t_fork.child = g_family.child = 0;
}

bool before_fork()
{
    no_fork_shares();
    if (!has_record())
        return false;
    t_fork.number = head().forks.fetch_add(1);
    t_fork.child = g_family.child = take_record(token());
    const bool known = g_family.child != 0;
    const std::uint32_t words = head().words.load(std::memory_order_acquire);
    const LockGuard guard(g_family.row_lock);
    for (std::uint32_t w = 0; w < words; ++w) {
        const std::uint64_t bits = row(g_family.self - 1)[w].load();
        if (bits == 0)
            continue;
        each_bit(bits, w, [known](Cell cell) { known ? void(count(cell).fetch_add(1)) : keep_for_good(cell); });
        if (known)
            row(g_family.child - 1)[w].store(bits);
    }
    return known;
}

// A parent in another namespace has no number here, nor have we one that it knows: it writes that down itself.
void after_fork_in_child()
{
    if (g_family.memory == nullptr)
        return;
    const std::uint64_t parents = g_family.space;
    g_family.space = pid_space() & UINT32_MAX;
    g_family.knows_numbers =
        g_family.space != 0 || (g_family.knows_numbers && ::getppid() != 0); // 0: there is no /proc
    g_family.row_lock.reset();
    g_family.self = g_family.child;
    g_family.child = 0;
    g_family.process = ::getpid();
    std::uint64_t born = token();
    if (g_family.self != 0 && g_family.knows_numbers && parents == g_family.space)
        process(g_family.self - 1).who.compare_exchange_strong(born, own_name());
}

void after_fork(pid_t child)
{
    if (t_fork.child == 0)
        return;
    const std::uint32_t i = t_fork.child - 1;
    t_fork.child = 0;
    std::uint64_t born = token();
    if (child > 0)
        process(i).who.compare_exchange_strong(born, g_family.space << 32 | static_cast<std::uint32_t>(child));
    else if (process(i).who.compare_exchange_strong(born, kBeingTaken))
        clear_record(i);
}

void exec_begins()
{
    if (g_family.self == 0 || ::getpid() != g_family.process || !have_locks())
        return;
    struct flock lock = lock_of(g_family.self - 1, F_WRLCK);
    if (libc::real.fcntl(g_family.fd, F_SETLK, &lock) == 0)
        process(g_family.self - 1).execs.store(true, std::memory_order_release);
}

void exec_failed()
{
    if (g_family.self == 0 || ::getpid() != g_family.process ||
        !process(g_family.self - 1).execs.load(std::memory_order_relaxed))
        return;
    process(g_family.self - 1).execs.store(false, std::memory_order_seq_cst); // before the lock is given up
    struct flock lock = lock_of(g_family.self - 1, F_UNLCK);
    libc::real.fcntl(g_family.fd, F_SETLK, &lock);
}

} // namespace vma::sock::family
