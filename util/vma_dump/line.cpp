// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/line.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

namespace vma_dump {

namespace {

using vma::stats::CaptureRecord;

constexpr std::uint64_t kSecond = 1000000000;

bool is_v4(const std::uint8_t (&address)[16])
{
    in6_addr wide = {};
    memcpy(&wide, address, sizeof wide);
    return IN6_IS_ADDR_V4MAPPED(&wide);
}

std::string end_of(const std::uint8_t (&address)[16], std::uint16_t port)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (is_v4(address))
        inet_ntop(AF_INET, address + 12, text, sizeof text);
    else
        inet_ntop(AF_INET6, address, text, sizeof text);
    return std::string(text) + "." + std::to_string(port);
}

} // namespace

void add_line(std::string &out, const CaptureRecord &head, const std::string &device, const std::string &program,
              pid_t pid)
{
    const auto seconds = static_cast<time_t>(head.time_ns / kSecond);
    tm clock = {};
    ::localtime_r(&seconds, &clock);
    const bool sends = (head.flags & vma::stats::kCaptureOut) != 0;
    const bool udp = (head.flags & vma::stats::kCaptureUdp) != 0;
    const std::string local = end_of(head.local, head.local_port);
    const std::string peer = end_of(head.peer, head.peer_port);
    char text[400];
    snprintf(text, sizeof text, "%02d:%02d:%02d.%09llu %s %-3s IP%s %s > %s: ", clock.tm_hour, clock.tm_min,
             clock.tm_sec, static_cast<unsigned long long>(head.time_ns % kSecond), device.c_str(),
             sends ? "Out" : "In", is_v4(head.peer) ? "" : "6", (sends ? local : peer).c_str(),
             (sends ? peer : local).c_str());
    out += text;
    if (udp)
        snprintf(text, sizeof text, "UDP, length %u", head.length);
    else
        snprintf(text, sizeof text, "TCP, seq %u:%u, ack %u, length %u", static_cast<std::uint32_t>(head.before) + 1,
                 static_cast<std::uint32_t>(head.before) + 1 + head.length, static_cast<std::uint32_t>(head.other) + 1,
                 head.length);
    out += text;
    snprintf(text, sizeof text, " (%s/%d fd %d)\n", program.c_str(), pid, head.fd);
    out += text;
}

} // namespace vma_dump
