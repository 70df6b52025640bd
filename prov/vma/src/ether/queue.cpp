// SPDX-License-Identifier: BSD-2-Clause
#include "ether/queue.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/cq_sread.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ether {
namespace {

void wake(int news) noexcept
{
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t done = core::kernel::write(news, &one, sizeof one);
}

void hush(int news) noexcept
{
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t done = core::kernel::read(news, &count, sizeof count);
}

} // namespace

int Queue::open() noexcept
{
    news = core::make_fd([] { return core::kernel::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    wait_set = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    const bool whole = news && wait_set && core::watch_fd(wait_set.get(), news.get()) &&
                       core::watch_fd(wait_set.get(), port_context.wait_fd());
    return whole ? 0 : -errno;
}

void Queue::push(const ofi::Completion &completion) noexcept
{
    const core::SpinGuard guard(lock);
    if (!entries.push(completion))
        VMA_WARN(cq, "no memory: a stream's readiness is not told");
    if (std::exchange(armed, false))
        wake(news.get());
}

void Queue::leave(const void *endpoint) noexcept
{
    const core::SpinGuard guard(lock);
    forget(endpoint);
    users.fetch_sub(1, std::memory_order_release);
}

template <fi_cq_format Format> ssize_t Queue::read(void *buffer, std::size_t count, fi_addr_t *sources) noexcept
{
    auto *out = static_cast<std::byte *>(buffer);
    std::size_t taken = 0;
    for (int turn = 0;; ++turn) {
        {
            const core::SpinGuard guard(lock);
            if (error_first())
                return -FI_EAVAIL;
            taken = take<Format>(out, count, sources);
            if (taken == 0 && turn != 0)
                note_idle();
        }
        if (taken != 0)
            return static_cast<ssize_t>(taken);
        if (turn != 0)
            return -FI_EAGAIN;
        port_context.progress();
    }
}

bool Queue::arm() noexcept
{
    {
        const core::SpinGuard guard(lock);
        if (!armed)
            hush(news.get());
        armed = true;
    }
    port_context.prepare_to_sleep();
    const core::SpinGuard guard(lock);
    return entries.empty() && !signalled;
}

namespace {

Queue &queue_of(fid_cq *fid) noexcept
{
    return static_cast<Queue &>(ofi::cq_of(fid));
}

template <fi_cq_format Format>
ssize_t read_from(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources) noexcept
{
    for (std::size_t i = 0; sources && i < count; ++i)
        sources[i] = FI_ADDR_NOTAVAIL;
    return queue_of(fid).read<Format>(buffer, count, sources);
}

template <fi_cq_format Format> ssize_t read_plain(fid_cq *fid, void *buffer, std::size_t count) noexcept
{
    return queue_of(fid).read<Format>(buffer, count, nullptr);
}

// False: fi_cq_signal() was called.
bool sleep_once(Queue &queue, int milliseconds) noexcept
{
    const bool asleep = queue.arm();
    {
        const core::SpinGuard guard(queue.lock);
        if (std::exchange(queue.signalled, false))
            return false;
    }
    if (!asleep)
        return true;
    pollfd wanted{queue.wait_set.get(), POLLIN, 0};
    static_cast<void>(core::kernel::poll(&wanted, 1, milliseconds));
    return true;
}

template <fi_cq_format Format>
ssize_t sread_from(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources, const void *cond,
                   int timeout) noexcept
{
    Queue &queue = queue_of(fid);
    return ofi::cq_sread<Format>(queue, buffer, count, sources, cond, timeout, read_from<Format>,
                                 [&queue](int milliseconds) noexcept { return sleep_once(queue, milliseconds); });
}

template <fi_cq_format Format>
ssize_t sread(fid_cq *fid, void *buffer, std::size_t count, const void *cond, int timeout) noexcept
{
    return sread_from<Format>(fid, buffer, count, nullptr, cond, timeout);
}

int signal(fid_cq *fid) noexcept
{
    Queue &queue = queue_of(fid);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const core::SpinGuard guard(queue.lock);
    queue.signalled = true;
    wake(queue.news.get());
    return 0;
}

template <fi_cq_format Format>
constexpr fi_ops_cq kOps = {
    .size = sizeof(fi_ops_cq),
    .read = read_plain<Format>,
    .readfrom = read_from<Format>,
    .readerr = ofi::cq_readerr,
    .sread = sread<Format>,
    .sreadfrom = sread_from<Format>,
    .signal = signal,
    .strerror = ofi::cq_strerror,
};

const fi_ops_cq *ops_of(fi_cq_format format) noexcept
{
    switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
        return &kOps<FI_CQ_FORMAT_CONTEXT>;
    case FI_CQ_FORMAT_MSG:
        return &kOps<FI_CQ_FORMAT_MSG>;
    case FI_CQ_FORMAT_TAGGED:
        return &kOps<FI_CQ_FORMAT_TAGGED>;
    default:
        return &kOps<FI_CQ_FORMAT_DATA>;
    }
}

int close(fid *fid)
{
    Queue &queue = static_cast<Queue &>(ofi::cq_of(fid));
    if (queue.domain.fabric.orphaned())
        return 0;
    if (queue.users.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    queue.domain.refs.fetch_sub(1, std::memory_order_relaxed);
    delete &queue;
    return 0;
}

int tell_port_counters(Queue &queue, void *argument) noexcept
{
    if (const int error = ofi::tell_counters(queue, argument))
        return error;
    auto &counters = *static_cast<fi_vma_queue_counters *>(argument);
    const core::SpinGuard guard(queue.port_context.lock());
    return queue.port_context.net_if().tell_interrupts(counters.asked, counters.woken);
}

int control(fid *fid, int command, void *argument)
{
    Queue &queue = static_cast<Queue &>(ofi::cq_of(fid));
    if (static_cast<unsigned>(command) == FI_VMA_QUEUE_COUNTERS)
        return queue.domain.fabric.orphaned() ? -FI_EOPBADSTATE : tell_port_counters(queue, argument);
    if (static_cast<unsigned>(command) == FI_VMA_MODERATE) {
        const auto *const wanted = static_cast<const fi_vma_moderation *>(argument);
        if (wanted == nullptr || queue.domain.fabric.orphaned())
            return wanted == nullptr ? -FI_EINVAL : -FI_EOPBADSTATE;
        const core::SpinGuard guard(queue.port_context.lock());
        return queue.port_context.net_if().moderate(wanted->completions, wanted->period);
    }
    return ofi::cq_control(queue, queue.wait_set.get(), command, argument);
}

constinit fi_ops g_fid_ops = ofi::FidOps{.close = close, .control = control};

int trywait(ofi::Cq &cq) noexcept
{
    Queue &queue = static_cast<Queue &>(cq);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    return queue.arm() ? 0 : -FI_EAGAIN;
}

} // namespace

int open_cq(ofi::Domain &domain, const fi_cq_attr *attr, fid_cq **cq, void *context) noexcept
{
    std::unique_ptr<Queue> queue(new (std::nothrow) Queue(domain));
    if (!queue)
        return -FI_ENOMEM;
    int error = ofi::init_cq(*queue, attr, context);
    if (error == 0)
        error = queue->open();
    if (error != 0)
        return error;
    queue->lock.set_enabled(true); // another's read may bring entries to it
    queue->fid.fid.ops = &g_fid_ops;
    queue->fid.ops = const_cast<fi_ops_cq *>(ops_of(queue->format));
    queue->trywait = trywait;
    domain.refs.fetch_add(1, std::memory_order_relaxed);
    *cq = &queue.release()->fid;
    return 0;
}

} // namespace vma::ether
