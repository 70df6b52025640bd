// SPDX-License-Identifier: BSD-2-Clause
// What a script's lines do beside segments: the program's calls and what they return, settings, events, ICMP, and
// questions about the connection.
#include <errno.h>

#include <cmath>
#include <utility>
#include <variant>

#include "prov/vma/test/inet/script_run.hpp"
#include "prov/vma/test/inet/sim.hpp"

namespace vma::inet::script {

namespace {

template <typename Value> struct Named {
    std::string_view name;
    Value value;
};

template <typename Value, std::size_t N> const Value *find(const Named<Value> (&table)[N], std::string_view name)
{
    for (const Named<Value> &entry : table)
        if (entry.name == name)
            return &entry.value;
    return nullptr;
}

constexpr Named<int> kErrors[] = {
    {"EADDRINUSE", EADDRINUSE},
    {"EADDRNOTAVAIL", EADDRNOTAVAIL},
    {"EAGAIN", EAGAIN},
    {"EBADF", EBADF},
    {"ECONNREFUSED", ECONNREFUSED},
    {"ECONNRESET", ECONNRESET},
    {"EHOSTUNREACH", EHOSTUNREACH},
    {"ENETUNREACH", ENETUNREACH},
    {"ENOBUFS", ENOBUFS},
    {"ENOTCONN", ENOTCONN},
    {"EPIPE", EPIPE},
    {"EPROTO", EPROTO},
    {"ETIMEDOUT", ETIMEDOUT},
};

constexpr Named<std::uint32_t> kEvents[] = {
    {"connected", kConnected},   {"readable", kReadable}, {"writable", kWritable},
    {"finished", kPeerFinished}, {"failed", kFailed},     {"gone", kGone},
};

constexpr Named<TcpState> kStates[] = {
    {"CLOSED", TcpState::kClosed},
    {"SYN-SENT", TcpState::kSynSent},
    {"SYN-RECEIVED", TcpState::kSynReceived},
    {"ESTABLISHED", TcpState::kEstablished},
    {"FIN-WAIT-1", TcpState::kFinWait1},
    {"FIN-WAIT-2", TcpState::kFinWait2},
    {"CLOSE-WAIT", TcpState::kCloseWait},
    {"CLOSING", TcpState::kClosing},
    {"LAST-ACK", TcpState::kLastAck},
};

// Times come last: their type is that of the rate, and they are written in seconds.
using Field = std::variant<bool TcpSettings::*, std::uint8_t TcpSettings::*, std::uint16_t TcpSettings::*,
                           std::uint32_t TcpSettings::*, Nanos TcpSettings::*>;

const Named<Field> kFields[] = {
    {"send_buffer", &TcpSettings::send_buffer},
    {"receive_buffer", &TcpSettings::receive_buffer},
    {"mss", &TcpSettings::most_mss},
    {"traffic_class", &TcpSettings::traffic_class},
    {"window_scaling", &TcpSettings::window_scaling},
    {"timestamps", &TcpSettings::timestamps},
    {"sack", &TcpSettings::sack},
    {"ecn", &TcpSettings::ecn},
    {"nodelay", &TcpSettings::nodelay},
    {"cork", &TcpSettings::cork},
    {"quick_ack", &TcpSettings::quick_ack},
    {"quick_ack_most", &TcpSettings::quick_ack_most},
    {"keepalive", &TcpSettings::keepalive},
    {"keepalive_probes", &TcpSettings::keepalive_probes},
    {"syn_retries", &TcpSettings::syn_retries},
    {"syn_rate", &TcpSettings::syn_rate},
    {"retries", &TcpSettings::retries},
    {"keepalive_idle", &TcpSettings::keepalive_idle},
    {"keepalive_interval", &TcpSettings::keepalive_interval},
    {"user_timeout", &TcpSettings::user_timeout},
};

const Named<std::uint64_t TcpCounters::*> kCounters[] = {
    {"malformed", &TcpCounters::malformed},
    {"merged", &TcpCounters::merged},
    {"unmatched", &TcpCounters::unmatched},
    {"out_of_window", &TcpCounters::out_of_window},
    {"old_timestamps", &TcpCounters::old_timestamps},
    {"bad_acks", &TcpCounters::bad_acks},
    {"challenges", &TcpCounters::challenges},
    {"resets_in", &TcpCounters::resets_in},
    {"resets_out", &TcpCounters::resets_out},
    {"retransmissions", &TcpCounters::retransmissions},
    {"timeouts", &TcpCounters::timeouts},
    {"tail_probes", &TcpCounters::tail_probes},
    {"recoveries", &TcpCounters::recoveries},
    {"undone", &TcpCounters::undone},
    {"out_of_order", &TcpCounters::out_of_order},
    {"duplicates", &TcpCounters::duplicates},
    {"syns", &TcpCounters::syns},
    {"syns_dropped", &TcpCounters::syns_dropped},
    {"cookies_out", &TcpCounters::cookies_out},
    {"cookies_in", &TcpCounters::cookies_in},
    {"cookies_bad", &TcpCounters::cookies_bad},
};

std::string write_result(std::int64_t result)
{
    for (const Named<int> &error : kErrors)
        if (result == -error.value)
            return std::string(error.name);
    return std::to_string(result);
}

bool set_field(TcpSettings &settings, bool TcpSettings::*field, std::string_view value)
{
    settings.*field = value == "on";
    return value == "on" || value == "off";
}

bool set_field(TcpSettings &settings, Nanos TcpSettings::*field, std::string_view value)
{
    const std::optional<Nanos> time = parse_seconds(value);
    settings.*field = time.value_or(0);
    return time.has_value();
}

template <typename Number> bool set_field(TcpSettings &settings, Number TcpSettings::*field, std::string_view value)
{
    const std::optional<std::int64_t> number = parse_number(value);
    settings.*field = static_cast<Number>(number.value_or(0));
    return number.has_value();
}

bool compare(std::string_view how, std::int64_t is, std::int64_t wanted)
{
    if (how == "<")
        return is < wanted;
    if (how == ">")
        return is > wanted;
    return is == wanted;
}

} // namespace

// ---- settings -------------------------------------------------------------------------------------------------------

std::string Runner::set_one(std::string_view name, std::string_view value)
{
    std::string wrong = "'" + std::string(name) + " " + std::string(value) + "' is no setting";
    const Field *const field = find(kFields, name);
    if (field != nullptr)
        return std::visit([&](auto member) { return set_field(settings_, member, value); }, *field) ? "" : wrong;
    if (name == "congestion") {
        settings_.congestion = value == "reno" ? CongestionAlgorithm::kReno : CongestionAlgorithm::kCubic;
        return value == "reno" || value == "cubic" ? "" : wrong;
    }
    const std::optional<std::int64_t> number = parse_number(value);
    if (!number)
        return wrong;
    if (name == "seq") { // of the script's SYN: numbers are told relative to it
        peer(current_).isn = static_cast<Seq>(*number);
        return "";
    }
    if (name == "rate") {
        settings_.rate = static_cast<std::uint64_t>(*number);
        return "";
    }
    if (tcp_ != nullptr)
        return "'" + std::string(name) + "' has to stand before the first line that does something";
    if (name == "mtu")
        mtu_ = static_cast<std::uint16_t>(*number);
    else if (name == "ip" && (*number == 4 || *number == 6))
        ipv6_ = *number == 6;
    else if (name == "connections")
        limits_.connections = static_cast<std::uint32_t>(*number);
    else
        return wrong;
    return "";
}

std::string Runner::set(Words &words)
{
    while (!words.empty()) {
        const std::string_view name = words.next();
        std::string error = set_one(name, words.next());
        if (!error.empty())
            return error;
    }
    if (tcp_ != nullptr && tcp_->find(peer(current_).id) != nullptr) {
        (void)tcp_->settle(now_, peer(current_).id, settings_);
        collect();
    }
    return "";
}

// ---- calls ----------------------------------------------------------------------------------------------------------

// `= RESULT` behind a call, a number or an errno's name; without it the result has to be the usual one.
std::string Runner::outcome(Words &words, std::int64_t came, std::int64_t usual) const
{
    std::int64_t wanted = usual;
    if (words.take("=")) {
        const std::string_view word = words.next();
        const int *const error = find(kErrors, word);
        const std::optional<std::int64_t> number = parse_number(word);
        if (error == nullptr && !number)
            return "'" + std::string(word) + "' is no result";
        wanted = error != nullptr ? -*error : *number;
    }
    return came == wanted ? "" : "expected " + write_result(wanted) + ", came " + write_result(came);
}

std::int64_t Runner::connect()
{
    Peer &to = peer(current_);
    const Flow way = flow();
    const NextHopIndex next_hop = tcp_->next_hops().use(way.remote.address);
    const int result = tcp_->connect(now_, way, next_hop, settings_, current_, to.id);
    if (result != 0)
        tcp_->next_hops().release(next_hop);
    else
        to.sent = to.received = to.events = 0;
    return result;
}

std::int64_t Runner::accept()
{
    ConnectionId id;
    if (!tcp_->accept(listener_, id))
        return -EAGAIN;
    const Connection *const c = tcp_->find(id);
    if (c == nullptr || c->flow.remote.port != kFirstPort + current_)
        return -EPROTO; // another peer's
    Peer &from = peer(current_);
    from.id = id;
    from.sent = from.received = from.events = 0;
    tcp_->set_user(id, current_);
    return 0;
}

std::int64_t Runner::send(std::size_t length)
{
    Peer &to = peer(current_);
    std::vector<std::uint8_t> data(length);
    sim::fill(2 * std::uint64_t{current_}, to.sent, data);
    const std::int64_t taken = tcp_->send(now_, to.id, data);
    to.sent += taken > 0 ? static_cast<std::uint64_t>(taken) : 0;
    return taken;
}

std::int64_t Runner::receive(std::size_t length, bool peek, bool &good)
{
    Peer &from = peer(current_);
    std::vector<std::uint8_t> data(length);
    const std::int64_t read = tcp_->receive(now_, from.id, data, peek);
    if (read <= 0)
        return read;
    data.resize(static_cast<std::size_t>(read));
    good = sim::check(2 * std::uint64_t{current_} + 1, from.received, data);
    from.received += peek ? 0 : static_cast<std::uint64_t>(read);
    return read;
}

std::string Runner::call(std::string_view name, Words &words, bool &known)
{
    known = true;
    Peer &to = peer(current_);
    if (name == "check")
        return check(words);
    if (name == "event")
        return events(words);
    if (name == "icmp")
        return icmp(words);
    if (name == "connect")
        return outcome(words, connect(), 0);
    if (name == "accept")
        return outcome(words, accept(), 0);
    if (name == "shutdown")
        return outcome(words, tcp_->shutdown(now_, to.id), 0);
    if (name == "error")
        return outcome(words, -std::int64_t{tcp_->take_error(to.id)}, 0);
    if (name == "close" || name == "abort") {
        name == "close" ? tcp_->close(now_, to.id) : tcp_->abort(now_, to.id);
        return "";
    }
    if (name == "unlisten") {
        tcp_->unlisten(now_, listener_);
        return "";
    }
    known = name == "listen" || name == "backlog" || name == "send" || name == "receive" || name == "peek";
    const std::optional<std::int64_t> number = parse_number(words.next());
    if (!known || !number || *number < 0)
        return "a number has to follow";
    if (name == "backlog") {
        tcp_->set_backlog(listener_, static_cast<std::uint32_t>(*number));
        return "";
    }
    if (name == "listen")
        return outcome(words, tcp_->listen(flow().local, static_cast<std::uint32_t>(*number), settings_, 0, listener_),
                       0);
    if (name == "send")
        return outcome(words, send(static_cast<std::size_t>(*number)), *number);
    bool good = true;
    const std::int64_t read = receive(static_cast<std::size_t>(*number), name == "peek", good);
    return good ? outcome(words, read, *number) : "other data than came in segments";
}

std::string Runner::icmp(Words &words)
{
    const std::string_view what = words.next();
    const std::string_view value = words.next();
    const std::optional<std::int64_t> mtu = parse_number(value);
    const int *const error = find(kErrors, value);
    const std::optional<std::int64_t> seq = words.take("seq") ? parse_number(words.next()) : std::nullopt;
    if (!seq)
        return "icmp needs 'seq NUMBER', of the segment quoted";
    const Seq quoted = peer(current_).iss + static_cast<Seq>(*seq);
    if (what == "too_big" && mtu)
        tcp_->too_big(now_, flow(), quoted, static_cast<std::uint16_t>(*mtu));
    else if (what == "unreachable" && error != nullptr)
        tcp_->unreachable(now_, flow(), quoted, *error, words.take("hard"));
    else
        return "icmp is 'too_big MTU' or 'unreachable ERRNO'";
    return "";
}

// ---- questions ------------------------------------------------------------------------------------------------------

// Those told since the last such line, no more and no less.
std::string Runner::events(Words &words)
{
    std::uint32_t wanted = 0;
    while (!words.empty()) {
        const std::string_view word = words.next();
        const std::uint32_t *const event = find(kEvents, word);
        if (event == nullptr && word != "none")
            return "'" + std::string(word) + "' is no event";
        wanted |= event != nullptr ? *event : 0;
    }
    const std::uint32_t came = std::exchange(peer(current_).events, 0);
    if (came == wanted)
        return "";
    const auto names = [](std::uint32_t what) {
        std::string all;
        for (const Named<std::uint32_t> &event : kEvents)
            if ((what & event.value) != 0)
                all += " " + std::string(event.name);
        return all.empty() ? " none" : all;
    };
    return "expected" + names(wanted) + ", came" + names(came);
}

std::string Runner::check_state(std::string_view state) const
{
    const auto at = peers_.find(current_);
    const Connection *const c = at != peers_.end() ? tcp_->find(at->second.id) : nullptr;
    std::string_view came = "none";
    if (c != nullptr)
        for (const Named<TcpState> &entry : kStates)
            if (entry.value == c->state)
                came = entry.name;
    return came == state ? "" : "expected state " + std::string(state) + ", came " + std::string(came);
}

std::optional<std::int64_t> Runner::value_of(std::string_view name, Words &words) const
{
    if (name == "connections")
        return tcp_->open_connections();
    if (name == "counter") {
        const auto *const counter = find(kCounters, words.next());
        return counter != nullptr ? std::optional(static_cast<std::int64_t>(tcp_->counters().*(*counter)))
                                  : std::nullopt;
    }
    const auto at = peers_.find(current_);
    const Connection *const c = at != peers_.end() ? tcp_->find(at->second.id) : nullptr;
    if (c == nullptr)
        return std::nullopt;
    const std::int64_t mss = c->mss;
    const Named<std::int64_t> values[] = {
        {"cwnd", c->congestion.window() / mss},
        {"cwnd_bytes", c->congestion.window()},
        {"ssthresh", c->congestion.threshold() / mss},
        {"ssthresh_bytes", c->congestion.threshold()},
        {"srtt", static_cast<std::int64_t>(c->rtt.smoothed() / kMillisecond)},
        {"rto", static_cast<std::int64_t>(c->rtt.rto() / kMillisecond)},
        {"readable", static_cast<std::int64_t>(tcp_->readable(at->second.id))},
        {"room", static_cast<std::int64_t>(tcp_->room(at->second.id))},
        {"unsent", c->unsent()},
        {"unacknowledged", c->nxt - c->una},
        {"mss", mss},
        {"window", c->window},
        {"send_shift", c->agreed.send_shift},
        {"receive_shift", c->agreed.receive_shift},
        {"ecn", c->agreed.ecn ? 1 : 0},
    };
    const std::int64_t *const value = find(values, name);
    return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::string Runner::check_one(Words &words) const
{
    std::string name(words.next());
    if (name == "state")
        return check_state(words.next());
    const std::string_view counter = name == "counter" ? words.peek() : "";
    const std::optional<std::int64_t> is = value_of(name, words);
    if (!counter.empty())
        name.append(" ").append(counter);
    if (!is)
        return "'" + name + "' has no value: no such thing, or no connection";
    const std::string_view how = words.peek() == "<" || words.peek() == ">" ? words.next() : "";
    const std::string_view word = words.next();
    const std::optional<std::int64_t> wanted = parse_number(word);
    if (!wanted)
        return "'" + std::string(word) + "' is no number";
    if (compare(how, *is, *wanted))
        return "";
    return "expected " + name + " " + std::string(how) + std::to_string(*wanted) + ", came " + std::to_string(*is);
}

std::string Runner::check(Words &words)
{
    std::string error;
    while (error.empty() && !words.empty())
        error = check_one(words);
    return error;
}

} // namespace vma::inet::script
