// SPDX-License-Identifier: BSD-2-Clause
#include "prober.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "inet/tcp/segment.hpp"
#include "inet/wire/ip_header.hpp"
#include "log.hpp"

namespace vma::guard {

namespace {

constexpr unsigned kSendsATurn = 256;
constexpr unsigned kReadsATurn = 256;
constexpr Nanos kFull = inet::kMillisecond; // until the network takes more
constexpr int kSendBuffer = 64 << 20;       // bytes; the kernel keeps 208 KiB of them for each such host
constexpr std::size_t kIp = 20;
constexpr std::size_t kTcp = 20;
constexpr std::uint32_t kLongestAnswer = 120; // bytes of a packet: a segment without data, with all options

inet::IpAddress address_of(std::uint32_t wire)
{
    std::uint8_t bytes[4];
    std::memcpy(bytes, &wire, sizeof bytes);
    return inet::IpAddress::v4(bytes);
}

std::uint32_t wire32(const std::uint8_t *at)
{
    std::uint32_t field;
    std::memcpy(&field, at, sizeof field);
    return field;
}

std::uint16_t wire16(const std::uint8_t *at)
{
    std::uint16_t field;
    std::memcpy(&field, at, sizeof field);
    return field;
}

void write_segment(const Pair4 &pair, inet::Segment &segment, Segment4 &out)
{
    inet::IpOut ip;
    ip.source = address_of(pair.local);
    ip.target = address_of(pair.remote);
    ip.protocol = inet::Protocol::kTcp;
    segment.source_port = ntohs(pair.local_port);
    segment.target_port = ntohs(pair.remote_port);
    std::uint8_t *const tcp = out.data() + kIp;
    const std::size_t length = inet::write_tcp_header(tcp, segment);
    inet::seal_segment(tcp, inet::sum_tcp_header(tcp, length, 0, ip.source, ip.target));
    inet::write_ip_header(out.data(), ip, length);
}

} // namespace

std::string text_of(const Pair4 &pair)
{
    char local[INET_ADDRSTRLEN] = "?";
    char remote[INET_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET, &pair.local, local, sizeof local);
    inet_ntop(AF_INET, &pair.remote, remote, sizeof remote);
    return std::string(local) + ":" + std::to_string(ntohs(pair.local_port)) + " to " + remote + ":" +
           std::to_string(ntohs(pair.remote_port));
}

void write_syn(const Pair4 &pair, Segment4 &out)
{
    inet::Segment segment;
    segment.flags = inet::kSyn;
    segment.seq = 1;
    write_segment(pair, segment, out);
}

void write_reset(const Pair4 &pair, std::uint32_t number, Segment4 &out)
{
    inet::Segment segment;
    segment.flags = inet::kRst;
    segment.seq = number;
    write_segment(pair, segment, out);
}

bool parse_answer(std::span<const std::uint8_t> packet, Answer &answer)
{
    if (packet.size() < kIp || packet[0] >> 4 != 4 || packet[9] != IPPROTO_TCP)
        return false;
    const std::size_t header = std::size_t{4} * (packet[0] & 0xf);
    if (header < kIp || packet.size() < header + kTcp)
        return false;
    const std::uint8_t *const tcp = packet.data() + header;
    const std::uint8_t flags = tcp[13];
    answer.reset = (flags & inet::kRst) != 0;
    if ((flags & inet::kSyn) != 0 || (!answer.reset && (flags & inet::kAck) == 0))
        return false;
    answer.pair = {wire32(&packet[16]), wire32(&packet[12]), wire16(tcp + 2), wire16(tcp)};
    answer.ack = ntohl(wire32(tcp + 8));
    return true;
}

void Prober::add(const Pair4 &pair, Nanos now)
{
    if (!raw_ && !open())
        return;
    const auto [probe, fresh] = probes_.try_emplace(pair);
    if (!fresh)
        return;
    probe->second.due = now;
    due_.emplace(now, pair);
}

// It gets a copy of all TCP segments that come to this host, so it is only there while answers are waited for.
bool Prober::open()
{
    core::UniqueFd made(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    const int yes = 1;
    if (!made || setsockopt(made.get(), IPPROTO_IP, IP_HDRINCL, &yes, sizeof yes) != 0) {
        if (!std::exchange(told_, true))
            say(Level::kError, "no raw socket, so peers of dead processes are not told: %s", std::strerror(errno));
        return false;
    }
    sock_filter longer[] = {BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 2),
                            BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, kLongestAnswer, 0, 1), BPF_STMT(BPF_RET | BPF_K, 0),
                            BPF_STMT(BPF_RET | BPF_K, kLongestAnswer)};
    const sock_fprog filter = {std::size(longer), longer};
    // Without it there is more to read, and that is all.
    static_cast<void>(setsockopt(made.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
    // What waits for the link address of a host that is gone must not keep the others from being sent.
    static_cast<void>(setsockopt(made.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer));
    raw_ = std::move(made);
    ++opened_;
    return true;
}

// False: the network takes no more now. What fails in another way has no route any more, or a firewall.
bool Prober::send(const Pair4 &pair, const Segment4 &segment) const
{
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_addr.s_addr = pair.remote;
    const ssize_t sent = sendto(raw_.get(), segment.data(), segment.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr *>(&target), sizeof target);
    return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

void Prober::wait_until(Probes::iterator probe, Nanos when)
{
    due_.erase({probe->second.due, probe->first});
    probe->second.due = when;
    due_.emplace(when, probe->first);
}

void Prober::drop(Probes::iterator probe)
{
    due_.erase({probe->second.due, probe->first});
    probes_.erase(probe);
    if (probes_.empty())
        raw_.reset();
}

void Prober::on_readable(Nanos)
{
    std::uint8_t packet[kLongestAnswer];
    for (unsigned i = 0; i < kReadsATurn && raw_; ++i) {
        const ssize_t length = recv(raw_.get(), packet, sizeof packet, MSG_DONTWAIT);
        if (length < 0)
            return;
        Answer answer;
        if (parse_answer({packet, static_cast<std::size_t>(length)}, answer))
            take(answer);
    }
}

void Prober::take(const Answer &answer)
{
    const auto probe = probes_.find(answer.pair);
    if (probe == probes_.end() || probe->second.tries == 0)
        return;
    if (!answer.reset && settings_.force_reset) {
        Segment4 reset;
        write_reset(answer.pair, answer.ack, reset);
        if (!send(answer.pair, reset))
            return; // the next SYN brings another answer
    }
    say(Level::kDebug, "%s: %s", text_of(answer.pair).c_str(),
        answer.reset ? "the peer knows of no connection" : "the peer has answered");
    drop(probe);
}

void Prober::on_time(Nanos now)
{
    for (unsigned i = 0; i < kSendsATurn && due() <= now; ++i) {
        const auto probe = probes_.find(due_.begin()->second);
        if (probe->second.tries == kTries) {
            say(Level::kWarning, "%s: the peer has not answered %u times", text_of(probe->first).c_str(), kTries);
            drop(probe);
            continue;
        }
        Segment4 syn;
        write_syn(probe->first, syn);
        if (!send(probe->first, syn)) {
            wait_until(probe, now + kFull);
            return;
        }
        ++probe->second.tries;
        wait_until(probe, now + settings_.interval);
    }
}

} // namespace vma::guard
