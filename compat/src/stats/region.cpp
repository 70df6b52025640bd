// SPDX-License-Identifier: BSD-2-Clause
// One stretch of memory holds header and records. It begins as private memory; the file is mapped over it in one step, so that
// nobody who counts has to look whether that has happened. In a forked child it goes the way back.
#include "compat/src/stats/region.hpp"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/socket/lock.hpp"
#include "config.h"

namespace vma::stats {

constinit Slot g_sink = {};
constinit std::atomic<bool> g_due{false};
[[gnu::tls_model("initial-exec")]] thread_local constinit std::uint32_t t_thread = 0;

namespace {

using sock::LockGuard;
using sock::Mutex;

constexpr const char *kDefaultFolder = "/tmp";
constexpr std::size_t kChunk = 64; // private records mapped at a time

constinit Header g_no_header = {}; // until there is a region
constinit Mux g_no_set = {};

struct Region {
    Mutex lock;
    std::atomic<Header *> header{&g_no_header};
    std::uint32_t slots = 0;
    std::size_t size = 0; // 0: none yet
    std::uint64_t taken[kMostSlots / 64] = {};
    Slot *free_private = nullptr;
    bool published = false;
    pid_t owner = 0;
    dev_t device = 0;
    ino_t inode = 0;
    char path[PATH_MAX] = {};
};
constinit Region g_region;

Slot *slots_of(Header &header)
{
    return reinterpret_cast<Slot *>(&header + 1);
}

std::uint64_t read_clock(clockid_t clock)
{
    timespec now = {};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// nullptr: no file is wanted. The empty text is a value here, which the table takes for none.
const char *folder()
{
    const char *const value = config::params().stats_shmem_dir;
    if (value != nullptr)
        return value;
    const char *const raw = ::secure_getenv("VMA_STATS_SHMEM_DIR");
    return raw != nullptr && raw[0] == '\0' ? nullptr : kDefaultFolder;
}

// ---- the file -------------------------------------------------------------------------------------------------------------

// No cancellation points: the lock is held.
int open_new(const char *path)
{
    constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return static_cast<int>(libc::real.syscall(SYS_openat, AT_FDCWD, path, kFlags, 0644));
}

// Others can write to the folder. A name that is there is only taken away if it is a plain file of ours; a symbolic link is
// never followed.
int open_fresh(const char *path)
{
    const int fd = open_new(path);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    struct stat there = {};
    if (::lstat(path, &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != ::geteuid() || there.st_nlink != 1 ||
        ::unlink(path) != 0) {
        errno = EEXIST;
        return -1;
    }
    return open_new(path);
}

// All of it has its place on the disk: a page that finds none when it is written would end the process.
bool reserve(int fd, std::size_t size)
{
    if (libc::real.syscall(SYS_fallocate, fd, 0, 0L, static_cast<long>(size)) == 0)
        return true;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return false;
    static constexpr char kZeros[4096] = {};
    for (std::size_t at = 0; at < size;) {
        const std::size_t piece = size - at < sizeof kZeros ? size - at : sizeof kZeros;
        const long n = libc::real.syscall(SYS_pwrite64, fd, kZeros, piece, static_cast<long>(at));
        if (n <= 0)
            return false;
        at += static_cast<std::size_t>(n);
    }
    return true;
}

void fill_header(Header &h)
{
    h.version = kVersion;
    h.header_size = sizeof(Header);
    h.slot_size = sizeof(Slot);
    h.slot_count = g_region.slots;
    h.pid = static_cast<std::uint32_t>(::getpid());
    h.uid = static_cast<std::uint32_t>(::geteuid());
    h.state = State::kRunning;
    h.lift_after = config::params().lift_after;
    h.made_boot_ns = read_clock(CLOCK_BOOTTIME);
    h.made_ns = read_clock(CLOCK_REALTIME);
    struct stat space = {};
    h.pid_space = ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
    std::snprintf(h.program, sizeof h.program, "%s", program_invocation_short_name);
    std::snprintf(h.library, sizeof h.library, "%s", PACKAGE_VERSION);
    h.requests = {};
    h.requests.log_level = h.requests.log_details = h.requests.dump_fd = Requests::kKeep;
}

std::size_t used_size(const Header &h)
{
    return sizeof(Header) + h.slots_used * sizeof(Slot);
}

// Maps the file over what there was until now. False: errno.
bool map_over(int fd)
{
    Header &now = header();
    if (!reserve(fd, g_region.size))
        return false;
    void *const fresh = ::mmap(nullptr, g_region.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fresh == MAP_FAILED)
        return false;
    fill_header(now);
    memcpy(fresh, &now, used_size(now));
    if (::mremap(fresh, g_region.size, g_region.size, MREMAP_MAYMOVE | MREMAP_FIXED, &now) == MAP_FAILED) {
        ::munmap(fresh, g_region.size);
        return false;
    }
    __atomic_store_n(&now.magic, kMagic, __ATOMIC_RELEASE);
    return true;
}

void refuse()
{
    VMA_LOG(kWarn,
            "VMA_STATS_SHMEM_DIR: %s: %s (expected a folder where it can be made): vma_stats does not see this process",
            g_region.path, strerror(errno));
}

// The folder with the process's id in place of its first %d. False: too long.
bool name_file(const char *folder)
{
    const char *const mark = strstr(folder, "%d");
    const pid_t pid = ::getpid();
    const int length = mark == nullptr
                           ? std::snprintf(g_region.path, sizeof g_region.path, "%s/vmastat.%d", folder, pid)
                           : std::snprintf(g_region.path, sizeof g_region.path, "%.*s%d%s/vmastat.%d",
                                           static_cast<int>(mark - folder), folder, pid, mark + 2, pid);
    return length < static_cast<int>(sizeof g_region.path);
}

void make_file() // lock held
{
    const char *const where = folder();
    if (where == nullptr)
        return;
    errno = ENAMETOOLONG;
    const int fd = name_file(where) ? open_fresh(g_region.path) : -1;
    if (fd < 0) {
        refuse();
        return;
    }
    struct stat made = {};
    ::fstat(fd, &made);
    if (map_over(fd)) {
        g_region.published = true;
        g_region.owner = ::getpid();
        g_region.device = made.st_dev;
        g_region.inode = made.st_ino;
        g_asked.store(&header().requests.count, std::memory_order_relaxed);
    } else {
        refuse();
        ::unlink(g_region.path);
    }
    libc::real.syscall(SYS_close, fd);
}

// ---- private memory -------------------------------------------------------------------------------------------------------

void *map_private(std::size_t size)
{
    void *const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
}

bool open_region() // lock held
{
    if (g_region.size != 0)
        return true;
    const std::uint32_t slots = config::params().stats_fd_num;
    const std::size_t size = (file_size(slots) + 4095) & ~std::size_t{4095};
    void *const memory = map_private(size);
    if (memory == nullptr)
        return false;
    auto *const h = new (memory) Header;
    for (Mux &set : h->epoll)
        set.fd = -1;
    g_region.slots = slots;
    g_region.size = size;
    g_region.header.store(h, std::memory_order_release);
    g_due.store(folder() != nullptr, std::memory_order_release);
    return true;
}

// The free records of private memory are linked through their inode.
Slot *next_of(const Slot &slot)
{
    return reinterpret_cast<Slot *>(slot.facts.inode);
}

void put_free(Slot &slot)
{
    slot.facts.inode = reinterpret_cast<std::uintptr_t>(g_region.free_private);
    g_region.free_private = &slot;
}

Slot *take_private()
{
    if (g_region.free_private == nullptr) {
        auto *const chunk = static_cast<Slot *>(map_private(kChunk * sizeof(Slot)));
        if (chunk == nullptr)
            return nullptr;
        for (std::size_t i = kChunk; i-- > 0;)
            put_free(chunk[i]);
    }
    Slot *const slot = g_region.free_private;
    g_region.free_private = next_of(*slot);
    return slot;
}

Slot *take_shared()
{
    Header &h = header();
    for (std::uint32_t word = 0; word * 64 < g_region.slots; ++word) {
        const std::uint64_t free = ~g_region.taken[word];
        if (free == 0)
            continue;
        const std::uint32_t index = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(free));
        if (index >= g_region.slots)
            break;
        g_region.taken[word] |= std::uint64_t{1} << (index % 64);
        if (index >= h.slots_used)
            set(h.slots_used, index + 1);
        return &slots_of(h)[index];
    }
    return nullptr;
}

bool is_shared(const Slot &slot)
{
    const Slot *const first = slots_of(header());
    return g_region.size != 0 && &slot >= first && &slot < first + g_region.slots;
}

// The facts of who had the record before are void before the new ones are there.
void begin(Slot &slot, int fd, std::uint8_t protocol, std::uint8_t family, bool nonblocking)
{
    const std::uint32_t use = slot.facts.use;
    set(slot.facts.fd, -1);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    memset(&slot.now, 0, sizeof slot.now + sizeof slot.zero);
    Facts &f = slot.facts;
    memset(&f.inode, 0, offsetof(Facts, groups) - offsetof(Facts, inode));
    f.protocol = protocol;
    f.family = family;
    f.flags = nonblocking ? std::uint32_t{kNonblocking} : 0;
    f.since_ns = read_clock(CLOCK_BOOTTIME);
    set(f.use, use + 1);
    __atomic_store_n(&f.fd, fd, __ATOMIC_RELEASE);
}

} // namespace

constinit std::atomic<const std::uint32_t *> g_asked{&g_no_header.requests.count};
constinit std::atomic<std::uint32_t> g_answered{0};

std::uint32_t ask_thread()
{
    return t_thread = static_cast<std::uint32_t>(::gettid());
}

Header &header()
{
    return *g_region.header.load(std::memory_order_acquire);
}

bool is_published()
{
    return g_region.published;
}

Slot &claim(int fd, std::uint8_t protocol, std::uint8_t family, bool nonblocking)
{
    const LockGuard guard(g_region.lock);
    Slot *slot = open_region() ? take_shared() : nullptr;
    if (slot == nullptr)
        slot = take_private();
    if (slot == nullptr)
        return g_sink;
    begin(*slot, fd, protocol, family, nonblocking);
    return *slot;
}

namespace {

Ring *ring_of(const Slot &slot) // lock held
{
    const std::uint32_t ring = get(slot.facts.ring);
    return ring != 0 && ring <= kMostRings ? &header().rings[ring - 1] : nullptr;
}

// Its counts stay with the ring when it goes.
void retire(const Slot &slot) // lock held
{
    Ring *const ring = ring_of(slot);
    if (ring == nullptr)
        return;
    const Counters &c = slot.now;
    add(ring->rx_packets, get(c.rx.packets));
    add(ring->rx_bytes, get(c.rx.bytes));
    add(ring->tx_packets, get(c.tx.packets));
    add(ring->tx_bytes, get(c.tx.bytes));
    add(ring->retransmits, get(c.tx.retransmits));
}

} // namespace

void use_ring(Slot &slot, RingKind kind, const char *device)
{
    const LockGuard guard(g_region.lock);
    if (g_region.size == 0 || &slot == &g_sink)
        return;
    for (std::uint32_t i = 0; i < kMostRings; ++i) {
        Ring &ring = header().rings[i];
        if (ring.kind == RingKind::kNone) {
            std::snprintf(ring.name, sizeof ring.name, "%s", device);
            set(ring.kind, kind);
        }
        if (ring.kind == kind && strncmp(ring.name, device, sizeof ring.name - 1) == 0) {
            set(slot.facts.ring, i + 1);
            return;
        }
    }
}

void add_device_memory(const Slot &slot, std::uint64_t allocated, std::uint64_t packets, std::uint64_t bytes,
                       std::uint64_t out_of_buffer)
{
    const LockGuard guard(g_region.lock);
    Ring *const ring = ring_of(slot);
    if (ring == nullptr)
        return;
    set(ring->device_memory, static_cast<std::uint32_t>(allocated));
    add(ring->memory_packets, packets);
    add(ring->memory_bytes, bytes);
    add(ring->memory_oob, out_of_buffer);
}

void give_back(Slot &slot)
{
    if (&slot == &g_sink)
        return;
    const LockGuard guard(g_region.lock);
    retire(slot);
    __atomic_store_n(&slot.facts.fd, -1, __ATOMIC_RELEASE);
    if (!is_shared(slot)) {
        put_free(slot);
        return;
    }
    const auto index = static_cast<std::uint32_t>(&slot - slots_of(header()));
    g_region.taken[index / 64] &= ~(std::uint64_t{1} << (index % 64));
}

Mux &claim_set(int epfd)
{
    const LockGuard guard(g_region.lock);
    if (!open_region())
        return g_no_set;
    for (Mux &set : header().epoll) {
        if (set.fd >= 0)
            continue;
        set = {};
        __atomic_store_n(&set.fd, epfd, __ATOMIC_RELEASE);
        return set;
    }
    return g_no_set;
}

void give_back(Mux &set)
{
    if (&set != &g_no_set)
        __atomic_store_n(&set.fd, -1, __ATOMIC_RELEASE);
}

void make_due_file()
{
    if (libc::in_vfork_child() || !g_region.lock.try_lock())
        return;
    const int saved = errno;
    if (g_due.exchange(false, std::memory_order_acq_rel))
        make_file();
    errno = saved;
    g_region.lock.unlock();
}

void remove_file()
{
    if (!g_region.published || g_region.owner != ::getpid())
        return;
    const int saved = errno;
    struct stat there = {};
    if (::lstat(g_region.path, &there) == 0 && there.st_dev == g_region.device && there.st_ino == g_region.inode)
        ::unlink(g_region.path);
    errno = saved;
}

void replaced(bool really)
{
    if (g_region.published && g_region.owner == ::getpid())
        header().state = really ? State::kReplaced : State::kRunning;
}

void after_fork_in_child()
{
    g_region.lock.reset();
    t_thread = 0;
    if (g_region.size == 0 || !g_region.published)
        return; // private memory is a copy already
    Header &old = header();
    auto *const fresh = static_cast<Header *>(map_private(g_region.size));
    if (fresh == nullptr)
        return;
    const std::uint32_t used = old.slots_used < g_region.slots ? old.slots_used : g_region.slots;
    fresh->slots_used = used;
    for (std::uint32_t i = 0; i < kEpollSets; ++i)
        fresh->epoll[i].fd = old.epoll[i].fd;
    for (std::uint32_t i = 0; i < used; ++i) {
        slots_of(*fresh)[i].facts = slots_of(old)[i].facts;
        slots_of(*fresh)[i].facts.ring = 0; // devices are its parent's
    }
    if (::mremap(fresh, g_region.size, g_region.size, MREMAP_MAYMOVE | MREMAP_FIXED, &old) == MAP_FAILED) {
        ::munmap(fresh, g_region.size);
        return;
    }
    g_region.published = false;
    g_answered.store(0, std::memory_order_relaxed);
    g_due.store(true, std::memory_order_relaxed);
}

} // namespace vma::stats
