// SPDX-License-Identifier: BSD-2-Clause
// The handshake: connections from both sides, simultaneous open (RFC 9293, 3.5), what the SYNs agree on, initial
// sequence numbers (RFC 6528), and SYN cookies when a listener is flooded (RFC 4987, 3.6).
#include <errno.h>

#include <algorithm>

#include "prov/vma/src/inet/tcp/tcp.hpp"
#include "prov/vma/src/inet/wire/ip_header.hpp"

namespace vma::inet {

namespace {

constexpr std::uint16_t kDefaultMss4 = 536; // RFC 9293, 3.7.1
constexpr std::uint16_t kDefaultMss6 = 1220;
constexpr std::uint16_t kLeastMss = 88;  // a smaller offer is an attack (CVE-2019-11479's remedy: 48 by default)
constexpr std::uint16_t kLeastMtu4 = 68; // RFC 791, 3.2; a path that claims less is wrong
constexpr std::uint16_t kLeastMtu6 = 1280;
constexpr Nanos kCookiePeriod = 64 * kSecond;
constexpr std::uint16_t kCookieMss[] = {536, 1220, 1300, 1360, 1440, 1460, 4312, 8960}; // three bits of a cookie
constexpr unsigned kCookieMssBits = 3;
constexpr unsigned kCookieShift = 24; // of the period's low bits
constexpr unsigned kStampBits = 6;    // of a cookie's time stamp: window scale, SACK, ECN
constexpr std::uint32_t kStampNoScale = 15;

std::uint16_t mss_for(const IpAddress &remote, std::uint16_t path_mtu, const TcpSettings &settings)
{
    const std::uint16_t mtu = std::max(path_mtu, remote.is_v4() ? kLeastMtu4 : kLeastMtu6);
    const auto mss = static_cast<std::uint16_t>(mtu - ip_header_size(remote) - kTcpHeader);
    return settings.most_mss != 0 ? std::min(mss, std::max(kLeastMss, settings.most_mss)) : mss;
}

} // namespace

Seq Tcp::initial_sequence(const Flow &flow, Nanos now) const
{
    constexpr Nanos kTick = 4 * kMicrosecond;
    return static_cast<Seq>(hash_flow<SecretHash>(secret_, flow, 1) + now / kTick);
}

std::uint8_t Tcp::shift_for(const TcpSettings &settings) const
{
    std::uint8_t shift = 0;
    while (shift < kLargestShift && (settings.receive_buffer >> shift) > 0xffff)
        ++shift;
    return shift;
}

std::uint16_t Tcp::offered_mss(const Connection &c) const
{
    return mss_for(c.flow.remote.address, next_hops_[c.path].mtu, c.settings);
}

void Tcp::set_mss(Connection &c)
{
    const std::uint16_t mss = std::min(offered_mss(c), std::max(kLeastMss, c.agreed.peer_mss));
    c.mss = static_cast<std::uint16_t>(mss - (c.agreed.timestamps ? kTimestampsSize : 0));
    c.congestion.set_mss(c.mss);
}

void Tcp::agree(Connection &c, const TcpOptions &options)
{
    c.agreed.timestamps = c.settings.timestamps && options.has_timestamps;
    c.agreed.sack = c.settings.sack && options.sack_permitted;
    c.agreed.scaling = c.settings.window_scaling && options.has_window_scale;
    c.agreed.send_shift = c.agreed.scaling ? options.window_scale : 0;
    c.agreed.receive_shift = c.agreed.scaling ? shift_for(c.settings) : 0;
    c.agreed.peer_mss = options.mss != 0 ? options.mss : c.flow.remote.address.is_v4() ? kDefaultMss4 : kDefaultMss6;
    set_mss(c);
    c.receive.peer_segment = std::min(c.agreed.peer_mss, c.mss);
    c.congestion.start(c.settings.congestion, c.mss);
}

// The peer's SYN, in SYN-SENT or of a new connection.
void Tcp::take_syn(Connection &c, const Segment &segment, Nanos now)
{
    agree(c, segment.options);
    c.receive.irs = segment.seq;
    c.receive.next = segment.seq + 1;
    c.receive.acked = c.receive.next;
    c.receive.advertised = c.receive.next;
    if (c.agreed.timestamps) {
        c.receive.stamp_recent = segment.options.timestamp;
        c.receive.stamp_recent_at = now;
    }
    c.window = segment.window; // never scaled in a SYN: RFC 7323, 2.2
    c.most_window = c.window;
    c.window_seq = segment.seq;
    c.window_ack = segment.ack;
    c.last_heard = now;
}

int Tcp::connect(Nanos now, const Flow &flow, NextHopIndex path, const TcpSettings &settings, std::uint64_t user,
                 ConnectionId &id)
{
    expire_time_waits(now);
    std::uint32_t value = 0;
    std::uint32_t hash = 0;
    Connection *c = find_flow(flow, value, hash);
    Seq iss = initial_sequence(flow, now);
    if (c == nullptr && value != FlowTable::kNone) { // TIME-WAIT: RFC 6191 lets who has time stamps go on
        TimeWait &old = time_waits_[value & ~kTimeWaitBit];
        if (!old.timestamps || !settings.timestamps)
            return -EADDRNOTAVAIL;
        iss = later(iss, old.nxt + 0x10000);
        old.dead = true;
        flows_.erase(hash, value);
    } else if (c != nullptr) {
        return -EADDRNOTAVAIL;
    }
    c = open_slot(flow, hash, settings);
    if (c == nullptr)
        return -ENOBUFS;
    c->path = path;
    c->user = user;
    set_state(*c, TcpState::kSynSent);
    c->stamp_offset = static_cast<std::uint32_t>(hash_flow<SecretHash>(secret_, flow, 2));
    c->iss = c->una = iss;
    c->nxt = c->data_from = iss + 1;
    c->syn_due = true;
    c->last_progress = c->last_heard = now;
    id = id_of(*c);
    schedule(*c);
    return 0;
}

// A second's worth of SYNs at once, then one when another's time is over.
bool Tcp::admits_syn(Listener &l, Nanos now)
{
    if (l.settings.syn_rate == 0)
        return true;
    const Nanos each = kSecond / l.settings.syn_rate;
    const Nanos until = std::max(l.syns_until, now) + each;
    if (until - now > kSecond)
        return false;
    l.syns_until = until;
    return true;
}

void Tcp::passive_open(Nanos now, const Packet &packet, const Segment &segment, const Flow &flow, std::uint32_t hash)
{
    Listener *const l = find_listener(flow.local);
    if (segment.has(kRst))
        return;
    if (l != nullptr && segment.has(kAck) && !segment.has(kSyn) && now < cookies_until_) {
        Connection *const c = take_cookie(packet, segment, flow, hash, now);
        if (c != nullptr)
            process(*c, segment, now, packet.traffic_class & kEcnMask);
        return; // not the first segment of one, perhaps: that comes again, and a reset would spoil it
    }
    if (l == nullptr || segment.has(kAck) || !segment.has(kSyn)) {
        refuse(packet, segment, flow);
        return;
    }
    ++counters_.syns;
    if (l->waiting >= l->backlog || !admits_syn(*l, now)) { // who is in it is not being served: the peer tries again
        ++counters_.syns_dropped;
        return;
    }
    NextHopIndex path = kNoNextHop;
    Connection *c = nullptr;
    if (l->half_open < l->backlog && free_connections_ != 0)
        path = next_hops_.use(flow.remote.address);
    if (path != kNoNextHop)
        c = open_slot(flow, hash, l->settings);
    if (c == nullptr) {
        if (path != kNoNextHop)
            next_hops_.release(path);
        send_cookie(packet, segment, flow, *l, now);
        return;
    }
    next_hops_.learn_neighbour(path, packet);
    c->path = path;
    c->listener = static_cast<std::uint32_t>(l - listeners_.get());
    ++l->half_open;
    c->stamp_offset = static_cast<std::uint32_t>(hash_flow<SecretHash>(secret_, flow, 2));
    c->iss = c->una = initial_sequence(flow, now);
    c->nxt = c->data_from = c->iss + 1;
    take_syn(*c, segment, now);
    c->agreed.ecn = segment.has(kEce) && segment.has(kCwr); // RFC 3168, 6.1.1
    set_state(*c, TcpState::kSynReceived);
    c->syn_due = true;
    c->last_progress = now;
    schedule(*c);
}

// RFC 9293, 3.10.7.3.
void Tcp::syn_sent(Connection &c, const Segment &segment, Nanos now)
{
    const bool acks = segment.has(kAck);
    if (acks && segment.ack != c.iss + 1) {
        if (!segment.has(kRst)) {
            reply(reply_of(c, kRst, segment.ack));
            ++counters_.resets_out;
        }
        return;
    }
    if (segment.has(kRst)) {
        if (acks) {
            ++counters_.resets_in;
            fail(c, ECONNREFUSED);
        }
        return;
    }
    if (!segment.has(kSyn))
        return;
    take_syn(c, segment, now);
    c.receive.advertised =
        c.receive.next + std::min<std::uint32_t>(c.settings.receive_buffer, 0xffff); // as our SYN said
    c.syn_due = false;
    if (acks) {
        c.agreed.ecn = c.settings.ecn && segment.has(kEce) && !segment.has(kCwr);
        if (c.retries == 0)
            c.rtt.sample(now - c.last_sent, now);
        c.una = segment.ack;
        set_state(c, TcpState::kEstablished);
        c.ack_due = true;
        established(c, now);
        take_data(c, segment, now, kEcnNotCapable); // data may come with it
    } else {                                        // simultaneous open
        c.agreed.ecn = c.settings.ecn && segment.has(kEce) && segment.has(kCwr);
        set_state(c, TcpState::kSynReceived);
        c.syn_due = true;
    }
    schedule(c);
}

// SYN-RECEIVED gets its acknowledgement. False: not this one.
bool Tcp::complete_open(Connection &c, const Segment &segment, Nanos now)
{
    if (segment.ack != c.iss + 1) {
        if (c.listener != kNobody && now < cookies_until_)
            return false; // it may answer a cookie: the segment that proves it comes again
        reply(reply_of(c, kRst, segment.ack));
        ++counters_.resets_out;
        return false;
    }
    if (c.listener != kNobody && listeners_[c.listener].waiting >= listeners_[c.listener].backlog)
        return false; // as the kernel does: our SYN-ACK goes out again, and the peer's answer finds room perhaps
    c.syn_due = false;
    if (c.retries == 0)
        c.rtt.sample(now - c.last_sent, now);
    c.una = segment.ack;
    c.window = std::uint32_t{segment.window} << c.agreed.send_shift;
    c.most_window = std::max(c.most_window, c.window);
    c.window_seq = segment.seq;
    c.window_ack = segment.ack;
    set_state(c, c.fin_wanted ? TcpState::kFinWait1 : TcpState::kEstablished);
    established(c, now);
    if (c.listener == kNobody)
        return true;
    Listener &l = listeners_[c.listener];
    --l.half_open;
    enqueue_accept(l, c);
    return true;
}

void Tcp::established(Connection &c, Nanos now)
{
    constexpr std::uint32_t kQuickAtStart = 16; // segments: the peer is in slow start and needs its clock
    if (c.rtt.backoff() != 0)
        c.rtt.syn_was_lost();
    if (c.retries > 1) // RFC 6928, 2: one lost SYN may be chance, two say that there is no room
        c.congestion.set_window(c.mss);
    c.retries = 0;
    c.rtt.forget_backoff();
    c.receive.quick = kQuickAtStart;
    c.last_progress = now;
    c.recovery.rack.highest = c.una;
    c.recovery.recover = c.iss; // RFC 6582, 3.2
    c.alarm = Alarm::kNone;     // the SYN's
    set(c, TcpTimer::kRetransmit, kNever);
    if (c.settings.keepalive)
        set(c, TcpTimer::kKeepalive, now + c.settings.keepalive_idle);
    if (c.listener == kNobody)
        tell(c, kConnected | kWritable);
}

// ---- SYN cookies ----------------------------------------------------------------------------------------------------

// 24 bits that only we can make for this flow, this peer's number and this minute.
std::uint32_t Tcp::cookie(const Flow &flow, Seq peer, std::uint64_t minute) const
{
    const std::uint64_t with = hash_flow<SecretHash>(secret_, flow, 3);
    SecretHash hash({secret_[0] ^ with, secret_[1]});
    hash.add(std::uint64_t{peer} << 32 | (minute & 0xffffffff));
    return static_cast<std::uint32_t>(hash.finish()) & 0xffffff;
}

// Five bits of time, three of MSS, twenty-four of proof; the other options ride in our time stamp, if the peer has
// them.
void Tcp::send_cookie(const Packet &packet, const Segment &segment, const Flow &flow, const Listener &l, Nanos now)
{
    const std::uint64_t minute = now / kCookiePeriod;
    const std::uint16_t wants = segment.options.mss != 0 ? segment.options.mss : kDefaultMss4;
    std::uint32_t size = 0;
    while (size + 1 < std::size(kCookieMss) && kCookieMss[size + 1] <= wants)
        ++size;
    Reply r;
    r.flow = flow;
    r.segment.flags = kSyn | kAck;
    r.segment.seq = static_cast<Seq>((minute & 0x1f) << (kCookieShift + kCookieMssBits) | size << kCookieShift) |
                    cookie(flow, segment.seq, minute);
    r.segment.ack = segment.seq + 1;
    r.segment.window = 0xffff;
    TcpOptions &options = r.segment.options;
    const NextHopIndex path = next_hops_.find(flow.remote.address);
    options.mss =
        mss_for(flow.remote.address, path != kNoNextHop ? next_hops_[path].mtu : next_hops_.link_mtu(), l.settings);
    if (segment.options.has_timestamps && l.settings.timestamps) {
        const bool scales = segment.options.has_window_scale && l.settings.window_scaling;
        const bool sacks = segment.options.sack_permitted && l.settings.sack;
        const bool ecn = segment.has(kEce) && segment.has(kCwr);
        const std::uint32_t bits =
            (scales ? segment.options.window_scale : kStampNoScale) | (sacks ? 0x10U : 0) | (ecn ? 0x20U : 0);
        const auto offset = static_cast<std::uint32_t>(hash_flow<SecretHash>(secret_, flow, 2));
        const auto clock = static_cast<std::uint32_t>(now / kMillisecond) + offset;
        options.has_timestamps = true;
        options.timestamp = ((clock >> kStampBits) << kStampBits) | bits;
        if (distance(clock, options.timestamp) > 0) // never from the future
            options.timestamp -= 1U << kStampBits;
        options.timestamp_echo = segment.options.timestamp;
        options.has_window_scale = scales;
        options.window_scale = shift_for(l.settings);
        options.sack_permitted = sacks;
        if (ecn)
            r.segment.flags |= kEce;
    }
    r.mac = packet.source_mac;
    r.vlan = packet.vlan;
    if (!reply(r))
        return;
    ++counters_.cookies_out;
    cookies_until_ = now + 2 * kCookiePeriod;
}

bool Tcp::is_cookie(const Segment &segment, const Flow &flow, Nanos now) const
{
    if (now >= cookies_until_ || !segment.has(kAck) || segment.has(kSyn))
        return false;
    const Seq ours = segment.ack - 1;
    const std::uint64_t minute = now / kCookiePeriod;
    const std::uint64_t age = (minute - (ours >> (kCookieShift + kCookieMssBits))) & 0x1f;
    return age <= 1 && cookie(flow, segment.seq - 1, minute - age) == (ours & 0xffffff);
}

Connection *Tcp::take_cookie(const Packet &packet, const Segment &segment, const Flow &flow, std::uint32_t hash,
                             Nanos now)
{
    const Seq ours = segment.ack - 1;
    if (!is_cookie(segment, flow, now)) {
        ++counters_.cookies_bad;
        return nullptr;
    }
    Listener &l = *find_listener(flow.local);
    if (l.waiting >= l.backlog)
        return nullptr;
    const NextHopIndex path = next_hops_.use(flow.remote.address);
    if (path == kNoNextHop)
        return nullptr;
    Connection *const c = open_slot(flow, hash, l.settings);
    if (c == nullptr) {
        next_hops_.release(path);
        return nullptr;
    }
    next_hops_.learn_neighbour(path, packet);
    ++counters_.cookies_in;
    c->path = path;
    c->listener = static_cast<std::uint32_t>(&l - listeners_.get());
    ++l.half_open;
    c->stamp_offset = static_cast<std::uint32_t>(hash_flow<SecretHash>(secret_, flow, 2));
    c->iss = c->una = ours;
    c->nxt = c->data_from = ours + 1;
    Segment syn; // as it must have been
    syn.seq = segment.seq - 1;
    syn.window = segment.window;
    syn.options.mss = kCookieMss[(ours >> kCookieShift) & ((1U << kCookieMssBits) - 1)];
    if (segment.options.has_timestamps && c->settings.timestamps) {
        const std::uint32_t bits = segment.options.timestamp_echo & ((1U << kStampBits) - 1);
        syn.options.has_timestamps = true;
        syn.options.timestamp = segment.options.timestamp;
        syn.options.has_window_scale = (bits & 0xf) != kStampNoScale;
        syn.options.window_scale = static_cast<std::uint8_t>(bits & 0xf);
        syn.options.sack_permitted = (bits & 0x10) != 0;
        c->agreed.ecn = (bits & 0x20) != 0;
    }
    take_syn(*c, syn, now);
    c->receive.advertised = c->receive.next + 0xffff; // what the SYN-ACK said
    set_state(*c, TcpState::kSynReceived);
    c->retries = 1; // its round trip was not measured
    c->last_progress = now;
    return c;
}

} // namespace vma::inet
