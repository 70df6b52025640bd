// SPDX-License-Identifier: BSD-2-Clause
// The data path. Frames below receive_frames_ are received into, the others are sent from.
#include "ether/raw/queue.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace vma::ether {
namespace {

constexpr std::uint32_t kSignalEvery = 32; // frames sent: one completion tells of all of them

template <typename Chain, typename Request> void append(Chain &chain, Request &request)
{
    request.next = nullptr;
    if (chain.first == nullptr)
        chain.first = &request;
    else
        chain.last->next = &request;
    chain.last = &request;
}

} // namespace

std::size_t RawQueue::receive(std::span<ReceivedFrame> burst) noexcept
{
    refill();
    if (next_ == end_)
        poll();
    std::size_t count = 0;
    while (next_ != end_ && count < burst.size()) {
        const ibv_wc &got = arrived_[next_++];
        const auto frame = static_cast<FrameIndex>(got.wr_id);
        if (got.status != IBV_WC_SUCCESS) {
            break_down(verbs::table()->wc_status_str(got.status));
            break;
        }
        const bool good = verifies_checksums_ && (got.wc_flags & IBV_WC_IP_CSUM_OK) != 0;
        burst[count] = {frame, bytes(frame).first(std::min(got.byte_len, frame_size_)), good};
        if (stamped_cq_ != nullptr) [[unlikely]]
            burst[count].stamps.hardware = stamped_at_[next_ - 1];
        ++count;
    }
    counters_.received += count;
    return count;
}

void RawQueue::poll() noexcept
{
    next_ = end_ = 0;
    if (broken_)
        return;
    if (stamped_cq_ != nullptr) [[unlikely]]
        return poll_stamped();
    const int count = ::ibv_poll_cq(receive_cq_.get(), static_cast<int>(arrived_.size()), arrived_.data());
    if (count < 0)
        break_down("its completions can't be read");
    else
        end_ = static_cast<std::uint32_t>(count);
}

// Entries of an extended queue are read one by one. That of an error has no time, and no length.
[[gnu::noinline]] void RawQueue::poll_stamped() noexcept
{
    ibv_poll_cq_attr attr{};
    int status = ::ibv_start_poll(stamped_cq_, &attr);
    if (status != 0) {
        if (status != ENOENT)
            break_down("its completions can't be read");
        return;
    }
    const std::uint64_t now = core::monotonic_ns();
    do {
        ibv_wc &entry = arrived_[end_];
        entry.wr_id = stamped_cq_->wr_id;
        entry.status = stamped_cq_->status;
        const bool good = entry.status == IBV_WC_SUCCESS;
        entry.byte_len = good ? ::ibv_wc_read_byte_len(stamped_cq_) : 0;
        entry.wc_flags = good ? ::ibv_wc_read_wc_flags(stamped_cq_) : 0;
        stamped_at_[end_] = good ? clock_.time_of(::ibv_wc_read_completion_ts(stamped_cq_), now) : 0;
        ++end_;
        status = end_ < kBurst ? ::ibv_next_poll(stamped_cq_) : ENOENT;
    } while (status == 0);
    ::ibv_end_poll(stamped_cq_);
    if (status != ENOENT)
        break_down("its completions can't be read");
}

void RawQueue::release(FrameIndex frame) noexcept
{
    if (frame >= receive_frames_)
        free_[free_count_++] = frame;
    else if (!memory_.lent || memory_.lent->release(frame)) [[likely]]
        append(given_back_, receive_work_[frame].request);
}

void RawQueue::refill() noexcept
{
    if (memory_.lent)
        memory_.lent->collect([this](FrameIndex frame) { append(given_back_, receive_work_[frame].request); });
    ibv_recv_wr *const first = std::exchange(given_back_, {}).first;
    if (first == nullptr || broken_)
        return;
    ++counters_.posts;
    ibv_recv_wr *bad = nullptr;
    if (::ibv_post_recv(qp_.get(), first, &bad) != 0)
        break_down("it takes no frames to receive into");
}

FrameIndex RawQueue::take() noexcept
{
    if (free_count_ == 0)
        reap();
    return free_count_ == 0 ? kNoFrame : free_[--free_count_];
}

std::span<std::uint8_t> RawQueue::bytes(FrameIndex frame) noexcept
{
    if (frame < receive_frames_)
        return {memory_.map.data() + std::size_t{frame} * frame_size_, frame_size_};
    std::uint8_t *const sent = memory_.map.data() + std::size_t{receive_frames_} * frame_size_;
    return {sent + std::size_t{frame - receive_frames_} * send_frame_size_, send_frame_size_};
}

bool RawQueue::submit(FrameIndex frame, std::uint32_t length, const inet::FrameWork &work_left) noexcept
{
    Work<ibv_send_wr> &work = send_work_[frame - receive_frames_];
    const bool tells = ++unsignalled_ >= kSignalEvery;
    if (tells)
        unsignalled_ = 0;
    under_way_[submitted_++ % send_frames_] = frame;
    work.request.wr_id = submitted_;
    work.request.send_flags =
        (tells ? unsigned{IBV_SEND_SIGNALED} : 0U) | (work_left.transport != 0 ? unsigned{IBV_SEND_IP_CSUM} : 0U);
    if (segment_limit_ != 0)
        fill_segments(work, frame, work_left);
    work.part.length = length - work_left.headers;
    append(queued_, work.request);
    ++counters_.sent;
    return true;
}

// The device gets the headers apart from the data, and makes as many of them as there are segments.
void RawQueue::fill_segments(Work<ibv_send_wr> &work, FrameIndex frame, const inet::FrameWork &left) noexcept
{
    std::uint8_t *const start = bytes(frame).data();
    work.part.addr = reinterpret_cast<std::uintptr_t>(start) + left.headers;
    work.request.opcode = left.segment != 0 ? IBV_WR_TSO : IBV_WR_SEND;
    if (left.segment == 0)
        return;
    work.request.tso.hdr = start;
    work.request.tso.hdr_sz = left.headers;
    work.request.tso.mss = left.segment;
    ++counters_.cut;
}

int RawQueue::flush() noexcept
{
    ibv_send_wr *const first = std::exchange(queued_, {}).first;
    if (first != nullptr && !broken_) {
        ++counters_.doorbells;
        ibv_send_wr *bad = nullptr;
        if (::ibv_post_send(qp_.get(), first, &bad) != 0)
            break_down("it takes no frames to send");
    }
    if (!broken_)
        return 0;
    reap();
    return -ENODEV;
}

// Frames that were sent become free. What was given to a device that is gone is lost, as on a wire.
void RawQueue::reap() noexcept
{
    std::uint64_t upto = sent_;
    if (broken_) {
        upto = submitted_;
        counters_.lost += upto - sent_;
        queued_ = {};
    } else {
        std::array<ibv_wc, 8> done;
        int count = 0;
        while ((count = ::ibv_poll_cq(send_cq_.get(), static_cast<int>(done.size()), done.data())) > 0) {
            for (const ibv_wc &wc : std::span(done).first(static_cast<std::size_t>(count))) {
                if (wc.status != IBV_WC_SUCCESS)
                    return break_down(verbs::table()->wc_status_str(wc.status));
                upto = wc.wr_id;
            }
        }
        if (count < 0)
            return break_down("its completions can't be read");
    }
    for (; sent_ != upto; ++sent_)
        release(under_way_[sent_ % send_frames_]);
}

QueueState RawQueue::state() const noexcept
{
    QueueState now;
    now.waiting = end_ - next_;
    now.frames = receive_frames_;
    now.lent = memory_.lent ? memory_.lent->lent() : 0;
    now.free = receive_frames_ - now.waiting - now.lent;
    now.send_frames = send_frames_;
    now.send_free = free_count_;
    return now;
}

bool RawQueue::arm() noexcept
{
    if (armed_) {
        ibv_cq *cq = nullptr;
        void *user = nullptr;
        // It stays until here, so that everybody who sleeps on the descriptor has seen it.
        if (verbs::table()->get_cq_event(channel_.get(), &cq, &user) == 0) {
            verbs::table()->ack_cq_events(cq, 1);
            armed_ = false;
            ++counters_.wakes;
        }
    }
    if (!armed_ && !broken_) {
        if (::ibv_req_notify_cq(receive_cq_.get(), 0) != 0)
            break_down("it tells of no more frames");
        armed_ = !broken_;
        counters_.armings += armed_ ? 1 : 0;
    }
    if (next_ == end_)
        poll(); // what came before it was armed
    return next_ == end_;
}

void RawQueue::follow() noexcept
{
    ibv_async_event event{};
    while (verbs::table()->get_async_event(context_.get(), &event) == 0) {
        const char *const text = verbs::table()->event_type_str(event.event_type);
        const bool fatal = event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_QP_FATAL ||
                           event.event_type == IBV_EVENT_CQ_ERR;
        verbs::table()->ack_async_event(&event);
        if (fatal)
            break_down(text);
        else
            VMA_INFO(domain, "RDMA device %s: %s", verbs::table()->get_device_name(context_->device), text);
    }
}

// Nothing moves from now on. The device must not write into frames that we think are ours.
void RawQueue::break_down(const char *reason) noexcept
{
    if (std::exchange(broken_, true))
        return;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    static_cast<void>(verbs::table()->modify_qp(qp_.get(), &attr, IBV_QP_STATE));
    next_ = end_ = 0;
    VMA_WARN(
        domain,
        "RDMA device %s, raw packets: %s. Connections of this port end; new flows are refused and stay the kernel's",
        verbs::table()->get_device_name(context_->device), reason);
}

} // namespace vma::ether
