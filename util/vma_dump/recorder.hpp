// SPDX-License-Identifier: BSD-2-Clause
// What becomes of a record: whether it is shown, and how, as a line of text or as a packet of a pcapng file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "util/vma_dump/filter.hpp"
#include "util/vma_dump/listener.hpp"
#include "util/vma_dump/options.hpp"
#include "util/vma_dump/output.hpp"

namespace vma_dump {

class Recorder
{
public:
    Recorder(const Options &options, Output &output) : options_(options), output_(output) {}

    // False: said why not.
    bool begin();
    // The message that `from` has at its front was read. False: nothing can be written any more.
    bool take(Listener &from, Message &message);
    void note_dropped(Listener &listener);
    void forget(const Listener &listener); // it was heard out

    bool is_done() const { return options_.count != 0 && captured_ >= options_.count; }
    std::uint64_t captured() const { return captured_; }
    std::uint64_t received() const { return received_; }
    std::uint64_t dropped() const { return dropped_; }

private:
    // A device of a process, one way.
    struct Interface {
        const Listener *listener; // nullptr: it is over
        std::uint8_t ring;
        std::uint8_t way;
        std::uint32_t number; // in the file
        std::string device;
        std::string name;
        std::string description;
        std::uint64_t received = 0;
        std::uint64_t dropped = 0;                 // in all, of the process
        std::uint64_t told_dropped = 0;            // with a packet
        std::unordered_set<std::uint64_t> sockets; // that the file has a comment on
    };

    bool is_wanted(const Interface &on, const vma::stats::CaptureRecord &head) const;
    Interface &interface_of(Listener &from, const vma::stats::CaptureRecord &head);
    bool write_packet(Interface &on, const Frame &frame, const vma::stats::CaptureRecord &head);
    bool begin_file();

    const Options &options_;
    Output &output_;
    Filter filter_;
    std::vector<Interface> interfaces_;
    std::size_t last_ = 0; // place of the one that was used last
    std::uint64_t captured_ = 0;
    std::uint64_t received_ = 0;
    std::uint64_t dropped_ = 0;
    std::uint32_t numbers_ = 0; // interfaces in the file
    bool is_text_ = false;
};

} // namespace vma_dump
