// SPDX-License-Identifier: BSD-2-Clause
// The scripts' clock and wire: when a line happens, which segments it puts in front of the engine, and which it
// takes from it.
#include "prov/vma/test/inet/script.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "prov/vma/src/inet/wire/checksum.hpp"
#include "prov/vma/test/inet/script_run.hpp"
#include "prov/vma/test/inet/sim.hpp"

namespace vma::inet::script {

namespace {

constexpr HashKey kSecret = {0x0123456789abcdef, 0xfedcba9876543210};
constexpr std::uint32_t kIsnStep = 1000000;

IpAddress address(bool ipv6, unsigned host)
{
    if (!ipv6)
        return IpAddress::v4(0x0a000000 + host);
    const std::uint8_t wire[16] = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(host)};
    return IpAddress::v6(wire);
}

// +D, +D..E (anywhere between), or none: at once.
bool parse_when(Words &words, Nanos &from, Nanos &to)
{
    if (words.peek().substr(0, 1) != "+")
        return true;
    const std::string_view word = words.next().substr(1);
    const std::size_t dots = word.find("..");
    const std::optional<Nanos> first = parse_seconds(word.substr(0, dots));
    const std::optional<Nanos> last = dots != std::string_view::npos ? parse_seconds(word.substr(dots + 2)) : first;
    if (!first || !last || *last < *first)
        return false;
    from = *first;
    to = *last;
    return true;
}

} // namespace

std::string Runner::run_line(std::string_view line)
{
    Words words(line);
    return words.empty() ? "" : run_words(words);
}

std::string Runner::run_words(Words &words)
{
    When when;
    if (!parse_when(words, when.from, when.to))
        return "a time is written +SECONDS or +SECONDS..SECONDS";
    current_ = 1;
    if (words.peek().substr(0, 1) == "@") {
        const std::optional<std::int64_t> number = parse_number(words.next().substr(1));
        if (!number || *number < 1 || *number > 1000)
            return "a peer is written @NUMBER";
        current_ = static_cast<unsigned>(*number);
    }
    if (words.take("set"))
        return set(words);
    start();
    if (words.take(">"))
        return expect(words, when);
    if (when.from != when.to)
        return "only an expected segment may have a span of time";
    std::string error = wait(when.to);
    if (!error.empty() || words.empty() || words.take("nothing"))
        return error;
    if (words.take("<"))
        return inject(words);
    const std::string name(words.next());
    bool known = false;
    error = call(name, words, known);
    collect();
    if (!known)
        return "'" + name + "' is not known";
    return error.empty() && !words.empty() ? "'" + std::string(words.peek()) + "' is too much" : error;
}

std::string Runner::finish()
{
    return !transitions_.wrong().empty() ? transitions_.wrong() : came_.empty() ? "" : unexpected();
}

void Runner::start()
{
    if (tcp_ != nullptr)
        return;
    tcp_ = std::make_unique<Tcp>(limits_, kSecret, now_);
    transitions_.watch(*tcp_);
    NextHop &path = tcp_->next_hops()[tcp_->next_hops().use(address(ipv6_, 2))];
    path.mtu = mtu_;
    path.ready = true;
}

Runner::Peer &Runner::peer(unsigned number)
{
    const auto [at, fresh] = peers_.try_emplace(number);
    if (fresh) {
        at->second.number = number;
        at->second.isn = number * kIsnStep;
    }
    return at->second;
}

Flow Runner::flow() const
{
    return {{address(ipv6_, 1), kPort}, {address(ipv6_, 2), static_cast<std::uint16_t>(kFirstPort + current_)}};
}

// ---- time -----------------------------------------------------------------------------------------------------------

bool Runner::advance_to(Nanos until, bool stop_at_output)
{
    collect();
    while (!(stop_at_output && !came_.empty()) && tcp_->deadline() <= until) {
        now_ = std::max(now_, tcp_->deadline());
        tcp_->advance(now_);
        collect();
    }
    if (stop_at_output && !came_.empty())
        return true;
    now_ = until;
    tcp_->advance(now_);
    collect();
    return !came_.empty();
}

std::string Runner::wait(Nanos duration)
{
    if (!came_.empty())
        return unexpected();
    return advance_to(now_ + duration, false) ? unexpected() : "";
}

std::string Runner::unexpected() const
{
    return "nothing was expected, but at " + write_seconds(came_.front().at - 1000 * kSecond) + " s came\n    " +
           write_came(came_.front());
}

// ---- what the engine sends ------------------------------------------------------------------------------------------

std::string Runner::write_came(const Came &came) const
{
    return (came.peer != 1 ? "@" + std::to_string(came.peer) + " > " : "> ") + write_pattern(came.pattern) +
           (came.data_good ? "" : "  # with other data than was sent");
}

void Runner::collect()
{
    std::uint8_t buffer[65536];
    TcpOut meta;
    while (tcp_->output(now_, buffer, meta))
        came_.push_back(read_segment({buffer, meta.length}, meta));
    TcpEvent event;
    while (tcp_->next_event(event))
        if ((event.what & kAcceptable) == 0)
            peer(static_cast<unsigned>(event.user)).events |= event.what;
}

Runner::Came Runner::read_segment(std::span<const std::uint8_t> bytes, const TcpOut &meta)
{
    Packet packet;
    packet.source = meta.source;
    packet.target = meta.target;
    packet.payload = bytes;
    Segment segment;
    Came came;
    came.at = now_;
    if (!parse_segment(packet, segment)) {
        came.data_good = false;
        return came;
    }
    came.peer = static_cast<unsigned>(segment.target_port - kFirstPort);
    Peer &to = peer(came.peer);
    learn(to, segment);
    Pattern &p = came.pattern;
    p.flags = segment.flags;
    p.seq = segment.seq - to.iss;
    p.length = static_cast<std::uint32_t>(segment.data.size());
    if (segment.has(kAck))
        p.ack = segment.ack - to.isn;
    p.window = segment.window;
    p.ecn = meta.traffic_class & kEcnMask;
    p.listed = true;
    const TcpOptions &o = segment.options;
    if (o.mss != 0)
        p.mss = o.mss;
    if (o.has_window_scale)
        p.scale = o.window_scale;
    p.sack_ok = o.sack_permitted;
    p.stamps = o.has_timestamps;
    if (p.stamps) {
        p.stamp = o.timestamp - to.first_stamp;
        p.echo = o.timestamp_echo;
    }
    for (unsigned i = 0; i < o.sacks; ++i)
        p.sacks.push_back({o.sack[i].left - to.isn, o.sack[i].right - to.isn});
    came.data_good = sim::check(2 * std::uint64_t{came.peer}, *p.seq - 1, segment.data);
    return came;
}

void Runner::learn(Peer &to, const Segment &segment)
{
    if (segment.has(kSyn)) {
        to.iss_known = true;
        to.iss = segment.seq;
        to.agreed_stamps = to.offered_stamps && segment.options.has_timestamps;
    }
    if (!segment.options.has_timestamps)
        return;
    if (!to.stamps_known) {
        to.stamps_known = true;
        to.first_stamp = segment.options.timestamp;
    }
    to.last_stamp = segment.options.timestamp;
}

std::string Runner::expect(Words &words, const When &when)
{
    Pattern wanted;
    std::string error = parse_pattern(words, wanted);
    if (!error.empty() || wanted.each == 0)
        return error.empty() ? expect_one(wanted, when) : error;
    Pattern one = wanted;
    When then = when;
    const std::uint8_t last = wanted.flags; // PSH, FIN: of the last of them
    for (std::uint32_t at = 0; at < wanted.length && error.empty(); at += wanted.each) {
        one.seq = *wanted.seq + at;
        one.length = std::min(wanted.each, wanted.length - at);
        one.flags = at + one.length == wanted.length ? last : static_cast<std::uint8_t>(last & ~(kPsh | kFin));
        error = expect_one(one, then);
        then = When();
    }
    return error;
}

std::string Runner::expect_one(const Pattern &wanted, const When &when)
{
    const Nanos from = now_ + when.from;
    const Nanos to = now_ + when.to;
    const auto written = [&] {
        return "expected\n    +" + write_seconds(when.from) + (from != to ? ".." + write_seconds(when.to) : "") +
               (current_ != 1 ? " @" + std::to_string(current_) : "") + " > " + write_pattern(wanted);
    };
    const Nanos before = now_;
    if (came_.empty() && !advance_to(to, true))
        return written() + "\n  came nothing";
    const Came came = came_.front();
    came_.pop_front();
    if (came.peer == current_ && came.at >= from && came.at <= to && came.data_good && matches(wanted, came.pattern))
        return "";
    return written() + "\n  came\n    +" + write_seconds(came.at - before) + " " + write_came(came);
}

// ---- what the script sends ------------------------------------------------------------------------------------------

std::string Runner::inject(Words &words)
{
    Pattern pattern;
    std::string error = parse_pattern(words, pattern);
    if (!error.empty())
        return error;
    if (!pattern.seq)
        return "a segment to the engine needs a sequence number";
    const std::uint32_t each = pattern.each != 0 ? pattern.each : pattern.length;
    Pattern one = pattern;
    std::uint32_t at = 0;
    std::deque<std::vector<std::uint8_t>> frames; // a batch's stay until it is complete
    do {
        one.seq = *pattern.seq + at;
        one.length = std::min(each, pattern.length - at);
        const Packet packet = write_packet(one, frames.emplace_back());
        at += each;
        if (!pattern.together) {
            tcp_->input(now_, packet);
            collect();
        } else {
            tcp_->gather(now_, packet);
        }
    } while (at < pattern.length);
    if (pattern.together) {
        tcp_->flush(now_);
        collect();
    }
    return "";
}

// A segment without a list of options has what its connection agreed on: a clock in milliseconds and the engine's
// last echoed.
void Runner::add_stamps(TcpOptions &options, const Pattern &pattern)
{
    Peer &from = peer(current_);
    const bool by_itself = !pattern.listed && from.agreed_stamps && (pattern.flags & kRst) == 0;
    if (!pattern.stamps && !by_itself)
        return;
    options.has_timestamps = true;
    options.timestamp =
        pattern.stamp.value_or(from.own_stamp + static_cast<std::uint32_t>((now_ - from.own_stamp_at) / kMillisecond));
    const bool none = (pattern.flags & kAck) == 0 && !pattern.echo;
    options.timestamp_echo = none ? 0 : pattern.echo ? from.first_stamp + *pattern.echo : from.last_stamp;
    if ((pattern.flags & kSyn) != 0) {
        from.own_stamp = options.timestamp;
        from.own_stamp_at = now_;
    }
}

Packet Runner::write_packet(const Pattern &pattern, std::vector<std::uint8_t> &bytes)
{
    constexpr std::uint32_t kUsualWindow = 65535;
    Peer &from = peer(current_);
    Segment segment;
    segment.source_port = static_cast<std::uint16_t>(kFirstPort + current_);
    segment.target_port = kPort;
    segment.flags = pattern.flags;
    segment.seq = from.isn + *pattern.seq;
    segment.ack = from.iss + pattern.ack.value_or(0);
    segment.window = static_cast<std::uint16_t>(pattern.window.value_or(kUsualWindow));
    TcpOptions &o = segment.options;
    o.mss = pattern.mss.value_or(0);
    o.has_window_scale = pattern.scale.has_value();
    o.window_scale = pattern.scale.value_or(0);
    o.sack_permitted = pattern.sack_ok;
    for (std::size_t i = 0; i < pattern.sacks.size() && i < kMostSacks; ++i)
        o.sack[o.sacks++] = {from.iss + pattern.sacks[i].left, from.iss + pattern.sacks[i].right};
    add_stamps(o, pattern);
    if ((pattern.flags & kSyn) != 0) {
        from.offered_stamps = o.has_timestamps;
        from.agreed_stamps = from.offered_stamps && from.stamps_known;
    }
    bytes.resize(kTcpLongestHeader + pattern.length);
    const std::size_t header = write_tcp_header(bytes.data(), segment);
    bytes.resize(header + pattern.length);
    const std::span<std::uint8_t> data = std::span(bytes).subspan(header);
    sim::fill(2 * std::uint64_t{current_} + 1, *pattern.seq - 1, data);
    const Flow way = flow();
    seal_segment(bytes.data(),
                 sum(data.data(), data.size(),
                     sum_tcp_header(bytes.data(), header, data.size(), way.remote.address, way.local.address)));
    Packet packet;
    packet.source = way.remote.address;
    packet.target = way.local.address;
    packet.protocol = Protocol::kTcp;
    packet.traffic_class = pattern.ecn.value_or(kEcnNotCapable);
    packet.payload = bytes;
    return packet;
}

// ---- files ----------------------------------------------------------------------------------------------------------

std::string run_text(const std::string &name, std::string_view text)
{
    Runner runner;
    unsigned number = 0;
    std::string error;
    while (error.empty() && !text.empty()) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number;
        error = runner.run_line(line);
    }
    if (error.empty())
        error = runner.finish();
    return error.empty() ? "" : name + ":" + std::to_string(number) + ": " + error;
}

std::string run_file(const std::string &path)
{
    std::ifstream file(path);
    if (!file)
        return path + ": cannot be read";
    std::stringstream text;
    text << file.rdbuf();
    return run_text(path, text.str());
}

} // namespace vma::inet::script
