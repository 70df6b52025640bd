// SPDX-License-Identifier: BSD-2-Clause
// Messages between the comparer and its actors, and how they read. See protocol.hpp.
#include "fabtests/sockets/programs/compared/protocol.hpp"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace compared {

namespace {

constexpr std::array<const char *, static_cast<std::size_t>(Op::kCount)> kNames = {
    "socket",     "listen",     "connect",     "accept",      "send",         "receive",   "move",
    "shutdown",   "close",      "dup",         "dup2",        "O_NONBLOCK",   "FIONREAD",  "SIOCATMARK",
    "getsockopt", "setsockopt", "poll",        "select",      "epoll_create", "epoll_ctl", "epoll_wait",
    "dissolve",   "bind",       "getsockname", "getpeername", "pause",        "spawn",     "give",
    "take",       "thread",     "fork",        "exec",        "reap",         "exit"};

std::string text_of(const Item &item)
{
    char text[40];
    ::snprintf(text, sizeof text, " %d:%x", item.slot, item.events);
    return text;
}

} // namespace

const char *name_of(Op op) noexcept
{
    return kNames[static_cast<std::size_t>(op)];
}

bool same(const Reply &one, const Reply &other) noexcept
{
    return one.result == other.result && one.error == other.error && one.flags == other.flags &&
           one.signals == other.signals && one.sum == other.sum && one.value == other.value &&
           one.count == other.count && one.items == other.items;
}

std::string text_of(const Command &command)
{
    std::string text = name_of(command.op);
    const auto add = [&text](const char *what, long value) {
        if (value != 0)
            text += std::string{" "} + what + " " + std::to_string(value);
    };
    if (command.slot >= 0)
        text += " slot " + std::to_string(command.slot);
    if (command.other >= 0)
        text += " other " + std::to_string(command.other);
    add("form", command.form);
    add("flags", command.flags);
    add("length", command.length);
    add("value", command.value);
    for (int i = 0; i < command.count; ++i)
        text += text_of(command.items[static_cast<std::size_t>(i)]);
    return text;
}

std::string text_of(const Reply &reply)
{
    std::string text = std::to_string(reply.result);
    if (reply.error != 0)
        text += std::string{" "} + ::strerrorname_np(reply.error);
    if (reply.flags != 0)
        text += " flags " + std::to_string(reply.flags);
    if (reply.signals != 0)
        text += " SIGPIPE";
    if (reply.value != 0)
        text += " value " + std::to_string(reply.value);
    if (reply.sum != 0)
        text += " sum " + std::to_string(reply.sum % 100000);
    for (int i = 0; i < reply.count; ++i)
        text += text_of(reply.items[static_cast<std::size_t>(i)]);
    return text;
}

std::uint64_t sum_of(const void *bytes, std::size_t length) noexcept
{
    std::uint64_t sum = 0xcbf29ce484222325ULL;
    for (std::size_t i = 0; i < length; ++i)
        sum = (sum ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001b3ULL;
    return length == 0 ? 0 : sum;
}

void fill(void *bytes, std::size_t length, std::uint64_t seed) noexcept
{
    for (std::size_t i = 0; i < length; ++i) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        static_cast<unsigned char *>(bytes)[i] = static_cast<unsigned char>(seed >> 56);
    }
}

bool send_message(int channel, const void *message, std::size_t length, int descriptor) noexcept
{
    iovec part{const_cast<void *>(message), length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr *const beside = CMSG_FIRSTHDR(&header);
        beside->cmsg_level = SOL_SOCKET;
        beside->cmsg_type = SCM_RIGHTS;
        beside->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(beside), &descriptor, sizeof descriptor);
    }
    ssize_t sent = 0;
    do
        sent = ::sendmsg(channel, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(length);
}

Arrival receive_message(int channel, void *message, std::size_t length, int *descriptor, bool wait) noexcept
{
    iovec part{message, length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got = 0;
    do
        got = ::recvmsg(channel, &header, wait ? 0 : MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return Arrival::kNothing;
    if (got != static_cast<ssize_t>(length))
        return Arrival::kOver;
    if (descriptor != nullptr) {
        *descriptor = -1;
        if (const cmsghdr *const beside = CMSG_FIRSTHDR(&header); beside != nullptr)
            std::memcpy(descriptor, CMSG_DATA(beside), sizeof *descriptor);
    }
    return Arrival::kHere;
}

} // namespace compared
