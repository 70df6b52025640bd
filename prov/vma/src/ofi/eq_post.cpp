// SPDX-License-Identifier: BSD-2-Clause
// The inner side of the event queue: what the provider's own objects put into it, and its wait descriptor.
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/cq.hpp"
#include "ofi/eq.hpp"

namespace vma::ofi {
namespace {

bool fill(EqEvent &event, const void *first, std::size_t first_length, const void *second, std::size_t second_length)
{
    event.length = first_length + second_length;
    if (event.length == 0)
        return true;
    event.data.reset(new (std::nothrow) std::byte[event.length]);
    if (!event.data)
        return false;
    if (first_length > 0)
        std::memcpy(event.data.get(), first, first_length);
    if (second_length > 0)
        std::memcpy(event.data.get() + first_length, second, second_length);
    return true;
}

} // namespace

bool UnreadBefore::holds() const noexcept
{
    return idle_reads != nullptr && idle_reads->load(std::memory_order_acquire) - at_first < 2 &&
           core::monotonic_ns() < until;
}

namespace {

int cannot_open() noexcept
{
    const int error = errno;
    VMA_WARN(eq, "cannot open the wait object of an event queue: %s", std::strerror(error));
    return -error;
}

} // namespace

int Eq::open_ready() noexcept
{
    ready = core::make_fd([] { return core::kernel::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    if (!ready)
        return cannot_open();
    wait_obj = FI_WAIT_FD;
    return 0;
}

// Who sleeps in fi_eq_sread() needs no set. The kernel lets the device's wake 500 others, so only those have one that
// are asked for it.
int Eq::give_wait_fd(int &fd) noexcept
{
    if (!ready)
        return -FI_ENODATA;
    const std::lock_guard guard(mutex);
    if (!wait_set) {
        core::UniqueFd set = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
        const int device = device_fd();
        if (!set || !core::watch_fd(set.get(), ready.get()) || (device >= 0 && !core::watch_fd(set.get(), device)))
            return cannot_open();
        wait_set = std::move(set);
    }
    fd = wait_set.get();
    return 0;
}

void Eq::update_ready() noexcept
{
    const bool wanted = nudged || !events.empty();
    if (!ready || wanted == ready_set)
        return;
    std::uint64_t count = 1;
    [[maybe_unused]] const ssize_t done = wanted ? core::kernel::write(ready.get(), &count, sizeof(count))
                                                 : core::kernel::read(ready.get(), &count, sizeof(count));
    ready_set = wanted;
}

bool Eq::has_news() noexcept
{
    const std::lock_guard guard(mutex);
    return nudged || !events.empty();
}

bool Eq::is_nudged() noexcept
{
    const std::lock_guard guard(mutex);
    return nudged;
}

void Eq::nudge() noexcept
{
    const std::lock_guard guard(mutex);
    nudged = true;
    update_ready();
}

int Eq::push(EqEvent &&event) noexcept
{
    const std::lock_guard guard(mutex);
    events.push_back(std::move(event));
    update_ready();
    return 0;
}

int Eq::post_event(std::uint32_t event, fid_t about, const void *entry, std::size_t length) noexcept
{
    EqEvent queued;
    queued.event = event;
    queued.fid = about;
    return fill(queued, entry, length, nullptr, 0) ? push(std::move(queued)) : -FI_ENOMEM;
}

int Eq::push_cm(std::uint32_t event, fid_t about, InfoPtr info, const void *data, std::size_t length,
                const UnreadBefore &unread) noexcept
{
    fi_eq_cm_entry entry{};
    entry.fid = about;
    entry.info = info.get();
    EqEvent queued;
    queued.event = event;
    queued.fid = about;
    queued.info = std::move(info);
    queued.unread = unread;
    return fill(queued, &entry, sizeof(entry), data, length) ? push(std::move(queued)) : -FI_ENOMEM;
}

int Eq::post_cm(std::uint32_t event, fid_t about, InfoPtr info, const void *data, std::size_t length) noexcept
{
    return push_cm(event, about, std::move(info), data, length, {});
}

int Eq::post_shutdown(fid_t about, const Cq *unread) noexcept
{
    constexpr std::uint64_t kPatienceNs = 1'000'000'000;
    UnreadBefore before;
    if (unread != nullptr)
        before = {&unread->idle_reads, unread->idle_reads.load(std::memory_order_acquire),
                  core::monotonic_ns() + kPatienceNs};
    return push_cm(FI_SHUTDOWN, about, nullptr, nullptr, 0, before);
}

int Eq::post_error(fid_t about, int error, int prov_errno, const void *err_data, std::size_t length) noexcept
{
    EqEvent queued;
    queued.is_error = true;
    queued.fid = about;
    queued.error.fid = about;
    queued.error.context = about != nullptr ? about->context : nullptr;
    queued.error.err = error;
    queued.error.prov_errno = prov_errno;
    return fill(queued, err_data, length, nullptr, 0) ? push(std::move(queued)) : -FI_ENOMEM;
}

std::vector<InfoPtr> Eq::remove_events(fid_t about) noexcept
{
    std::vector<InfoPtr> unread;
    const std::lock_guard guard(mutex);
    for (EqEvent &event : events) {
        if (event.fid == about && event.info)
            unread.push_back(std::move(event.info));
    }
    std::erase_if(events, [about](const EqEvent &event) { return event.fid == about; });
    update_ready();
    return unread;
}

} // namespace vma::ofi
