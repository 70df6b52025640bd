// SPDX-License-Identifier: BSD-2-Clause
// Messages of a link that are not what they should be: LIAR_MESSAGES=1, every third one, and beside every third one
// comes another that nobody should send then. LIAR_BRINGS=KIND: all are what they should be but for a descriptor.
#include "fabtests/sockets/programs/liars/liar.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "local/cm/message.hpp"

namespace liar {

namespace {

using vma::local::kLinkFdCount;
using vma::local::LinkMessage;
using vma::local::MessageType;

constexpr std::size_t kTypes = 7;
constexpr std::size_t kManyFds = 30;
std::array<unsigned, kTypes> g_lies; // by the type of what it should have been, or was forged as
std::mutex g_lock;                   // of all below
Random *g_random = nullptr;

struct Message {
    std::vector<std::byte> bytes;
    std::vector<int> fds;
};

Message g_offer; // the last one that had one, with descriptors of its own: what is forged has them

// Held back until the next one has gone: by its socket's number here, which may be another link's by then.
std::vector<std::pair<int, Message>> g_late;

Message read_in(const msghdr &header)
{
    Message message;
    for (std::size_t i = 0; i < header.msg_iovlen; ++i) {
        const auto *const from = static_cast<const std::byte *>(header.msg_iov[i].iov_base);
        message.bytes.insert(message.bytes.end(), from, from + header.msg_iov[i].iov_len);
    }
    const cmsghdr *const part = CMSG_FIRSTHDR(&header);
    if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
        message.fds.resize((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        std::memcpy(message.fds.data(), CMSG_DATA(part), message.fds.size() * sizeof(int));
    }
    return message;
}

long send_one(int socket, Message &message, int flags)
{
    iovec part = {message.bytes.data(), message.bytes.size()};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * 64)] = {};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (const std::size_t size = message.fds.size() * sizeof(int); size != 0) {
        header.msg_control = room;
        header.msg_controllen = CMSG_SPACE(size);
        cmsghdr *const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(size);
        std::memcpy(CMSG_DATA(rights), message.fds.data(), size);
    }
    return real_syscall(SYS_sendmsg, socket, reinterpret_cast<long>(&header), flags);
}

// ---- lies about the bytes ------------------------------------------------------------------------------------------

template <typename Word> void change_word(Message &message)
{
    if (message.bytes.size() < sizeof(Word))
        return;
    // Private data, which is most of a message, is mostly empty.
    const std::size_t end = g_random->below(4) != 0 ? offsetof(LinkMessage, data) + 16 : message.bytes.size();
    const std::size_t at = g_random->below(std::min(end, message.bytes.size()) / sizeof(Word)) * sizeof(Word);
    Word word;
    std::memcpy(&word, &message.bytes[at], sizeof word);
    word = static_cast<Word>(other_value(word));
    std::memcpy(&message.bytes[at], &word, sizeof word);
}

// ---- lies about the descriptors ------------------------------------------------------------------------------------

// Those which can be closed without asking anybody, so that they bring who sends them no more than an end of the link.
int harmless()
{
    const auto size = static_cast<off_t>(4096 * g_random->below(40));
    const int fd = ::memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (::ftruncate(fd, size) != 0 || ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
        errno = 0;
    return fd;
}

// And those which can't.
int harmful(std::string_view kind)
{
    if (kind == "eventfd")
        return ::eventfd(0, EFD_CLOEXEC);
    if (kind == "epoll")
        return ::epoll_create1(EPOLL_CLOEXEC);
    if (kind == "file")
        return ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (kind == "folder")
        return ::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kind == "unsealed")
        return ::memfd_create("lie", MFD_CLOEXEC);
    int pair[2] = {-1, -1};
    if (kind == "pipe" && ::pipe2(pair, O_CLOEXEC) == 0)
        return pair[0]; // the other one stays, which hurts nobody
    if (kind == "datagrams" && ::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0)
        return pair[0];
    std::abort();
}

void lie_about_fds(Message &message, int &made)
{
    // As many as a message may have: who brings more is no guest any more (LIAR_BRINGS=many).
    if (message.fds.empty()) {
        message.fds.assign(1 + g_random->below(kLinkFdCount), made = harmless());
        return;
    }
    const std::size_t chosen = g_random->below(message.fds.size());
    switch (g_random->below(6)) {
    case 0:
        message.fds.clear();
        break;
    case 1:
        message.fds.erase(message.fds.begin() + static_cast<std::ptrdiff_t>(chosen));
        break;
    case 2:
        message.fds.push_back(message.fds[chosen]);
        break;
    case 3:
        std::swap(message.fds[chosen], message.fds[g_random->below(message.fds.size())]);
        break;
    case 4:
        message.fds.resize(2 + g_random->below(kLinkFdCount - 1), message.fds[chosen]);
        break;
    default:
        message.fds[chosen] = made = harmless();
        break;
    }
    message.fds.resize(std::min<std::size_t>(message.fds.size(), kLinkFdCount));
}

// ---- all together --------------------------------------------------------------------------------------------------

void send_late(int flags)
{
    for (auto &[socket, message] : g_late) {
        send_one(socket, message, flags);
        for (const int fd : message.fds)
            real_syscall(SYS_close, fd);
    }
    g_late.clear();
}

void hold_back(int socket, Message &message)
{
    for (int &fd : message.fds)
        fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    g_late.emplace_back(socket, std::move(message));
}

long tell(int socket, Message &message, int flags)
{
    int made = -1;
    bool twice = false;
    switch (g_random->below(12)) {
    case 0:
        message.bytes.resize(g_random->below(message.bytes.size()));
        break;
    case 1:
        message.bytes.resize(message.bytes.size() + 1 + g_random->below(1000), std::byte{1});
        break;
    case 2:
        twice = true;
        break;
    case 3: {
        const auto length = static_cast<long>(message.bytes.size());
        hold_back(socket, message);
        return length;
    }
    case 4:
    case 5:
    case 6:
        lie_about_fds(message, made);
        break;
    case 7:
        change_word<std::uint8_t>(message);
        break;
    case 8:
        change_word<std::uint64_t>(message);
        break;
    default:
        change_word<std::uint32_t>(message);
        break;
    }
    if (twice)
        send_one(socket, message, flags);
    const long sent = send_one(socket, message, flags);
    if (made >= 0)
        real_syscall(SYS_close, made);
    return sent;
}

// ---- messages that nobody should send then -------------------------------------------------------------------------

void keep_offer(const Message &message)
{
    for (const int fd : g_offer.fds)
        real_syscall(SYS_close, fd);
    g_offer = message;
    for (int &fd : g_offer.fds)
        fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

// A type of which there were the fewest, so that there are as many of each.
long forge(int socket, const Message &beside, int flags)
{
    const auto fewest = std::min_element(g_lies.begin() + 1, g_lies.end());
    const auto type = static_cast<MessageType>(fewest - g_lies.begin());
    if (vma::local::carries_offer(type) && g_offer.bytes.empty())
        return 0;
    ++*fewest;
    Message forged = vma::local::carries_offer(type) ? g_offer : beside;
    forged.fds.resize(vma::local::carries_offer(type) ? forged.fds.size() : 0);
    LinkMessage head;
    std::memcpy(&head, forged.bytes.data(), sizeof head);
    std::memcpy(&head.connection, &beside.bytes[offsetof(LinkMessage, connection)], sizeof head.connection);
    head.type = type;
    head.brings = vma::local::carries_offer(type) ? head.brings : 0;
    head.reason = static_cast<vma::local::RejectReason>(g_random->below(7));
    std::memcpy(forged.bytes.data(), &head, sizeof head);
    return g_random->below(2) == 0 ? send_one(socket, forged, flags) : tell(socket, forged, flags);
}

std::size_t type_of(const Message &message)
{
    LinkMessage head;
    if (message.bytes.size() < sizeof head)
        return 0;
    std::memcpy(&head, message.bytes.data(), sizeof head);
    return std::min(static_cast<std::size_t>(head.type), kTypes - 1);
}

// All but one descriptor are what they should be, or there are more of them than any message has.
long bring(std::string_view kind, int socket, Message &message, int flags)
{
    if (kind == "many")
        message.fds.resize(kManyFds, message.fds.at(0));
    else if (!message.fds.empty())
        message.fds[g_random->below(message.fds.size())] = harmful(kind);
    ++g_lies[type_of(message)];
    return send_one(socket, message, flags);
}

} // namespace

long send_lie(int socket, const msghdr &header, int flags)
{
    static const char *const lies = ::getenv("LIAR_MESSAGES");
    static const char *const kind = ::getenv("LIAR_BRINGS");
    Message message = read_in(header);
    const auto length = static_cast<long>(message.bytes.size());
    const std::lock_guard guard(g_lock);
    g_random = &source();
    const std::size_t type = type_of(message);
    if (kind != nullptr && vma::local::carries_offer(static_cast<MessageType>(type)))
        return bring(kind, socket, message, flags) >= 0 ? length : -1;
    if (lies != nullptr && vma::local::carries_offer(static_cast<MessageType>(type)))
        keep_offer(message);
    const std::size_t chosen = lies == nullptr || type == 0 ? 0 : g_random->below(3);
    if (chosen != 1) {
        const bool before = g_random->below(2) == 0;
        if (chosen == 2 && before)
            forge(socket, message, flags);
        const long sent = send_one(socket, message, flags);
        if (chosen == 2 && !before)
            forge(socket, message, flags);
        send_late(flags);
        return sent;
    }
    ++g_lies[type];
    const long sent = tell(socket, message, flags);
    return sent >= 0 || errno != EAGAIN ? length : sent;
}

} // namespace liar

// How many messages of that type were not what they should have been.
extern "C" [[gnu::visibility("default")]] unsigned liar_lies(unsigned type)
{
    const std::lock_guard guard(liar::g_lock);
    return type < liar::kTypes ? liar::g_lies[type] : 0;
}
