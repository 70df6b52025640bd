// SPDX-License-Identifier: BSD-2-Clause
// Which descriptors are tracked TCP and UDP sockets, and the pool the sockets live in. Pool memory is never given back
// or used for anything else, so a thread that still holds a pointer after close() reads a socket, and sees by its
// generation that it is another one.
#include "compat/src/table/fd_table.hpp"
#include "compat/src/libc/read_option.hpp"
#include "compat/src/table/accounting.hpp"
#include "compat/src/table/stream.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <iterator>
#include <new>

#include "compat/src/base/process_words.hpp"
#include "compat/src/base/sandboxed.hpp"
#include "compat/src/config/log.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/fault.hpp"
#include "compat/src/libc/keep_errno.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/rules/rules.hpp"
#include "compat/src/table/calls.hpp"
#include "compat/src/table/observers.hpp"
#include "compat/src/table/socket_sets.hpp"

namespace vma::sock {

[[VMA_TABLE]] Socket *g_table[kMaxTracked];
[[VMA_TABLE]] constinit Sockets g_sockets;
[[VMA_TABLE]] DueSet g_due;

namespace {

constexpr std::uint32_t kStep = 16; // that are made at once: memory is taken for as many as there are, nearly
// For the sockets from this index on; nullptr if there is no memory for them, or may be no more of them.
Stream *chunk_for(std::uint32_t index)
{
    static_assert(kChunkSockets % kStep == 0);
    if (index / kChunkSockets >= std::size(g_sockets.chunks))
        return nullptr;
    std::atomic<Stream *> &chunk = g_sockets.chunks[index / kChunkSockets];
    if (Stream *const there = chunk.load(std::memory_order_relaxed); there != nullptr)
        return there;
    void *const memory =
        ::mmap(nullptr, sizeof(Stream) * kChunkSockets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    chunk.store(static_cast<Stream *>(memory), std::memory_order_release);
    return static_cast<Stream *>(memory);
}

bool grow_pool() // pool lock held
{
    const std::uint32_t size = g_process.pool_size.load(std::memory_order_relaxed);
    if (size == 0) { // not in programs that have no socket of ours
        libc::catch_faults();
        remember_inherited_filters();
    }
    Stream *const sockets = chunk_for(size);
    if (sockets == nullptr)
        return false;
    for (std::uint32_t i = kStep; i-- > 0;) {
        Stream *const s = new (&sockets[size % kChunkSockets + i]) Stream;
        s->index = size + i;
        for (DueFlag *const flag :
             {&s->tx.slots_blocked, &s->rx.credit_due, &s->endpoint_down, &s->ready_due, &s->tx_work})
            flag->belongs_to(s->index);
        s->next_free = g_sockets.free_list;
        g_sockets.free_list = s;
    }
    g_process.pool_size.store(size + kStep, std::memory_order_release);
    return true;
}

void reset(Sender &tx)
{
    tx.forget_endpoint();
    tx.kernel_bytes = 0;
    tx.piece = kLongestPiece;
    tx.found_full = false;
}

void reset(Receiver &rx)
{
    rx.forget_endpoint();
    rx.kernel_bytes = 0;
    rx.kernel_owes = 0;
    rx.base = nullptr;
    rx.leftovers = nullptr;
}

void reset_stream(Stream &s)
{
    reset(s.tx);
    reset(s.rx);
    s.transport = &kSharedRing;
    s.role = Role::kUnknown;
    s.evaluated = false;
    s.remote = false;
    s.guest = false;
    s.by_broker = false;
    s.was_accelerated = false;
    s.send_shut = false;
    s.kernel_options = false;
    s.let_go = false;
    s.ask_holders_after = 0;
    s.sent_counted_at = 0;
    s.received_counted_at = 0;
    s.leaves_first = false;
    s.offered_first = false;
    s.left_after = 0;
    s.used = false;
    s.seen_offers = 0;
    s.connecting = false;
    s.endpoint_down = false;
    s.tx_work = false;
    s.kernel_state = 0;
    s.attempt.again_at = 0;
    s.attempt.tries = 0;
    s.port = nullptr;
    s.transport_over = false;
    s.keepalive = false;
    s.aborted = false;
    s.lingers_until_ns = 0;
}

void reset_socket(Socket &s)
{
    forget_pacing(s);
    s.protocol = &kStreamProtocol;
    s.udp = nullptr;
    s.pinned = false;
    s.told = false;
    s.receive_timeout_us = -1;
    s.send_timeout_us = -1;
    s.receive_shut = false;
    s.addresses = {};
    s.kernel_reason = nullptr;
    s.operations = 0;
    s.unread = nullptr;
    s.mux.poller = 0;
    s.ring = 0;
    s.ring_bit = kMainRing;
    s.receive_extras = 0;
    s.counts_access = false;
    s.ring_claim.key = {};
    s.ring_claim.move = RingMove::kStays;
    s.ready_due = false;
    s.kernel_news = false;
    s.kernel_told = 0;
    s.descriptor_sleeps = 0;
    s.news_of_kernel = 0;
    s.pending_error = 0;
    s.cookie = 0;
}

// A place of the pool serves any protocol, one after the other.
Socket *take_from_pool()
{
    LockGuard guard(g_sockets.lock);
    if (g_sockets.free_list == nullptr && !grow_pool())
        return nullptr;
    Socket *const s = g_sockets.free_list;
    g_sockets.free_list = s->next_free;
    reset_socket(*s);
    reset_stream(as_stream(*s));
    s->mode.store(Mode::kKernelOnly, std::memory_order_release);
    g_sockets.open.add(static_cast<int>(s->index));
    return s;
}

void note_fd(int fd)
{
    int above = g_sockets.above_fds.load(std::memory_order_relaxed);
    while (fd >= above && !g_sockets.above_fds.compare_exchange_weak(above, fd + 1, std::memory_order_relaxed)) {
    }
}

void enter(int fd, Socket &s)
{
    s.descriptors.fetch_add(1, std::memory_order_relaxed);
    note_fd(fd);
    table_slot(fd).store(&s, std::memory_order_release);
}

} // namespace

Socket *track(int fd, Role role, bool nonblocking, int protocol, int family)
{
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMaxTracked))
        return nullptr;
    if (table_slot(fd).load(std::memory_order_relaxed) != nullptr)
        forget(fd); // the number was closed behind our back
    Socket *const s = take_from_pool();
    if (s == nullptr)
        return nullptr;
    as_stream(*s).role = role;
    s->no_wait = nonblocking ? kNonblocking : 0;
    s->descriptors = 0;
    s->any_fd = fd;
    open_record(*s, fd, protocol, family);
    enter(fd, *s);
    return s;
}

namespace {

int other_descriptor(const Socket &s)
{
    const int above = g_sockets.above_fds.load(std::memory_order_relaxed);
    for (int fd = 0; fd < above; ++fd)
        if (table_slot(fd).load(std::memory_order_relaxed) == &s)
            return fd;
    return -1;
}

} // namespace

void explain(Socket &s)
{
    if (s.told || !config::log_enabled(config::Level::kDetails))
        return;
    if (!protocol(s).has_to_explain(s))
        return;
    const std::uint32_t operations = s.operations.load(std::memory_order_relaxed);
    s.told = true;
    char name[kNameMax];
    const std::uint32_t wanted = protocol(s).calls_before_offload(s);
    if (const char *const reason = s.kernel_reason; reason != nullptr)
        VMA_LOG(kDetails, "%s: not accelerated: %s", connection_name(s, name), reason);
    else if (operations < wanted)
        VMA_LOG(kDetails, "%s: not accelerated: closed after %u sends and receives, VMA_LIFT_AFTER is %u",
                connection_name(s, name), operations, wanted);
    else
        VMA_LOG(kDetails, "%s: not accelerated: no accelerated peer was found", connection_name(s, name));
}

void release(Socket &s, int fd)
{
    protocol(s).end(s, fd);
    kExtraApi.end(s);
    close_record(s);
    forget_pacing_turn(s);
    s.generation.fetch_add(1, std::memory_order_acq_rel);
    s.mode.store(Mode::kFree, std::memory_order_release);
    s.any_fd = -1;
    notify(s, ~0U);
    LockGuard guard(g_sockets.lock);
    g_sockets.open.remove(static_cast<int>(s.index));
    g_sockets.noted.remove(static_cast<int>(s.index));
    s.next_free = g_sockets.free_list;
    g_sockets.free_list = &s;
}

const char *connection_name(const Socket &s, char (&out)[kNameMax])
{
    return protocol(s).print_name(s, out);
}

Socket *socket_by_index(std::uint32_t index)
{
    if (index >= g_process.pool_size.load(std::memory_order_acquire))
        return nullptr;
    return &g_sockets.chunks[index / kChunkSockets].load(std::memory_order_acquire)[index % kChunkSockets];
}

[[VMA_AT_STARTUP]] std::uint32_t pool_size()
{
    return g_process.pool_size.load(std::memory_order_acquire);
}

int highest_descriptor()
{
    return g_sockets.above_fds.load(std::memory_order_relaxed) - 1;
}

void lock_pool_for_fork()
{
    g_sockets.lock.lock();
}

void unlock_pool_after_fork()
{
    g_sockets.lock.unlock();
}

void track_new(int fd, bool nonblocking)
{
    track(fd, Role::kUnknown, nonblocking);
}

Socket *track_foreign(int fd, bool nonblocking)
{
    return track(fd, Role::kUnknown, nonblocking);
}

void track_datagram(int fd, int family, bool nonblocking)
{
    if (Socket *const s = track(fd, Role::kUnknown, nonblocking, IPPROTO_UDP, family)) {
        note_socket(s->index);
        udp::kProtocol.begin(*s, fd, family);
    }
}

void track_dup(int old_fd, int new_fd)
{
    Socket *const s = lookup(old_fd);
    if (old_fd == new_fd || static_cast<unsigned>(new_fd) >= static_cast<unsigned>(kMaxTracked))
        return;
    if (lookup(new_fd) != nullptr)
        forget(new_fd);
    if (s != nullptr)
        enter(new_fd, *s);
}

bool is_datagram(const Socket &s)
{
    return protocol(s).messages;
}

void forget(int fd)
{
    if (static_cast<unsigned>(fd) >= static_cast<unsigned>(kMaxTracked))
        return;
    Socket *const s = table_slot(fd).exchange(nullptr, std::memory_order_seq_cst); // before a look at its open calls
    if (s == nullptr)
        return;
    const bool last = s->descriptors.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (kMultiplexers.descriptor_closed(*s, fd, last))
        pin_to_kernel(*s, "a closed descriptor of it stays in an epoll set");
    if (last) {
        if (!keep_for_calls(*s, fd) && !protocol(*s).begin_linger(*s, fd))
            release(*s, fd);
        return;
    }
    if (s->any_fd.load(std::memory_order_relaxed) == fd)
        s->any_fd.store(other_descriptor(*s), std::memory_order_relaxed);
}

void note_file(int fd)
{
    Socket *const s = lookup(fd);
    if (s != nullptr && offloaded(*s) && s->file.load(std::memory_order_relaxed) == 0)
        s->file.store(libc::read_cookie(fd), std::memory_order_release);
}

bool leave_number(int fd)
{
    const Socket *const s = lookup(fd);
    if (s == nullptr)
        return true;
    if (offloaded(*s)) {
        note_file(fd);
        return false;
    }
    table_slot(fd).store(nullptr, std::memory_order_seq_cst);
    return true;
}

bool is_behind(const Socket &s, int fd)
{
    const int saved = errno;
    const std::uint64_t file = s.file.load(std::memory_order_acquire);
    const bool is = file != 0 && libc::read_cookie(fd) == file;
    errno = saved;
    return is;
}

[[gnu::cold]] bool still_leads_to(const Socket &s, int fd)
{
    const libc::KeepErrno keep;
    const int kept = s.kept_fd.load(std::memory_order_acquire);
    const int other = kept >= 0 ? kept : other_descriptor(s);
    const std::uint64_t file = other >= 0 ? libc::read_cookie(fd) : 0;
    return file != 0 && file == libc::read_cookie(other);
}

MuxHook &mux_hook(Socket &s)
{
    return s.mux;
}

void set_nonblocking(Socket &s, bool on)
{
    note_no_wait(s, kNonblocking, on);
    tell_blocking(s, !on);
}

} // namespace vma::sock
