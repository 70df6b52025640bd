// SPDX-License-Identifier: BSD-2-Clause
// The server's side of a test: counts what comes, and sends back what wants a reply.
#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/measure/message.hpp"
#include "util/vma_lat/roles/run.hpp"

#include <algorithm>

namespace vma::lat {

namespace {

constexpr unsigned kSilence = 4;           // receive() that brought nothing, after which what is missing is lost
constexpr std::uint64_t kLookAfter = 4096; // messages between two looks at the control connection
constexpr std::uint64_t kTimeEvery = 16;   // a time stamp for so many messages: it costs as much as some transports

class Server
{
public:
    Server(const Plan &plan, Transport &transport, Control &client, Counts &counts, Side &side)
        : plan_(plan), transport_(transport), client_(client), counts_(counts), side_(side), sequences_(plan.sockets)
    {
    }

    Failure run()
    {
        while (!stopped() && !done()) {
            Arrival arrival;
            const Got got = transport_.receive(arrival);
            if (got == Got::kFailed)
                return error(kExitFailed, "%s", transport_.fault().c_str());
            if (got == Got::kMessage && !take(arrival))
                return error(kExitFailed, "%s", transport_.fault().c_str());
            silent_ = got == Got::kMessage ? 0 : silent_ + 1;
            if (got == Got::kClosed)
                return finished_ ? Failure() : await_finish();
            if (!finished_ && (got != Got::kMessage || ++since_look_ == kLookAfter)) {
                if (auto failure = look())
                    return failure;
            }
        }
        return {};
    }

private:
    // Where messages may get lost they may also come twice, and that shows last.
    bool done() const
    {
        return finished_ && (silent_ >= kSilence || (reliable(plan_.kind) && counts_.received >= sent_));
    }

    // The channels are closed: by a client that finishes, or one that is gone.
    Failure await_finish()
    {
        Bytes body;
        if (auto failure = client_.receive(Type::kFinish, body, kPatienceMs))
            return failure;
        return finish(body);
    }

    Failure look()
    {
        since_look_ = 0;
        if (!client_.pending())
            return {};
        Bytes body;
        if (auto failure = client_.receive(Type::kFinish, body, kPatienceMs))
            return failure;
        return finish(body);
    }

    Failure finish(const Bytes &body)
    {
        Report client;
        if (auto failure = decode(body, client))
            return failure;
        side_ = client.side;
        finished_ = true;
        silent_ = 0;
        sent_ = client.counts.sent;
        return {};
    }

    // False: the reply could not be sent.
    bool take(const Arrival &arrival)
    {
        const std::span<std::byte> message = arrival.message;
        if (message.size() != plan_.size) {
            ++counts_.damaged;
            return true;
        }
        MessageHeader header = read_header(message.data());
        if (header.session != plan_.session || (header.flags & kReply) != 0) {
            ++counts_.foreign;
            return true;
        }
        if ((header.flags & kWarmUp) == 0)
            count(arrival.channel, header, message);
        if ((header.flags & kReplyWanted) == 0)
            return true;
        write_header(message.data(), header.session, header.flags | kReply, header.sequence());
        const Got got = transport_.send(arrival.channel, message);
        counts_.sent += got == Got::kMessage && (header.flags & kWarmUp) == 0 ? 1 : 0;
        return got != Got::kFailed;
    }

    void count(std::uint32_t channel, const MessageHeader &header, std::span<const std::byte> message)
    {
        if (plan_.check && !pattern_holds(message, header.sequence())) {
            ++counts_.damaged;
            return;
        }
        const Sequence::Seen seen = sequences_[channel].see(header.sequence());
        if (seen == Sequence::Seen::kDuplicate) {
            ++counts_.duplicates;
            return;
        }
        counts_.reordered += seen == Sequence::Seen::kReordered ? 1 : 0;
        if (counts_.received++ % kTimeEvery == 0) {
            counts_.last_ns = now_ns();
            counts_.timed = counts_.received - 1;
            if (counts_.received == 1)
                counts_.first_ns = counts_.last_ns;
        }
    }

    const Plan &plan_;
    Transport &transport_;
    Control &client_;
    Counts &counts_;
    Side &side_; // the client's
    std::vector<Sequence> sequences_;
    std::uint64_t since_look_ = 0;
    std::uint64_t sent_ = 0;
    unsigned silent_ = 0;
    bool finished_ = false;
};

} // namespace

Failure run_server(const Plan &plan, Transport &transport, Control &control, Counts &counts, Side &client)
{
    return Server(plan, transport, control, counts, client).run();
}

} // namespace vma::lat
