// SPDX-License-Identifier: BSD-2-Clause
// Setting bits, sleeping flags and eventfds, and the cache of the peers' doorbells.
#include "local/doorbell.hpp"

#include <cerrno>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <new>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/made_once.hpp"
#include "core/mutex.hpp"
#include "core/probes.hpp"
#include "core/spinlock.hpp"

namespace vma::local {

void set_doorbell_bit(DoorbellPage &page, std::uint32_t bit) noexcept
{
    const std::uint32_t word = bit / 64;
    const std::uint64_t mask = UINT64_C(1) << (bit % 64);
    // Set already: the queue has yet to take it, and it looks at what we have stored after it has, as our caller has
    // fenced. Who else sets this bit, and is between the two steps below, is not waited for.
    if (!(page.words[word].load(std::memory_order_relaxed) & mask))
        page.words[word].fetch_or(mask, std::memory_order_seq_cst);
    const std::uint64_t word_mask = UINT64_C(1) << (word % 64);
    if (!(page.summary[word / 64].load(std::memory_order_relaxed) & word_mask))
        page.summary[word / 64].fetch_or(word_mask, std::memory_order_seq_cst);
    core::fence_after_exchange(); // the next look is whether somebody sleeps
}

std::uint64_t next_doorbell_number() noexcept
{
    static constinit std::atomic<std::uint64_t> last{0}; // the process's
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

int Doorbell::open() noexcept
{
    if (const int error = create_shared("vma-doorbell", sizeof(DoorbellPage), memory_))
        return error;
    taken_.reset(new (std::nothrow) std::uint64_t[kDoorbellWords]());
    wake_ = core::make_fd([] { return core::kernel::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    if (!wake_)
        return -errno;
    if (!taken_)
        return -FI_ENOMEM;
    page_ = reinterpret_cast<DoorbellPage *>(memory_.mapping.data());
    return 0;
}

int Doorbell::allocate_bit() noexcept
{
    while (lowest_free_word_ < kDoorbellWords && taken_[lowest_free_word_] == ~UINT64_C(0))
        ++lowest_free_word_;
    if (lowest_free_word_ == kDoorbellWords)
        return -1;
    const std::uint32_t word = lowest_free_word_;
    const auto bit = static_cast<std::uint32_t>(__builtin_ctzll(~taken_[word]));
    taken_[word] |= UINT64_C(1) << bit;
    if (summary_used_ < word / 64 + 1)
        summary_used_ = word / 64 + 1;
    return static_cast<int>(word * 64 + bit);
}

void Doorbell::free_bit(std::uint32_t bit) noexcept
{
    taken_[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
    if (bit / 64 < lowest_free_word_)
        lowest_free_word_ = bit / 64;
}

void Doorbell::arm() noexcept
{
    at_arming_ = page_->wakes.load(std::memory_order_relaxed);
    page_->sleeping.store(++sleeps_, std::memory_order_relaxed);
    core::full_fence();
}

// Who has read `sleeping` before, and not come farther, writes some time later: a later sleep ends early then.
bool Doorbell::disarm() noexcept
{
    page_->sleeping.store(0, std::memory_order_relaxed);
    return page_->wakes.load(std::memory_order_relaxed) == at_arming_;
}

namespace {

// Counted first: a write that nobody had counted would never be drained, and no sleep would last any more.
void count_and_write(DoorbellPage &page, int fd) noexcept
{
    const std::uint64_t one = 1;
    page.wakes.fetch_add(1, std::memory_order_seq_cst);
    [[maybe_unused]] const ssize_t written = core::kernel::write(fd, &one, sizeof one);
}

} // namespace

void Doorbell::wake_self() noexcept
{
    const int saved = errno;
    count_and_write(*page_, wake_.get());
    errno = saved;
}

bool Doorbell::drain() noexcept
{
    const int saved = errno;
    std::uint64_t count = 0;
    const bool got = core::kernel::read_now(wake_.get(), &count, sizeof count) == sizeof count;
    drained_ += count;
    errno = saved;
    return got;
}

PeerDoorbell::PeerDoorbell(Mapping &&mapping, core::UniqueFd &&wake, bool by_socket) noexcept
    : mapping_(std::move(mapping)), wake_(std::move(wake)), page_(reinterpret_cast<DoorbellPage *>(mapping_.data())),
      by_socket_(by_socket)
{
}

namespace {

// Never waits, whatever the guest has done to its end: the flags of this one are not its own. A full one is readable.
void send_one_byte(int socket) noexcept
{
    char byte = 0;
    iovec part{&byte, sizeof byte};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    core::kernel::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

} // namespace

// Never waits, whoever has filled the counter: then the descriptor is readable anyway. Its flags are shared with its
// owner, who may have changed them.
void PeerDoorbell::wake(std::uint64_t sleep) noexcept
{
    probe::wake(by_socket_ ? probe::Waker::kSocket : probe::Waker::kEventfd, 0);
    const int saved = errno;
    const int flags = by_socket_ ? -1 : core::kernel::fcntl(wake_.get(), F_GETFL);
    if (by_socket_) {
        page_->wakes.fetch_add(1, std::memory_order_seq_cst);
        send_one_byte(wake_.get());
    } else if (flags >= 0 && ((flags & O_NONBLOCK) != 0 ||
                              core::kernel::fcntl(wake_.get(), F_SETFL, flags | O_NONBLOCK) == 0)) [[likely]]
        count_and_write(*page_, wake_.get());
    woken_.store(sleep, std::memory_order_release);
    errno = saved;
}

void PeerDoorbell::wake_place(std::uint32_t place, std::uint32_t sleep) noexcept
{
    probe::wake(probe::Waker::kFutex, place);
    const int saved = errno;
    std::atomic<std::uint32_t> &turn = page_->places[place].turn;
    turn.fetch_add(1, std::memory_order_seq_cst);
    core::kernel::futex_wake_all(reinterpret_cast<std::uint32_t *>(&turn));
    woken_places_[place].store(sleep, std::memory_order_release);
    errno = saved;
}

namespace {

// By process too: a peer may hold descriptors of another's doorbell, and must not choose that one's eventfd. And by our
// own: what was mapped before a fork is not mapped in the child, where copies of links and endpoints still hold it.
using DoorbellId = std::tuple<std::uint32_t, pid_t, std::uint64_t, dev_t, ino_t>;

// A page that is zero in every child, also in one that no handler of fork() has heard of: clone(2) by number.
class Birthmark
{
public:
    // True once in a child. Where there is no such page, never.
    bool is_new_process() noexcept
    {
        if (word_ == nullptr) {
            void *const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (page == MAP_FAILED)
                return false;
            ::madvise(page, kBytes, MADV_WIPEONFORK);
            word_ = static_cast<std::uint64_t *>(page);
            *word_ = 1;
        }
        return std::exchange(*word_, 1) == 0;
    }

private:
    static constexpr std::size_t kBytes = 4096; // of a page, or more
    std::uint64_t *word_ = nullptr;
};

struct DoorbellCache {
    core::Mutex mutex;
    std::map<DoorbellId, std::weak_ptr<PeerDoorbell>> known;
    Birthmark birthmark;
};

// The process's; its own mutex protects it. libfabric closes objects after the destructors of static objects have run.
constinit core::MadeOnce<DoorbellCache> g_cache;

} // namespace

int open_peer_doorbell(const DoorbellOwner &owner, core::UniqueFd &&memory, core::UniqueFd &&wake,
                       std::shared_ptr<PeerDoorbell> &out) noexcept
{
    const core::UniqueFd memory_fd = std::move(memory);
    core::UniqueFd wake_fd = std::move(wake);
    struct stat status {
    };
    const bool by_socket = owner.guest_link != 0;
    if (core::kernel::fstat(memory_fd.get(), &status) != 0 ||
        !(by_socket ? is_unix_socket(wake_fd.get()) : is_anonymous_file(wake_fd.get())))
        return -FI_EINVAL;

    DoorbellCache &cache = g_cache.get();
    const std::lock_guard guard(cache.mutex);
    const bool is_child = cache.birthmark.is_new_process();
    std::erase_if(cache.known, [is_child](const auto &entry) { return is_child || entry.second.expired(); });
    const DoorbellId id{core::fork_generation(), owner.process, owner.guest_link, status.st_dev, status.st_ino};
    if (const auto found = cache.known.find(id); found != cache.known.end()) {
        out = found->second.lock();
        if (out)
            return 0;
    }
    Mapping mapping;
    if (const int error = map_shared(memory_fd.get(), sizeof(DoorbellPage), mapping))
        return error;
    out = std::make_shared<PeerDoorbell>(std::move(mapping), std::move(wake_fd), by_socket);
    cache.known[id] = out;
    return 0;
}

} // namespace vma::local
