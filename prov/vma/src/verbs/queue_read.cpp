// SPDX-License-Identifier: BSD-2-Clause
// Reading the completion queue: the device's entries become libfabric's, in the reader's buffer or in the list.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <poll.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/cq_sread.hpp"
#include "verbs/clock.hpp"
#include "verbs/endpoint.hpp"
#include "verbs/queue.hpp"

namespace vma::verbs {

// An entry with its time, in ns of the device's clock. Errors have none.
struct StampedWc : ibv_wc {
    std::uint64_t time;
};

namespace {

void set_time(ofi::Completion &, const ibv_wc &) noexcept {}

void set_time(ofi::Completion &entry, const StampedWc &wc) noexcept
{
    entry.tag = wc.time;
}

constexpr int kBurst = 16;              // entries that are asked of the device at a time
constexpr unsigned kCmInterval = 65536; // empty reads between looks at connection management

// ibv_poll_cq(3) and the statuses of the InfiniBand specification, 11.6.2.
int errno_of(ibv_wc_status status) noexcept
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_LOC_LEN_ERR:
        return FI_ETRUNC;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_REM_ACCESS_ERR:
        return FI_EACCES;
    case IBV_WC_WR_FLUSH_ERR:
        return FI_ECANCELED;
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
        return FI_EINVAL;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return FI_ETIMEDOUT;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return FI_ENORX;
    case IBV_WC_REM_ABORT_ERR:
        return FI_ECONNABORTED;
    default:
        return FI_EIO;
    }
}

void describe_receive(const ibv_wc &wc, ofi::Completion &entry) noexcept
{
    const bool write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    entry.flags = write ? FI_RMA | FI_REMOTE_WRITE : FI_MSG | FI_RECV;
    entry.length = wc.byte_len;
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
        entry.flags |= FI_REMOTE_CQ_DATA;
        entry.data = ntohl(wc.imm_data);
    }
}

} // namespace

Endpoint *Queue::find(std::uint32_t qp_num) noexcept
{
    if (last_endpoint != nullptr && last_qp == qp_num) [[likely]]
        return last_endpoint;
    const auto found = by_qp.find(qp_num);
    if (found == by_qp.end())
        return nullptr; // closed meanwhile
    last_qp = qp_num;
    last_endpoint = found->second;
    return last_endpoint;
}

void Queue::push(const ofi::Completion &completion) noexcept
{
    if (!entries.push(completion)) [[unlikely]]
        VMA_WARN(cq, "no memory: a completion is lost");
}

template <fi_cq_format Format> bool Queue::give(const ofi::Completion &entry, std::byte *&out, bool direct) noexcept
{
    if (!direct) {
        push(entry);
        return false;
    }
    out += ofi::write_entry<Format>(out, entry.context, entry.flags, entry.length, nullptr, entry.data, entry.tag);
    return true;
}

template <fi_cq_format Format, typename Wc>
bool Queue::take_note(const Wc &wc, Endpoint &endpoint, std::byte *&out, bool direct) noexcept
{
    ofi::Completion entry;
    entry.owner = &endpoint;
    if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
        if (wc.status != IBV_WC_WR_FLUSH_ERR)
            endpoint.note_broken(*this, table()->wc_status_str(wc.status));
        return false; // nobody's receive
    }
    if (!endpoint.take_note(wc, entry)) [[unlikely]] {
        endpoint.note_broken(*this, "the peer does not keep to the rules of regions");
        return false;
    }
    set_time(entry, wc);
    return give<Format>(entry, out, direct);
}

// True: an entry was written to `out`.
template <fi_cq_format Format, typename Wc> bool Queue::take_in(const Wc &wc, std::byte *&out, bool direct) noexcept
{
    Endpoint *endpoint = find(wc.qp_num);
    if (endpoint == nullptr) [[unlikely]]
        return false;
    const bool success = wc.status == IBV_WC_SUCCESS;
    const bool is_receive = (wc.wr_id & kReceiveBit) != 0;
    if (is_receive && endpoint->region)
        return take_note<Format>(wc, *endpoint, out, direct);
    const Work work =
        is_receive ? endpoint->complete_receive(wc.wr_id & ~kReceiveBit) : endpoint->complete_sends(wc.wr_id);
    ofi::Completion entry;
    entry.context = work.context;
    entry.flags = work.flags;
    entry.owner = endpoint;
    if (!success) [[unlikely]] {
        const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
        if (!flushed)
            endpoint->note_broken(*this, table()->wc_status_str(wc.status));
        if (work.counter != nullptr)
            work.counter->count_error();
        const bool late = flushed && !is_receive && wc.wr_id < endpoint->overdue.load(std::memory_order_relaxed);
        entry.error = late ? FI_ETIMEDOUT : errno_of(wc.status);
        entry.provider_error = wc.status;
        const bool own = work.flags == 0; // the provider's, of which the program knows nothing
        const bool reported = is_receive || endpoint->reports_silent_sends(); // FI_SHUTDOWN tells in any case
        if (work.wanted || ((!flushed || late) && !own && reported))
            push(entry);
        return false;
    }
    if (work.counter != nullptr) [[unlikely]]
        work.counter->count();
    if (!work.wanted)
        return false;
    if (is_receive)
        describe_receive(wc, entry);
    set_time(entry, wc);
    return give<Format>(entry, out, direct);
}

template <fi_cq_format Format> std::size_t Queue::poll_fast(std::byte *&out, std::size_t room) noexcept
{
    mind_fast(room);
    return take<Format>(out, room, nullptr);
}

// In the driver's order: what it is asked of an entry between start and end, and nothing of ours meanwhile.
int Queue::ask(int count, StampedWc *wc) noexcept
{
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(stamped, &attr) != 0)
        return 0;
    const NicClock &clock = nic_domain(domain).clock();
    const std::uint64_t now = now_ns();
    int got = 0;
    do {
        StampedWc &entry = wc[got++];
        entry.wr_id = stamped->wr_id;
        entry.status = stamped->status;
        entry.qp_num = ibv_wc_read_qp_num(stamped);
        if (entry.status != IBV_WC_SUCCESS) [[unlikely]]
            continue; // the other fields mean nothing
        entry.opcode = ibv_wc_read_opcode(stamped);
        entry.byte_len = ibv_wc_read_byte_len(stamped);
        entry.wc_flags = ibv_wc_read_wc_flags(stamped);
        if ((entry.wc_flags & IBV_WC_WITH_IMM) != 0)
            entry.imm_data = ibv_wc_read_imm_data(stamped);
        entry.time = clock.time_of(ibv_wc_read_completion_ts(stamped), now);
    } while (got < count && ibv_next_poll(stamped) == 0);
    ibv_end_poll(stamped);
    return got;
}

// The number of entries written to `out`.
template <fi_cq_format Format, typename Wc> std::size_t Queue::poll(std::byte *&out, std::size_t room) noexcept
{
    std::size_t taken = 0;
    if (!fast.empty() && ++turns % 2 != 0) [[unlikely]] // neither keeps the other from its turn
        taken = poll_fast<Format>(out, room);
    while (taken < room) {
        Wc wc[kBurst];
        const int asked = static_cast<int>(std::min<std::size_t>(room - taken, kBurst));
        const int got = ask(asked, wc);
        for (int i = 0; i < got; ++i)
            taken += take_in<Format>(wc[i], out, entries.empty());
        if (got < asked || !entries.empty())
            break;
    }
    if (!fast.empty() && taken < room && entries.empty()) [[unlikely]]
        taken += poll_fast<Format>(out, room - taken);
    return taken;
}

bool Queue::drain() noexcept
{
    const std::size_t before = entries.size();
    const bool some = drain_device();
    if (!fast.empty()) [[unlikely]]
        mind_fast(SIZE_MAX);
    return some || entries.size() != before;
}

template <typename Wc> bool Queue::drain_as() noexcept
{
    std::byte *nowhere = nullptr;
    Wc wc[kBurst];
    int got;
    bool some = false;
    while ((got = ask(kBurst, wc)) > 0) {
        some = true;
        for (int i = 0; i < got; ++i)
            take_in<FI_CQ_FORMAT_CONTEXT>(wc[i], nowhere, false);
    }
    return some;
}

bool Queue::drain_device() noexcept
{
    return stamped != nullptr ? drain_as<StampedWc>() : drain_as<ibv_wc>();
}

template <fi_cq_format Format, typename Wc> ssize_t Queue::read(fid_cq *fid, void *buffer, std::size_t count) noexcept
{
    Queue &queue = queue_of(fid);
    auto *out = static_cast<std::byte *>(buffer);
    std::size_t taken = 0;
    queue.lock.lock();
    if (!queue.entries.empty()) [[unlikely]]
        taken = queue.take<Format>(out, count, nullptr);
    if (count == 0)
        queue.drain();
    else if (queue.entries.empty())
        taken += queue.poll<Format, Wc>(out, count - taken);
    const bool error = queue.error_first();
    const bool left = !queue.entries.empty();
    const bool failures = queue.broken != nullptr;
    const bool look_at_cm = taken == 0 && !left && queue.note_idle() % kCmInterval == 0;
    queue.lock.unlock();

    if (failures) [[unlikely]]
        queue.report_broken();
    if (look_at_cm) [[unlikely]]
        queue.domain.fabric.cm_progress();
    if (taken > 0)
        return static_cast<ssize_t>(taken);
    if (error)
        return -FI_EAVAIL;
    return count == 0 && left ? 0 : -FI_EAGAIN;
}

namespace {

template <fi_cq_format Format, typename Wc>
ssize_t readfrom(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources)
{
    for (std::size_t i = 0; sources != nullptr && i < count; ++i)
        sources[i] = FI_ADDR_NOTAVAIL; // a connection has one peer, which no address vector knows
    return Queue::read<Format, Wc>(fid, buffer, count);
}

// Milliseconds until what was refused is due, `milliseconds` at most; -1: it is due.
int until_due(Queue &queue, int milliseconds) noexcept
{
    constexpr std::uint64_t kMillisecond = 1'000'000;
    std::uint64_t due = queue.due.load(std::memory_order_relaxed);
    if (due == UINT64_MAX) [[likely]]
        return milliseconds;
    const std::uint64_t now = now_ns();
    if (due > now)
        return static_cast<int>(std::min<std::uint64_t>((due - now + kMillisecond - 1) / kMillisecond,
                                                        static_cast<unsigned>(milliseconds)));
    queue.due.compare_exchange_strong(due, UINT64_MAX, std::memory_order_relaxed);
    return -1;
}

// False: fi_cq_signal() was called, or what was refused may be tried again.
bool sleep_once(Queue &queue, int milliseconds) noexcept
{
    milliseconds = until_due(queue, milliseconds);
    if (milliseconds < 0)
        return false;
    queue.domain.fabric.cm_progress();
    bool fast;
    {
        const core::SpinGuard guard(queue.lock);
        if (!queue.arm() || queue.broken != nullptr)
            return true;
        fast = !queue.fast.empty();
    }
    pollfd fds[] = {{queue.wait_fd(), POLLIN, 0},
                    {queue.signal.get(), POLLIN, 0},
                    {queue.domain.fabric.device->wait_fd(), POLLIN, 0}};
    core::kernel::poll(fds, std::size(fds),
                       fast ? std::min(milliseconds, 1) : milliseconds); // no event tells of a ring
    std::uint64_t signals = 0;
    return core::kernel::read(queue.signal.get(), &signals, sizeof signals) != sizeof signals;
}

template <fi_cq_format Format, typename Wc>
ssize_t sreadfrom(fid_cq *fid, void *buffer, std::size_t count, fi_addr_t *sources, const void *cond, int timeout)
{
    Queue &queue = queue_of(fid);
    return ofi::cq_sread<Format>(queue, buffer, count, sources, cond, timeout, readfrom<Format, Wc>,
                                 [&queue](int milliseconds) noexcept { return sleep_once(queue, milliseconds); });
}

template <fi_cq_format Format, typename Wc>
ssize_t sread(fid_cq *fid, void *buffer, std::size_t count, const void *cond, int timeout)
{
    return sreadfrom<Format, Wc>(fid, buffer, count, nullptr, cond, timeout);
}

template <fi_cq_format Format, typename Wc> ssize_t read(fid_cq *fid, void *buffer, std::size_t count)
{
    return Queue::read<Format, Wc>(fid, buffer, count);
}

int wake(fid_cq *fid)
{
    Queue &queue = queue_of(fid);
    if (queue.domain.fabric.orphaned())
        return -FI_EOPBADSTATE;
    const std::uint64_t one = 1;
    return core::kernel::write(queue.signal.get(), &one, sizeof one) == sizeof one ? 0 : -errno;
}

const char *strerror(fid_cq *, int provider_error, const void *, char *out, std::size_t length)
{
    const char *text = table()->wc_status_str(static_cast<ibv_wc_status>(provider_error));
    if (out != nullptr && length > 0)
        std::snprintf(out, length, "%s", text);
    return text;
}

template <fi_cq_format Format, typename Wc = ibv_wc>
constinit fi_ops_cq g_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read<Format, Wc>,
    .readfrom = readfrom<Format, Wc>,
    .readerr = ofi::cq_readerr,
    .sread = sread<Format, Wc>,
    .sreadfrom = sreadfrom<Format, Wc>,
    .signal = wake,
    .strerror = strerror,
};

} // namespace

fi_ops_cq *cq_ops(const Queue &queue) noexcept
{
    if (queue.stamped != nullptr)
        return &g_ops<FI_CQ_FORMAT_TAGGED, StampedWc>;
    switch (queue.format) {
    case FI_CQ_FORMAT_CONTEXT:
        return &g_ops<FI_CQ_FORMAT_CONTEXT>;
    case FI_CQ_FORMAT_MSG:
        return &g_ops<FI_CQ_FORMAT_MSG>;
    case FI_CQ_FORMAT_TAGGED:
        return &g_ops<FI_CQ_FORMAT_TAGGED>;
    default:
        return &g_ops<FI_CQ_FORMAT_DATA>;
    }
}

} // namespace vma::verbs
