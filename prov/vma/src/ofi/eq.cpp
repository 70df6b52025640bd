// SPDX-License-Identifier: BSD-2-Clause
// Operations of the event queue: fi_eq_read and its kin, wait objects.
#include "ofi/eq.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>

#include <rdma/fi_errno.h>

#include "core/clock.hpp"
#include "core/error_text.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/ops.hpp"
#include "rdma/fi_ext_vma.h"

namespace vma::ofi {
namespace {

constexpr std::size_t kMaxWrittenEvent = 4096; // bytes of an event that the program writes itself

Eq &self(fid_t fid)
{
    return *reinterpret_cast<Eq *>(fid);
}

bool has_private_data(std::uint32_t event)
{
    return event == FI_CONNREQ || event == FI_CONNECTED || event == FI_SHUTDOWN;
}

// The event to be read next: those that wait for their endpoint's queue let the others pass. With the mutex held.
std::deque<EqEvent>::iterator next_event(Eq &eq)
{
    return std::find_if_not(eq.events.begin(), eq.events.end(),
                            [](const EqEvent &event) { return event.unread.holds(); });
}

// A caller that would rather sleep than read completions is `waiting`, and told everything. `nudged`: before this read
// has looked at links. A nudge that it has brought in itself nobody has heard of yet.
ssize_t take_event(Eq &eq, std::uint32_t *event, void *buf, std::size_t len, std::uint64_t flags, bool waiting,
                   bool nudged)
{
    const std::lock_guard guard(eq.mutex);
    const auto next = waiting ? eq.events.begin() : next_event(eq);
    if (next == eq.events.end()) {
        if (nudged) {
            eq.nudged = false;
            eq.update_ready();
        }
        return -FI_EAGAIN;
    }
    EqEvent &head = *next;
    if (head.is_error)
        return -FI_EAVAIL;
    // Private data is cut to the room there is; an entry itself never is.
    const std::size_t least =
        has_private_data(head.event) ? std::min(head.length, sizeof(fi_eq_cm_entry)) : head.length;
    if (buf == nullptr || len < least)
        return -FI_ETOOSMALL;
    const std::size_t length = std::min(len, head.length);
    std::memcpy(buf, head.data.get(), length);
    *event = head.event;
    if ((flags & FI_PEEK) == 0) {
        static_cast<void>(head.info.release()); // the program's now
        eq.last_err_data.reset();
        eq.events.erase(next);
        eq.update_ready();
    }
    return static_cast<ssize_t>(length);
}

ssize_t read_eq(fid_eq *fid, std::uint32_t *event, void *buf, std::size_t len, std::uint64_t flags)
{
    Eq &eq = eq_of(fid);
    if (eq.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const bool nudged = eq.is_nudged();
    eq.progress(false);
    return take_event(eq, event, buf, len, flags, false, nudged);
}

std::int64_t now_ms()
{
    return static_cast<std::int64_t>(core::monotonic_ns() / 1'000'000);
}

ssize_t sread_eq(fid_eq *fid, std::uint32_t *event, void *buf, std::size_t len, int timeout, std::uint64_t flags)
{
    Eq &eq = eq_of(fid);
    if (eq.fabric.orphaned())
        return -FI_EOPBADSTATE;
    if (!eq.ready)
        return -FI_ENOSYS; // opened with FI_WAIT_NONE
    const std::int64_t deadline = now_ms() + timeout;
    int left = timeout;
    while (true) {
        const bool nudged = eq.is_nudged();
        eq.progress(true);
        const ssize_t result = take_event(eq, event, buf, len, flags, true, nudged);
        if (result != -FI_EAGAIN || left == 0)
            return result;
        pollfd fds[] = {{eq.ready.get(), POLLIN, 0}, {eq.device_fd(), POLLIN, 0}}; // poll() passes over -1
        if (core::kernel::poll(fds, std::size(fds), left) < 0)
            return -errno;
        if (timeout >= 0)
            left = static_cast<int>(std::max<std::int64_t>(deadline - now_ms(), 0));
    }
}

// Programs of API 1.5 and later may bring their own buffer for the error data.
void deliver_err_data(Eq &eq, fi_eq_err_entry &out, void *own, std::size_t own_size, EqEvent &head, bool keep)
{
    const bool modern = eq.fabric.fid.api_version == 0 || FI_VERSION_GE(eq.fabric.fid.api_version, FI_VERSION(1, 5));
    if (modern && own != nullptr && own_size > 0) {
        out.err_data = own;
        out.err_data_size = std::min(own_size, head.length);
        if (out.err_data_size > 0)
            std::memcpy(own, head.data.get(), out.err_data_size);
        return;
    }
    out.err_data = head.length > 0 ? head.data.get() : nullptr;
    out.err_data_size = head.length;
    if (!keep)
        eq.last_err_data = std::move(head.data); // until the next read
}

ssize_t readerr_eq(fid_eq *fid, fi_eq_err_entry *buf, std::uint64_t flags)
{
    Eq &eq = eq_of(fid);
    if (buf == nullptr)
        return -FI_EINVAL;
    if (eq.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const std::lock_guard guard(eq.mutex);
    const auto next = next_event(eq);
    if (next == eq.events.end() || !next->is_error)
        return -FI_EAGAIN;
    EqEvent &head = *next;
    void *own = buf->err_data;
    const std::size_t own_size = buf->err_data_size;
    *buf = head.error;
    const bool keep = (flags & FI_PEEK) != 0;
    deliver_err_data(eq, *buf, own, own_size, head, keep);
    if (!keep) {
        eq.events.erase(next);
        eq.update_ready();
    }
    return sizeof(*buf);
}

ssize_t write_eq(fid_eq *fid, std::uint32_t event, const void *buf, std::size_t len, std::uint64_t)
{
    Eq &eq = eq_of(fid);
    if (!eq.writable || len > kMaxWrittenEvent || (buf == nullptr && len > 0))
        return -FI_EINVAL;
    if (eq.fabric.orphaned())
        return -FI_EOPBADSTATE;
    fi_eq_entry entry{};
    if (len >= sizeof(entry))
        std::memcpy(&entry, buf, sizeof(entry));
    if (const int error = eq.post_event(event, entry.fid, buf, len))
        return error;
    return static_cast<ssize_t>(len);
}

const char *strerror_eq(fid_eq *, int prov_errno, const void *, char *buf, std::size_t len)
{
    // prov_errno of our errors are fi_errno values, and those are the system's.
    const char *text = core::error_text(prov_errno < 0 ? -prov_errno : prov_errno);
    if (text == nullptr)
        text = "unknown error";
    if (buf != nullptr && len > 0) {
        const std::size_t length = std::min(len - 1, std::strlen(text));
        std::memcpy(buf, text, length);
        buf[length] = '\0';
        return buf;
    }
    return text;
}

int close_eq(fid_t fid)
{
    Eq &eq = self(fid);
    Fabric &fabric = eq.fabric;
    if (fabric.orphaned())
        return 0;
    if (eq.refs.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    delete &eq;
    fabric.refs.fetch_sub(1, std::memory_order_release);
    return 0;
}

int control_eq(fid_t fid, int command, void *arg)
{
    Eq &eq = self(fid);
    if (arg == nullptr)
        return -FI_EINVAL;
    switch (command) {
    case FI_GETWAIT:
        return eq.give_wait_fd(*static_cast<int *>(arg));
    case FI_GETWAITOBJ:
        *static_cast<fi_wait_obj *>(arg) = eq.wait_obj;
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

constinit fi_ops g_fid_ops = FidOps{.close = close_eq, .control = control_eq};

constinit fi_ops_eq g_eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = read_eq,
    .readerr = readerr_eq,
    .write = write_eq,
    .sread = sread_eq,
    .strerror = strerror_eq,
};

} // namespace

int eq_trywait(Eq &eq) noexcept
{
    eq.progress(true);
    return eq.has_news() ? -FI_EAGAIN : 0;
}

int open_eq(fid_fabric *fid, fi_eq_attr *attr, fid_eq **eq, void *context)
{
    Fabric &fabric = fabric_of(fid);
    if (eq == nullptr)
        return -FI_EINVAL;
    if (fabric.orphaned())
        return -FI_EOPBADSTATE;
    if (attr != nullptr && (attr->flags & FI_PEER) != 0) {
        VMA_WARN(eq, "events don't go to an owner's queue: one with FI_PEER is refused");
        return -FI_EINVAL;
    }
    const fi_wait_obj asked = attr != nullptr ? attr->wait_obj : FI_WAIT_NONE;
    if (asked != FI_WAIT_NONE && asked != FI_WAIT_UNSPEC && asked != FI_WAIT_FD) {
        VMA_WARN(eq, "wait object %d is not supported", static_cast<int>(asked));
        return -FI_ENOSYS;
    }
    std::unique_ptr<Eq> opened(new (std::nothrow) Eq(fabric));
    if (!opened)
        return -FI_ENOMEM;
    opened->passive = attr != nullptr && (attr->flags & FI_VMA_PASSIVE) != 0;
    opened->writable = attr != nullptr && (attr->flags & FI_WRITE) != 0;
    if (asked != FI_WAIT_NONE) {
        if (const int error = opened->open_ready())
            return error;
    }
    opened->fid.fid = {FI_CLASS_EQ, context, &g_fid_ops};
    opened->fid.ops = &g_eq_ops;
    fabric.refs.fetch_add(1, std::memory_order_relaxed);
    *eq = &opened.release()->fid;
    return 0;
}

} // namespace vma::ofi
