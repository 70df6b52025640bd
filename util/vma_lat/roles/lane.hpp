// SPDX-License-Identifier: BSD-2-Clause
// What one side does on one connection of a sweep or a mesh, as a machine that completions drive: posts operations, one
// at a time or in a window, answers those of the peer, verifies what came. It never waits.
//
// The first `single` operations go one at a time and are timed. Of an operation that the peer is told of (send,
// write-imm) the peer answers with the same, and the time is that of the round trip; a write or a read is timed to its
// completion. The rest goes in a window. There the peer, who owns the places that are written to, says how many it has
// taken, so that nothing is overwritten: by credits, control messages. Of a write it knows by the control message
// `look`.
#pragma once

#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/transport/endpoints.hpp"

#include <atomic>
#include <vector>

namespace vma::lat {

struct LaneWork {
    bool initiates = false;
    bool answers = false;
    bool verify = false;
    std::uint32_t warm_up = 0; // of `single`, not sampled
    std::uint32_t single = 0;  // operations of the initiator; answered
    std::uint64_t streamed = 0;
    std::uint8_t out_tag = 0;   // says to the peer which of its connections an operation with data is for
    std::uint8_t in_tag = 0;    // the same of what comes
    std::uint64_t out_seed = 0; // of what this side sends, writes, or has the peer read
    std::uint64_t in_seed = 0;
    Region theirs;
};

class Lane
{
public:
    // `singles_left`: lanes with operations to do one at a time; the second part begins when it is 0.
    Lane(Endpoints &endpoints, std::uint32_t connection, const LaneWork &work,
         std::atomic<std::uint32_t> &singles_left);

    // Posts what may be posted now. False: it failed.
    bool pump();
    bool on_completion(const fi_cq_data_entry &entry, Posted &posted);
    bool on_arrival(std::uint32_t sequence); // the peer's write with immediate data, 24 bits of its number

    bool stalled() const { return stalled_; } // the provider took no more: to be pumped again
    bool done() const;

    // Something is to come from the peer, and nothing has moved for so long. To be asked now and then.
    bool late(std::uint64_t now, std::uint64_t timeout_ns);

    const std::string &fault() const { return fault_; } // why something returned false
    int fault_status() const { return fault_status_; }
    std::uint32_t connection() const { return connection_; }
    const std::vector<std::uint64_t> &samples() const { return samples_; } // ns
    std::uint64_t started_ns() const { return started_; }                  // of the second part
    std::uint64_t ended_ns() const { return ended_; }
    const Tally &tally() const { return tally_; }

private:
    std::uint64_t total() const { return work_.single + work_.streamed; }
    bool acknowledges_by_message() const;
    bool may_post() const;
    bool may_initiate() const;
    bool post_data();
    ssize_t post_operation(Posted &posted, std::span<std::byte> source);
    bool on_data_done(Posted &posted);
    void acknowledge(std::uint64_t number);
    void sample();
    bool on_received(const fi_cq_data_entry &entry, Posted &receive);
    bool on_control(const fi_cq_data_entry &entry, std::span<const std::byte> message);
    bool on_credit(std::uint64_t number);
    bool on_look(std::uint64_t number);
    bool arrive(std::span<const std::byte> data);
    void verify(std::span<const std::byte> data, std::uint64_t seed, std::uint64_t number);
    void repost(Posted &receive);
    bool pump_controls();
    bool send_control(std::uint64_t kind, std::uint64_t number, bool &sent);
    bool took(ssize_t result, const char *what, bool &posted);
    bool fail(int status, std::string why);

    Endpoints &endpoints_;
    const std::uint32_t connection_;
    const LaneWork work_;
    const Operation operation_;
    const std::uint32_t slots_; // that both sides have
    std::atomic<std::uint32_t> &singles_left_;
    std::vector<Posted *> reposts_; // receives that found no room

    std::uint64_t posted_ = 0;
    std::uint64_t completed_ = 0;
    std::uint64_t acknowledged_ = 0; // of what was posted: answered, taken by the peer, or completed
    std::uint64_t looked_ = 0;       // writes that the peer was told of
    std::uint64_t arrived_ = 0;
    std::uint64_t credited_ = 0; // of what arrived
    std::uint32_t controls_under_way_ = 0;
    bool singles_counted_ = false;
    bool moved_ = true; // since late() was asked
    std::uint64_t moved_ns_ = 0;
    bool stalled_ = false;

    std::uint64_t posted_at_ = 0;
    std::uint64_t started_ = 0;
    std::uint64_t ended_ = 0;
    std::vector<std::uint64_t> samples_;
    Tally tally_;
    std::string fault_;
    int fault_status_ = kExitFine;
};

} // namespace vma::lat
