// SPDX-License-Identifier: BSD-2-Clause
// A queue whose descriptor is readable as long as it is not empty: what completion channels, CM event channels and
// contexts of the simulated NIC give out. The descriptor may be made non-blocking by its user, and is then obeyed.
#pragma once

#include <cstdint>
#include <deque>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace vma::sim {

// Each call is made under the world's lock but take(), which takes it itself.
template <typename Item> class EventQueue
{
public:
    EventQueue() : fd_(::eventfd(0, EFD_CLOEXEC)) {}
    EventQueue(const EventQueue &) = delete;
    EventQueue &operator=(const EventQueue &) = delete;
    ~EventQueue() { ::close(fd_); }

    int fd() const { return fd_; }

    void push(Item item)
    {
        items_.push_back(item);
        const std::uint64_t one = 1;
        if (items_.size() == 1)
            told_ = ::write(fd_, &one, sizeof(one)) == sizeof(one);
    }

    // Waits for one unless the descriptor is non-blocking. False: errno tells, EAGAIN or EINTR. `give` gets it under
    // the lock.
    template <typename Give> bool take(std::mutex &mutex, Give give)
    {
        for (;;) {
            {
                const std::lock_guard guard(mutex);
                if (!items_.empty()) {
                    Item item = items_.front();
                    items_.pop_front();
                    quiet_if_empty();
                    give(item);
                    return true;
                }
            }
            if ((::fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0) {
                errno = EAGAIN;
                return false;
            }
            pollfd wanted{fd_, POLLIN, 0};
            if (::poll(&wanted, 1, -1) < 0)
                return false;
        }
    }

    // `leaves(item)` tells which ones go, and may keep them.
    template <typename Leaves> void remove(Leaves leaves)
    {
        std::erase_if(items_, leaves);
        quiet_if_empty();
    }

private:
    void quiet_if_empty()
    {
        std::uint64_t count = 0;
        if (items_.empty() && told_)
            told_ = ::read(fd_, &count, sizeof(count)) != sizeof(count);
    }

    int fd_;
    bool told_ = false;
    std::deque<Item> items_;
};

} // namespace vma::sim
