// SPDX-License-Identifier: BSD-2-Clause
// A guest's doorbell: its page, its bell, and the place of both in a queue.
#include "local/guests.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <sys/socket.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "local/queue.hpp"
#include "local/strangers.hpp"

namespace vma::local {

int GuestDoorbell::open() noexcept
{
    if (const int error = create_shared("vma-guest", sizeof(DoorbellPage), memory_))
        return error;
    int pair[2] = {-1, -1};
    {
        const core::ForkGuard guard; // no child is born with descriptors that nobody knows yet
        if (core::kernel::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
            return -errno;
        ours_ = core::adopt_fd(pair[0]);
        theirs_ = core::adopt_fd(pair[1]);
    }
    if (!ours_ || !theirs_)
        return -errno;
    let_rights_in(ours_.get(), false, kStrangersCalls);
    const int on = 1; // an urgent byte would be passed over by a read, with the descriptors that it brings
    if (core::kernel::setsockopt(ours_.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) != 0)
        return -errno;
    page_ = reinterpret_cast<DoorbellPage *>(memory_.mapping.data());
    return 0;
}

GuestDoorbell::~GuestDoorbell()
{
    let_go(std::move(ours_));
}

int GuestDoorbell::allocate_bit(std::uint32_t bit) noexcept
{
    const auto free = std::find(bits_.begin(), bits_.end(), kNobody);
    const auto index = static_cast<std::uint32_t>(free - bits_.begin());
    if (index == kMostBits)
        return -1;
    if (free == bits_.end())
        bits_.push_back(bit);
    else
        *free = bit;
    return static_cast<int>(index);
}

namespace {

// What rings in the bell, which stays there if it brings descriptors: a read that has no room for those would close
// them. 0: the guest has ended it, or that is the case; -1: nothing.
ssize_t hear(int bell) noexcept
{
    char bytes[64];
    iovec part{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t seen = core::kernel::recvmsg(bell, &message, MSG_PEEK | MSG_DONTWAIT);
    if (seen > 0 && (message.msg_flags & MSG_CTRUNC) != 0)
        return 0;
    if (seen <= 0)
        return seen;
    part.iov_len = static_cast<std::size_t>(seen);
    return core::kernel::recvmsg(bell, &message, MSG_DONTWAIT);
}

} // namespace

// An honest guest counts in its page before it rings, so most sleeps end without a call for it. One that rings without
// a count keeps us awake until the next look.
bool GuestDoorbell::drain(Queue &queue) noexcept
{
    constexpr unsigned kLook = 16; // sleeps
    if (deaf_)
        return false;
    const std::uint64_t wakes = page_->wakes.load(std::memory_order_relaxed);
    if (wakes == seen_wakes_ && ++sleeps_ % kLook != 0)
        return false;
    seen_wakes_ = wakes;
    const int saved = errno;
    const ssize_t heard = hear(ours_.get());
    deaf_ = heard == 0;
    if (deaf_)
        queue.unwatch_fd(ours_.get());
    errno = saved;
    return heard > 0;
}

GuestDoorbells::~GuestDoorbells() = default;

// Users of processes that were introduced are not those of the same numbers here (ConnectionManager::guest_link()).
bool GuestDoorbells::has_place_for(std::uint64_t process, uid_t user) const noexcept
{
    const auto has = std::count_if(list_.begin(), list_.end(), [process, user](const auto &one) {
        return one->user == user && one->process >> 63 == process >> 63;
    });
    return static_cast<std::size_t>(has) < kMost - list_.size();
}

int GuestDoorbells::use(std::uint64_t process, uid_t user, GuestDoorbell *&out) noexcept
{
    const auto known =
        std::find_if(list_.begin(), list_.end(), [process](const auto &one) { return one->process == process; });
    if (known == list_.end()) {
        if (!has_place_for(process, user))
            return -FI_ENOSPC;
        std::unique_ptr<GuestDoorbell> made(new (std::nothrow) GuestDoorbell);
        int error = made ? made->open() : -FI_ENOMEM;
        if (error == 0)
            error = queue_.watch_guest(made->wake_fd());
        if (error != 0)
            return error;
        made->process = process;
        made->user = user;
        out = made.get();
        list_.push_back(std::move(made));
        ++count_;
    } else {
        out = known->get();
    }
    ++out->users;
    return 0;
}

void GuestDoorbells::release(GuestDoorbell &doorbell) noexcept
{
    if (--doorbell.users != 0)
        return;
    queue_.unwatch_fd(doorbell.wake_fd());
    --count_;
    std::erase_if(list_, [&doorbell](const auto &one) { return one.get() == &doorbell; });
}

void GuestDoorbells::arm() noexcept
{
    ++sleeps_;
    for (const auto &one : list_)
        one->arm(sleeps_);
}

bool GuestDoorbells::disarm() noexcept
{
    bool rang = false;
    for (const auto &one : list_) {
        one->disarm();
        rang |= one->drain(queue_);
    }
    return rang;
}

} // namespace vma::local
