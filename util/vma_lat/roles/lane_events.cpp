// SPDX-License-Identifier: BSD-2-Clause
// What a lane makes of completions. What the peer says is checked against what was agreed: it can end the test, no
// more.
#include "util/vma_lat/roles/lane.hpp"

#include "util/vma_lat/measure/pattern.hpp"
#include "util/vma_lat/roles/lane_messages.hpp"

namespace vma::lat {

bool Lane::on_completion(const fi_cq_data_entry &entry, Posted &posted)
{
    moved_ = true;
    switch (posted.kind) {
    case Posted::Kind::kReceive:
        return on_received(entry, posted);
    case Posted::Kind::kControl:
        posted.under_way = false;
        --controls_under_way_;
        return true;
    case Posted::Kind::kData:
        return on_data_done(posted);
    }
    return true;
}

bool Lane::on_data_done(Posted &posted)
{
    posted.under_way = false;
    ++completed_;
    if (acknowledges_by_message()) {
        if (work_.initiates && operation_ == Operation::kWrite && completed_ <= work_.single)
            sample();
        return true;
    }
    if (completed_ <= work_.single)
        sample();
    if (work_.verify && operation_ == Operation::kRead)
        verify(endpoints_.source(connection_, posted.slot), work_.in_seed, posted.slot);
    acknowledge(completed_);
    return true;
}

// An operation that is done one at a time is.
void Lane::sample()
{
    if (posted_ > work_.warm_up)
        samples_.push_back(now_ns() - posted_at_);
}

void Lane::acknowledge(std::uint64_t number)
{
    acknowledged_ = number;
    if (!work_.initiates)
        return;
    if (!singles_counted_ && acknowledged_ >= work_.single) {
        singles_counted_ = true;
        singles_left_.fetch_sub(1, std::memory_order_release);
    }
    if (acknowledged_ == total())
        ended_ = now_ns();
}

bool Lane::on_received(const fi_cq_data_entry &entry, Posted &receive)
{
    const auto place = endpoints_.received(connection_, receive.slot);
    bool fine = true;
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
        fine = on_arrival(static_cast<std::uint32_t>(entry.data) & kSequenceMask); // it used up this receive
    else if (entry.len > place.size())
        fine = fail(kExitServer, format("a message of %zu bytes came on %s, into %zu", entry.len,
                                        endpoints_.name(connection_).c_str(), place.size()));
    else if (operation_ == Operation::kSend && (work_.answers || acknowledged_ < work_.single))
        fine = arrive(place.first(entry.len));
    else
        fine = on_control(entry, place);
    if (fine)
        repost(receive);
    return fine;
}

void Lane::repost(Posted &receive)
{
    if (endpoints_.post_receive(receive) != 0) {
        reposts_.push_back(&receive); // pump() says what is wrong, if it stays so
        stalled_ = true;
    }
}

bool Lane::on_arrival(std::uint32_t sequence)
{
    if (operation_ != Operation::kWriteImm || sequence != (arrived_ & kSequenceMask))
        return fail(kExitServer, format("operation %u came on %s where %llu was expected", sequence,
                                        endpoints_.name(connection_).c_str(),
                                        static_cast<unsigned long long>(arrived_ & kSequenceMask)));
    return arrive(endpoints_.exposed(connection_, static_cast<std::uint32_t>(arrived_ % slots_)));
}

// Data: of the peer's own accord, or its answer.
bool Lane::arrive(std::span<const std::byte> data)
{
    moved_ = true;
    const std::uint64_t most = work_.answers ? total() : posted_;
    if (arrived_ == most)
        return fail(kExitServer, format("more operations came on %s than the %llu that were announced",
                                        endpoints_.name(connection_).c_str(), static_cast<unsigned long long>(most)));
    if (!work_.answers)
        sample(); // before the look at it
    if (work_.verify || data.size() != endpoints_.shape().size)
        verify(data, work_.in_seed, arrived_);
    ++arrived_;
    ++tally_.arrived;
    if (!work_.answers)
        acknowledge(arrived_);
    return true;
}

void Lane::verify(std::span<const std::byte> data, std::uint64_t seed, std::uint64_t number)
{
    std::string words;
    if (data.size() != endpoints_.shape().size) {
        words = format("%zu bytes came instead of %u", data.size(), endpoints_.shape().size);
    } else if (const auto wrong = compare(data, seed, number)) {
        words = format("byte %zu of %zu is 0x%02x and should be 0x%02x", wrong->at, data.size(),
                       std::to_integer<unsigned>(wrong->came), std::to_integer<unsigned>(wrong->expected));
    } else {
        return;
    }
    if (tally_.damaged++ == 0)
        tally_.first = format("%s %llu on %s: %s", name_of(operation_), static_cast<unsigned long long>(number),
                              endpoints_.name(connection_).c_str(), words.c_str());
}

bool Lane::on_control(const fi_cq_data_entry &entry, std::span<const std::byte> message)
{
    if (entry.len != kControlBytes)
        return fail(kExitServer, format("a control message of %zu bytes came on %s", entry.len,
                                        endpoints_.name(connection_).c_str()));
    const ControlMessage said = read_control(message);
    if (said.kind == kCredit)
        return on_credit(said.number);
    if (said.kind == kLook)
        return on_look(said.number);
    return fail(kExitServer,
                format("a control message of unknown kind came on %s", endpoints_.name(connection_).c_str()));
}

bool Lane::on_credit(std::uint64_t number)
{
    if (!work_.initiates || !acknowledges_by_message() || number <= acknowledged_ || number > posted_)
        return fail(kExitServer, format("on %s the other side says that %llu operations came, of %llu",
                                        endpoints_.name(connection_).c_str(), static_cast<unsigned long long>(number),
                                        static_cast<unsigned long long>(posted_)));
    acknowledge(number);
    return true;
}

bool Lane::on_look(std::uint64_t number)
{
    if (!work_.answers || operation_ != Operation::kWrite || number <= arrived_ || number > total() ||
        number - arrived_ > slots_)
        return fail(kExitServer, format("on %s the other side says that %llu writes are there, after %llu",
                                        endpoints_.name(connection_).c_str(), static_cast<unsigned long long>(number),
                                        static_cast<unsigned long long>(arrived_)));
    while (arrived_ < number) {
        verify(endpoints_.exposed(connection_, static_cast<std::uint32_t>(arrived_ % slots_)), work_.in_seed, arrived_);
        ++arrived_;
        ++tally_.arrived;
    }
    return true;
}

} // namespace vma::lat
