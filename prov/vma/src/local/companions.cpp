// SPDX-License-Identifier: BSD-2-Clause
#include "local/companions.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <rdma/fi_errno.h>

#include "core/fd.hpp"
#include "core/kernel.hpp"
#include "local/queue.hpp"

namespace vma::local {

bool Companions::enter() noexcept
{
    const core::SpinGuard guard(owner_.lock);
    if (count_ == 0 || changing_ != 0)
        return false;
    ++visitors_;
    return true;
}

void Companions::leave() noexcept
{
    const core::SpinGuard guard(owner_.lock);
    --visitors_;
}

void Companions::wait_for_visitors() noexcept
{
    ++changing_;
    while (visitors_ != 0) {
        owner_.lock.unlock();
        core::cpu_relax();
        owner_.lock.lock();
    }
    --changing_;
}

Companions::One *Companions::find(const Queue &queue) noexcept
{
    return std::find_if(list_.get(), list_.get() + count_, [&](const One &one) { return one.queue == &queue; });
}

int Companions::add(Queue &queue) noexcept
{
    const core::SpinGuard guard(owner_.lock);
    wait_for_visitors();
    if (One *const found = find(queue); found != list_.get() + count_) {
        ++found->endpoints;
        return 0;
    }
    if (count_ == room_) {
        const std::uint32_t wanted = std::max(4U, room_ * 2);
        std::unique_ptr<One[]> bigger(new (std::nothrow) One[wanted]);
        if (!bigger)
            return -FI_ENOMEM;
        std::copy_n(list_.get(), count_, bigger.get());
        list_ = std::move(bigger);
        room_ = wanted;
    }
    if (const int error = owner_.open_wait_set())
        return error;
    if (!core::watch_fd(owner_.wait_set.get(), queue.doorbell.wake_fd()))
        return -errno;
    list_[count_++] = {&queue, 1};
    return 0;
}

void Companions::remove(const Queue &queue) noexcept
{
    const core::SpinGuard guard(owner_.lock);
    wait_for_visitors();
    One *const found = find(queue);
    if (found == list_.get() + count_ || --found->endpoints != 0)
        return;
    core::kernel::epoll_ctl(owner_.wait_set.get(), EPOLL_CTL_DEL, queue.doorbell.wake_fd(), nullptr);
    *found = list_[--count_];
}

int accompany(Queue &one, Queue &other) noexcept
{
    if (&one == &other)
        return 0;
    int error = one.companions.add(other);
    if (error == 0 && (error = other.companions.add(one)) != 0)
        one.companions.remove(other);
    return error;
}

void part(Queue &one, Queue &other) noexcept
{
    if (&one == &other)
        return;
    one.companions.remove(other);
    other.companions.remove(one);
}

} // namespace vma::local
