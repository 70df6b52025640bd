// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/recorder.hpp"

#include <stdio.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>

#include "compat/src/stats/text.hpp"
#include "config.h"
#include "util/vma_dump/line.hpp"
#include "util/vma_dump/pcapng.hpp"

namespace vma_dump {

namespace {

using namespace vma::stats;

constexpr std::size_t kMostSockets = 1 << 20; // that are remembered

Way way_of(const CaptureRecord &head)
{
    return head.way <= static_cast<std::uint8_t>(Way::kPort) ? static_cast<Way>(head.way) : Way::kKernel;
}

// What way a message of an accelerated socket takes; the record of one that is the kernel's for receiving says so.
const char *path_of(Way way)
{
    switch (way) {
    case Way::kRdma:
        return "RDMA to another host";
    case Way::kPort:
        return "Ethernet port";
    default:
        return "shared memory within the host";
    }
}

std::string system_name()
{
    utsname name = {};
    return ::uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : std::string();
}

std::uint64_t time_of_day()
{
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::string comment_on(const CaptureRecord &head, const std::string &device)
{
    char text[160];
    snprintf(text, sizeof text, "fd %d, %s, device %s: %s, thread %u", head.fd,
             (head.flags & kCaptureUdp) != 0 ? "UDP" : "TCP", device.c_str(), path_of(way_of(head)), head.thread);
    return text;
}

} // namespace

bool Recorder::begin_file()
{
    if (is_text_)
        return true;
    add_section(output_.buffer(), std::string("vma_dump ") + PACKAGE_VERSION, system_name());
    numbers_ = 0;
    std::erase_if(interfaces_, [](const Interface &one) { return one.listener == nullptr; });
    last_ = 0;
    for (Interface &one : interfaces_) {
        add_interface(output_.buffer(), one.name, one.description, options_.snap);
        one.number = numbers_++;
        one.sockets.clear();
    }
    return output_.write_all(); // who reads it sees that it has begun
}

bool Recorder::begin()
{
    std::string error;
    is_text_ = options_.file.empty();
    if (!filter_.compile(options_.filter, options_.snap, error)) {
        fprintf(stderr, "vma_dump: '%s' is no filter: %s (expected one of pcap-filter(7))\n", options_.filter.c_str(),
                error.c_str());
        return false;
    }
    return output_.open() && begin_file();
}

Recorder::Interface &Recorder::interface_of(Listener &from, const CaptureRecord &head)
{
    const auto is_it = [&](const Interface &one) {
        return one.listener == &from && one.ring == head.ring && one.way == head.way;
    };
    if (last_ < interfaces_.size() && is_it(interfaces_[last_]))
        return interfaces_[last_];
    const auto known = std::find_if(interfaces_.begin(), interfaces_.end(), is_it);
    last_ = static_cast<std::size_t>(known - interfaces_.begin());
    if (known != interfaces_.end())
        return *known;
    Interface fresh = {&from, head.ring, head.way, numbers_, from.device_of(head), {}, {}, 0, 0, 0, {}};
    fresh.dropped = from.told_drops(); // before its first packet, too
    if (fresh.device.empty())
        fresh.device = name_of(way_of(head));
    const std::string pid = std::to_string(from.pid());
    fresh.name = fresh.device + "@" + pid;
    fresh.description = from.program() + ", process " + pid + ", device " + fresh.device + ": " + path_of(way_of(head));
    if (!is_text_)
        add_interface(output_.buffer(), fresh.name, fresh.description, options_.snap);
    ++numbers_;
    interfaces_.push_back(std::move(fresh));
    return interfaces_.back();
}

bool Recorder::is_wanted(const Interface &on, const CaptureRecord &head) const
{
    const bool out = (head.flags & kCaptureOut) != 0;
    if (options_.direction != Direction::kBoth && (options_.direction == Direction::kOut) != out)
        return false;
    return options_.device.empty() || options_.device == on.device || options_.device == name_of(way_of(head));
}

bool Recorder::write_packet(Interface &on, const Frame &frame, const CaptureRecord &head)
{
    PacketNotes notes = {(head.flags & kCaptureOut) != 0};
    notes.dropped = on.dropped - on.told_dropped;
    on.told_dropped = on.dropped;
    if (on.sockets.size() > kMostSockets)
        on.sockets.clear();
    std::string comment;
    const std::uint64_t socket = std::uint64_t{head.use} << 32 | static_cast<std::uint32_t>(head.fd);
    if (on.sockets.insert(socket).second)
        comment = comment_on(head, on.device);
    notes.comment = comment;
    add_packet(output_.buffer(), on.number, head.time_ns, frame, notes);
    return output_.write_some();
}

bool Recorder::take(Listener &from, Message &message)
{
    const CaptureRecord &head = message.head();
    Interface *on = &interface_of(from, head);
    ++received_;
    ++on->received;
    if (!is_wanted(*on, head))
        return true;
    const Frame frame = message.frame(options_.snap);
    if (!filter_.passes(frame, head.time_ns))
        return true;
    ++captured_;
    if (is_text_) {
        add_line(output_.buffer(), head, on->device, from.program(), from.pid());
        return output_.write_some();
    }
    if (output_.is_full()) {
        if (!output_.begin_next() || !begin_file())
            return false;
        on = &interface_of(from, head);
    }
    return write_packet(*on, frame, head);
}

void Recorder::note_dropped(Listener &listener)
{
    const std::uint64_t more = listener.new_drops();
    dropped_ += more;
    for (Interface &one : interfaces_)
        if (more != 0 && one.listener == &listener)
            one.dropped += more;
}

void Recorder::forget(const Listener &listener)
{
    for (Interface &one : interfaces_) {
        if (one.listener != &listener)
            continue;
        if (!is_text_)
            add_statistics(output_.buffer(), one.number, time_of_day(), one.received, one.dropped);
        one.listener = nullptr;
    }
}

} // namespace vma_dump
