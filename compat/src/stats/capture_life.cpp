// SPDX-License-Identifier: BSD-2-Clause
// The capture's ring: made when vma_dump asks for it, in memory that nobody can make shorter, and given up when who
// listens is gone. He holds a lock on the memory file, which the kernel takes from him however he ends.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compat/src/base/process_words.hpp"
#include "compat/src/libc/private_fd.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/vfork.hpp"
#include "compat/src/libc/when_left.hpp"
#include "compat/src/stats/capture.hpp"
#include "compat/src/stats/region_state.hpp"

namespace vma::stats {

namespace {

constexpr std::uint32_t kNoteAll = 0;
constexpr std::uint32_t kNoteFew = 63;
constexpr std::int64_t kPatienceNs = 30'000'000'000; // with a listener who has not come yet

std::size_t mapped_size(std::uint32_t ring)
{
    return capture_file_size(ring) + ring;
}

std::int64_t monotonic_ns()
{
    return static_cast<std::int64_t>(read_clock(CLOCK_MONOTONIC));
}

bool listener_has_lock()
{
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return libc::real.syscall(SYS_fcntl, g_capture.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool is_listened_to()
{
    return listener_has_lock() || (get(g_capture.mapped->heard) == 0 && monotonic_ns() < g_capture.deadline_ns);
}

void stop_writing()
{
    sock::g_process.noted.store(kNoteFew, std::memory_order_relaxed);
    g_capture.ring.header.store(nullptr, std::memory_order_seq_cst);
}

// A child that is forked in the middle of it keeps some memory more, and does nothing twice.
void unmap()
{
    g_capture.open.store(false, std::memory_order_seq_cst);
    ::munmap(g_capture.mapped, mapped_size(g_capture.mapped_size));
    libc::close_private(g_capture.fd);
    g_capture.mapped = nullptr;
    g_capture.fd = -1;
}

// What is left of a capture goes, as soon as no thread is at its ring. Lock held. False: one is.
bool let_go()
{
    stop_writing();
    if (g_capture.ring.users.load(std::memory_order_seq_cst) != 0)
        return false;
    __atomic_store_n(&g_capture.mapped->ended, 1, __ATOMIC_RELEASE);
    unmap();
    return true;
}

// All of it has memory: a page that finds none when it is written would end the process. Nobody can cut it short.
bool prepare_file(int fd, std::size_t size)
{
    constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return libc::real.syscall(SYS_fchmod, fd, 0600) == 0 &&
           libc::real.syscall(SYS_ftruncate, fd, static_cast<long>(size)) == 0 &&
           libc::real.syscall(SYS_fallocate, fd, 0, 0L, static_cast<long>(size)) == 0 &&
           libc::real.syscall(SYS_fcntl, fd, F_ADD_SEALS, kSeals) == 0;
}

// The ring twice, one behind the other. nullptr: errno.
void *map_twice(int fd, std::uint32_t ring)
{
    constexpr int kWrite = PROT_READ | PROT_WRITE;
    void *const place =
        ::mmap(nullptr, mapped_size(ring), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return nullptr;
    const std::size_t once = capture_file_size(ring);
    if (::mmap(place, once, kWrite, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
        ::mmap(static_cast<std::uint8_t *>(place) + once, ring, kWrite, MAP_SHARED | MAP_FIXED, fd,
               static_cast<off_t>(kCaptureStart)) != MAP_FAILED)
        return place;
    const int error = errno;
    ::munmap(place, mapped_size(ring));
    errno = error;
    return nullptr;
}

CaptureHeader *make_ring(int fd, std::uint32_t size)
{
    if (exceeds_file_limit(capture_file_size(size))) {
        errno = EFBIG;
        return nullptr;
    }
    return prepare_file(fd, capture_file_size(size)) ? static_cast<CaptureHeader *>(map_twice(fd, size)) : nullptr;
}

void begin(CaptureHeader &header, std::uint32_t size, std::uint32_t most)
{
    header.magic = kCaptureMagic;
    header.pid = static_cast<std::uint32_t>(::getpid());
    header.ring_size = size;
    header.most = most;
    g_capture.mapped = &header;
    g_capture.mapped_size = size;
    g_capture.deadline_ns = monotonic_ns() + kPatienceNs;
    g_capture.ring.size = size;
    g_capture.ring.most = most;
    g_capture.ring.claimed.store(0, std::memory_order_relaxed);
    g_capture.ring.taken.store(0, std::memory_order_relaxed);
    g_capture.open.store(true, std::memory_order_relaxed);
    g_capture.ring.header.store(&header, std::memory_order_release);
    sock::g_process.noted.store(kNoteAll, std::memory_order_relaxed);
}

bool is_valid(const CaptureWords &asked)
{
    const std::uint32_t size = asked.ring_size;
    return size >= kLeastCapture && size <= kMostCapture && (size & (size - 1)) == 0 && asked.most <= kMostPayload;
}

// 0, or the errno. Lock held.
int start(const CaptureWords &asked)
{
    if (sock::g_process.sandboxed.load(std::memory_order_relaxed))
        return EPERM; // a filter may refuse these calls, or end the process for them
    if (!is_valid(asked))
        return EINVAL;
    if (g_capture.open.load(std::memory_order_relaxed) && listener_has_lock())
        return EBUSY; // who has asked and not come yet, may never come: he asks again if he does
    if (g_capture.open.load(std::memory_order_relaxed) && !let_go())
        return EAGAIN;
    const auto fd =
        static_cast<int>(libc::real.syscall(SYS_memfd_create, "vma-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return errno;
    CaptureHeader *const header = make_ring(fd, asked.ring_size);
    if (header == nullptr) {
        const int error = errno;
        libc::real.syscall(SYS_close, fd);
        return error;
    }
    g_capture.fd = libc::make_private(fd);
    begin(*header, asked.ring_size, asked.most);
    return 0;
}

void answer_locked(CaptureWords &words)
{
    const sock::LockGuard guard(g_capture.lock);
    // Others may write there at any time.
    const CaptureWords asked = {get(words.number), get(words.ring_size), get(words.most), 0, 0, 0};
    if (asked.number == g_capture.answered)
        return;
    g_capture.answered = asked.number;
    set(words.error, start(asked));
    set(words.fd, g_capture.fd);
    __atomic_store_n(&words.answered, asked.number, __ATOMIC_RELEASE);
}

} // namespace

void answer_capture(CaptureWords &words)
{
    if (libc::in_vfork_child())
        return;
    const int saved = errno;
    {
        const libc::NotCancelled whole; // close() would be a place for it, with the lock held
        answer_locked(words);
    }
    errno = saved;
}

void look_after_listener()
{
    const sock::LockGuard guard(g_capture.lock);
    if (!g_capture.open.load(std::memory_order_relaxed))
        return;
    if (sock::g_process.sandboxed.load(std::memory_order_relaxed))
        stop_writing(); // and makes no call
    else if (!is_listened_to())
        let_go();
}

void end_capture()
{
    const sock::LockGuard guard(g_capture.lock);
    if (g_capture.open.load(std::memory_order_relaxed))
        let_go(); // else it stays mapped, and nobody writes to it
}

void capture_after_fork_in_child()
{
    g_capture.lock.reset();
    g_capture.answered = 0;
    if (!g_capture.open.load(std::memory_order_relaxed))
        return;
    stop_writing();
    g_capture.ring.users.store(0, std::memory_order_relaxed);
    unmap();
}

} // namespace vma::stats
