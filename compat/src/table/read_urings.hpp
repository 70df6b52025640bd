// SPDX-License-Identifier: BSD-2-Clause
// The io_urings whose submissions the library reads, by descriptor: set up by syscall() or by liburing's shared
// library, without IORING_SETUP_SQPOLL, so that each entry is announced by a call that passes the library. Such an
// io_uring leaves sockets accelerated that it has nothing to do with. Of all others see uring.hpp.
//
// Code that sets one up by syscall() might enter it by an instruction of its own. So the first one of each place in the
// program is *unproven* until it has been entered by syscall(), and no socket is accelerated before. liburing's are
// entered by its functions, which programs call by name as they have called the one that set it up.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "compat/src/base/lock.hpp"
#include "compat/src/libc/descriptor_map.hpp"
#include "compat/src/table/socket.hpp"
#include "compat/src/table/uring_queue.hpp"

namespace vma::sock {

// One of them. Its place is never used for anything else, so that it may be locked at any time.
struct ReadUring {
    Mutex turn;                // of who looks at entries, so that all are looked at in the order in which they stand
    Mutex lock;                // of all that is not atomic; taken after the turn
    std::atomic<int> above{0}; // the number after its descriptor's; 0: the place is free
    std::atomic<std::uint32_t> generation{0};
    std::atomic<bool> inherited{false}; // the parent's, which goes on to use it
    std::atomic<bool> drains{false};    // has had an entry that waits for those before it, and has those after it wait
    std::atomic<bool> proven{false};
    bool only_polled = false;   // IORING_SETUP_IOPOLL
    const void *site = nullptr; // who set it up: a place in the program's code; liburing's have none
    std::atomic<const void *> liburing_head{nullptr}; // where liburing has mapped the kernel's counter, if it is its
    dev_t device = 0;                                 // identity of the file
    ino_t inode = 0;
    UringQueue queue;
    void *words = nullptr; // mappings of our own: with them the io_uring lives on, so they go with its descriptor
    void *entries = nullptr;
    void *changes = nullptr;
    std::size_t words_size = 0;
    std::size_t entries_size = 0;
    std::size_t changes_size = 0;
};

struct ReadUrings {
    static constexpr int kMost = 256;
    static constexpr std::size_t kMostSites = 16;
    Mutex lock;                         // of who enters and leaves
    const void *sites[kMostSites] = {}; // of those that were proven; the lock
    std::atomic<int> end{0};
    std::atomic<bool> any_named{false};
    // Numbers that an entry has named whose turn comes later: a socket that gets one of them is the kernel's at once.
    libc::DescriptorMap<kMaxTracked> named;
    // Two epoll sets of our own, which no program waits in: one is empty, in the other are sockets that a program has
    // added twice to a set of its own. 0 until they are wanted.
    std::atomic<int> empty_set{0};
    std::atomic<int> full_set{0};
    ReadUring all[kMost];
};
extern constinit ReadUrings g_urings;

// A reference that outlives the io_uring: whoever locks looks whether it is still this one.
class UringReference
{
public:
    UringReference() = default;
    UringReference(ReadUring *uring, std::uint32_t generation) : uring_(uring), generation_(generation) {}
    explicit operator bool() const { return uring_ != nullptr; }
    ReadUring &operator*() const { return *uring_; }
    ReadUring *operator->() const { return uring_; }

    // Calls `use` with its queue and the lock held. False: it was closed.
    template <typename Use> bool with_queue(Use use) const
    {
        const LockGuard guard(uring_->lock);
        if (uring_->generation.load(std::memory_order_relaxed) != generation_ || uring_->words == nullptr)
            return false;
        use(uring_->queue);
        return true;
    }

private:
    ReadUring *uring_ = nullptr;
    std::uint32_t generation_ = 0;
};

// After io_uring_setup() at `site`, or nullptr where it needs no proof. nullptr: from now on its submissions can be
// read. Else the reason why not, a literal.
const char *read_uring(int fd, const io_uring_params &made, const void *site);

void prove_uring(const UringReference &uring); // it is entered by syscall(), for the first time

UringReference find_uring(int fd); // false if it is not one of them

// liburing's, by an address and the number that its structure has, wherever the program has moved that.
void name_liburing(int fd, const void *head);
UringReference find_liburing(const void *head, int fd);

void forget_uring(int fd);  // before its descriptor is closed, or when its number is reused
void forget_urings();       // all; ring_seen() was called before: they go on unread
bool is_read_uring(int fd); // and still the file that it was
void urings_after_fork_in_child();

// An entry names this number and is not done at once: it is looked up when its turn comes.
void name_for_later(int fd);
inline bool is_named_for_later(int fd)
{
    return g_urings.any_named.load(std::memory_order_relaxed) && g_urings.named.has(fd);
}

} // namespace vma::sock
