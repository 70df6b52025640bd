// SPDX-License-Identifier: BSD-2-Clause
// What a lane posts. What it makes of completions is lane_events.cpp.
#include "util/vma_lat/roles/lane.hpp"

#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/roles/lane_messages.hpp"

#include <algorithm>
#include <array>

namespace vma::lat {

Lane::Lane(Endpoints &endpoints, std::uint32_t connection, const LaneWork &work,
           std::atomic<std::uint32_t> &singles_left)
    : endpoints_(endpoints), connection_(connection), work_(work), operation_(endpoints.shape().operation),
      slots_(std::min(endpoints.slots(), work.theirs.slots)), singles_left_(singles_left)
{
    if (work_.initiates)
        samples_.reserve(work_.single - work_.warm_up);
    singles_counted_ = !work_.initiates || work_.single == 0;
    if (!singles_counted_)
        singles_left_.fetch_add(1);
    reposts_.reserve(endpoints.slots());
    if (work_.answers && work_.verify && operation_ == Operation::kRead) {
        for (std::uint32_t slot = 0; slot < endpoints.slots(); ++slot)
            fill(endpoints_.exposed(connection_, slot), work_.out_seed, slot);
    }
}

// Whether a count from the peer says what has arrived, or the operation's completion says enough.
bool Lane::acknowledges_by_message() const
{
    return told(operation_) || (operation_ == Operation::kWrite && work_.verify);
}

bool Lane::done() const
{
    const bool out = !work_.initiates || (acknowledged_ == total() && completed_ == posted_);
    const bool in = !work_.answers || !acknowledges_by_message() || (arrived_ == total() && credited_ >= arrived_);
    return out && in && completed_ == posted_ && controls_under_way_ == 0 && reposts_.empty();
}

bool Lane::late(std::uint64_t now, std::uint64_t timeout_ns)
{
    const bool waits = completed_ < posted_ || controls_under_way_ != 0 ||
                       (work_.initiates && acknowledged_ < posted_) || (work_.answers && arrived_ < total());
    if (moved_ || !waits)
        moved_ns_ = now;
    moved_ = false;
    return now - moved_ns_ > timeout_ns;
}

bool Lane::may_initiate() const
{
    if (posted_ == total())
        return false;
    if (posted_ < work_.single)
        return acknowledged_ == posted_ && completed_ == posted_;
    if (singles_left_.load(std::memory_order_acquire) != 0)
        return false;
    return posted_ - completed_ < endpoints_.shape().window && posted_ - acknowledged_ < slots_;
}

bool Lane::may_post() const
{
    if (endpoints_.data(connection_)[posted_ % slots_].under_way)
        return false;
    if (work_.initiates)
        return may_initiate();
    return told(operation_) && posted_ < std::min<std::uint64_t>(arrived_, work_.single);
}

bool Lane::pump()
{
    stalled_ = false;
    while (!reposts_.empty()) {
        const ssize_t result = endpoints_.post_receive(*reposts_.back());
        bool posted = false;
        if (!took(result, "receiving", posted))
            return false;
        if (!posted)
            break;
        reposts_.pop_back();
    }
    while (!stalled_ && may_post()) {
        if (!post_data())
            return false;
    }
    return stalled_ || pump_controls();
}

bool Lane::post_data()
{
    const auto slot = static_cast<std::uint32_t>(posted_ % slots_);
    Posted &posted = endpoints_.data(connection_)[slot];
    const auto source = endpoints_.source(connection_, slot);
    // What is read has to be seen to change.
    if (work_.verify)
        fill(source, operation_ == Operation::kRead ? ~work_.in_seed : work_.out_seed, posted_);
    if (work_.initiates) {
        posted_at_ = now_ns();
        if (posted_ == work_.single && started_ == 0)
            started_ = posted_at_;
    }
    bool taken = false;
    if (!took(post_operation(posted, source), name_of(operation_), taken))
        return false;
    if (taken) {
        posted.under_way = true;
        moved_ = true;
        ++posted_;
    }
    return true;
}

ssize_t Lane::post_operation(Posted &posted, std::span<std::byte> source)
{
    fid_ep *endpoint = endpoints_.endpoint(connection_);
    void *descriptor = endpoints_.descriptor();
    const std::uint64_t address = work_.theirs.address + posted.slot * endpoints_.stride();
    switch (operation_) {
    case Operation::kSend:
        return fi_send(endpoint, source.data(), source.size(), descriptor, FI_ADDR_UNSPEC, &posted.context);
    case Operation::kWrite:
        return fi_write(endpoint, source.data(), source.size(), descriptor, FI_ADDR_UNSPEC, address, work_.theirs.key,
                        &posted.context);
    case Operation::kRead:
        return fi_read(endpoint, source.data(), source.size(), descriptor, FI_ADDR_UNSPEC, address, work_.theirs.key,
                       &posted.context);
    case Operation::kWriteImm:
        return fi_writedata(endpoint, source.data(), source.size(), descriptor, immediate(work_.out_tag, posted_),
                            FI_ADDR_UNSPEC, address, work_.theirs.key, &posted.context);
    }
    return -FI_EINVAL;
}

// Writes that the peer is to look at, and what it is to know of those that came here.
bool Lane::pump_controls()
{
    bool sent = true;
    const std::uint64_t step = std::max<std::uint64_t>(slots_ / 2, 1);
    if (work_.initiates && operation_ == Operation::kWrite && work_.verify && posted_ > looked_) {
        const bool due =
            posted_ <= work_.single ? completed_ == posted_ : posted_ - looked_ >= step || posted_ == total();
        if (due) {
            if (!send_control(kLook, posted_, sent))
                return false;
            looked_ = sent ? posted_ : looked_;
        }
    }
    const bool streaming = arrived_ > work_.single || !told(operation_);
    if (sent && work_.answers && streaming && arrived_ > credited_ &&
        (arrived_ - credited_ >= step || arrived_ == total() || !told(operation_))) {
        if (!send_control(kCredit, arrived_, sent))
            return false;
        credited_ = sent ? arrived_ : credited_;
    }
    return true;
}

bool Lane::send_control(std::uint64_t kind, std::uint64_t number, bool &sent)
{
    sent = false;
    auto &controls = endpoints_.controls(connection_);
    const auto free =
        std::find_if(controls.begin(), controls.end(), [](const Posted &each) { return !each.under_way; });
    if (free == controls.end())
        return true; // the completion of one pumps again
    const auto place = endpoints_.control(connection_, free->slot);
    write_control(place, {kind, number});
    const ssize_t result = fi_send(endpoints_.endpoint(connection_), place.data(), place.size(),
                                   endpoints_.descriptor(), FI_ADDR_UNSPEC, &free->context);
    if (!took(result, "control message", sent))
        return false;
    free->under_way = sent;
    controls_under_way_ += sent ? 1 : 0;
    return true;
}

bool Lane::took(ssize_t result, const char *what, bool &posted)
{
    posted = result == 0;
    stalled_ = stalled_ || result == -FI_EAGAIN;
    if (result == 0 || result == -FI_EAGAIN)
        return true;
    return fail(kExitFailed,
                format("posting %s of %u bytes on %s: %s", what, endpoints_.shape().size,
                       endpoints_.name(connection_).c_str(), libfabric().strerror(static_cast<int>(-result))));
}

bool Lane::fail(int status, std::string why)
{
    fault_status_ = status;
    fault_ = std::move(why);
    return false;
}

} // namespace vma::lat
