// SPDX-License-Identifier: BSD-2-Clause
#include "agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "config.h"

#include "log.hpp"

namespace vma::guard {

namespace {

constexpr std::uint64_t kSocket = 0; // what is watched; else a process' number
constexpr std::uint64_t kProber = ~std::uint64_t{0};
constexpr unsigned kMessagesATurn = 256;
constexpr std::size_t kMostInAll = 1U << 20;
constexpr Nanos kComplaints = inet::kSecond; // between two lines about wrong messages

std::string failure(const std::string &what)
{
    return what + ": " + std::strerror(errno);
}

std::uint32_t own_version()
{
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    std::sscanf(PACKAGE_VERSION, "%u.%u.%u", &major, &minor, &release);
    return major << 12 | minor << 8 | release << 4;
}

bool is_readable(int fd)
{
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

// Who has sent a message, as the kernel says it. False: it says nothing.
bool sender_of(const msghdr &message, ucred &sender)
{
    for (const cmsghdr *part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(const_cast<msghdr *>(&message), const_cast<cmsghdr *>(part))) {
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS) {
            std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
            return true;
        }
    }
    return false;
}

} // namespace

Agent::~Agent()
{
    if (!bound_.empty())
        unlink(bound_.c_str());
    if (lock_)
        flock(lock_.get(), LOCK_UN); // a child of the broker's may still have it
}

std::string Agent::open()
{
    if (options_.socket.empty())
        return "";
    set_ = core::UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!set_)
        return failure("epoll");
    if (std::string error = take_lock(); !error.empty())
        return error;
    if (std::string error = folder_.open(options_.folder.c_str()); !error.empty())
        return error;
    if (std::string error = open_socket(); !error.empty())
        return error;
    return watch(socket_.get(), kSocket) ? "" : failure("epoll");
}

std::string Agent::take_lock()
{
    lock_ = core::UniqueFd(::open(options_.lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0640));
    if (!lock_)
        return failure(options_.lock);
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? options_.lock + ": another vmad holds it" : failure(options_.lock);
    const std::string pid = std::to_string(getpid()) + "\n";
    const bool written = ftruncate(lock_.get(), 0) == 0 &&
                         write(lock_.get(), pid.data(), pid.size()) == static_cast<ssize_t>(pid.size());
    return written ? "" : failure(options_.lock);
}

std::string Agent::open_socket()
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string &path = options_.socket;
    if (path.size() >= sizeof address.sun_path)
        return path + ": the path of a socket has 1 to " + std::to_string(sizeof address.sun_path - 1) + " bytes";
    std::memcpy(address.sun_path, path.data(), path.size());
    struct stat there = {};
    if (lstat(path.c_str(), &there) == 0) { // a dead daemon's: the lock is ours
        if (!S_ISSOCK(there.st_mode))
            return path + ": is there, and is no socket";
        unlink(path.c_str());
    }
    socket_ = core::UniqueFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    if (!socket_ || setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0)
        return failure("socket");
    const mode_t before = umask(0177); // for this user and root: who tells of connections has their peers reset
    const int bound = bind(socket_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address);
    umask(before);
    if (bound != 0)
        return failure(path);
    bound_ = path;
    return "";
}

bool Agent::watch(int fd, std::uint64_t what)
{
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = what;
    return epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &interest) == 0;
}

void Agent::on_readable(Nanos now)
{
    epoll_event events[64];
    const int count = epoll_wait(set_.get(), events, std::size(events), 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t what = events[i].data.u64;
        if (what == kSocket) {
            receive(now);
        } else if (what == kProber) {
            prober_.on_readable(now);
        } else if (const auto process = processes_.find(static_cast<pid_t>(what));
                   process != processes_.end() && is_readable(process->second.pidfd.get())) {
            on_death(process, now);
        }
    }
    follow_prober();
}

Nanos Agent::due() const
{
    return prober_.due();
}

void Agent::on_time(Nanos now)
{
    prober_.on_time(now);
    follow_prober();
}

void Agent::follow_prober()
{
    if (std::exchange(watched_prober_, prober_.opened()) != prober_.opened() && prober_.fd() >= 0)
        static_cast<void>(watch(prober_.fd(), kProber)); // else its time comes in any case
}

// ---- messages -------------------------------------------------------------------------------------------------------

void Agent::receive(Nanos now)
{
    for (unsigned i = 0; i < kMessagesATurn; ++i) {
        std::byte bytes[sizeof(AgentMessage) + 1];
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        sockaddr_un from{};
        iovec part{bytes, sizeof bytes};
        msghdr header{};
        header.msg_name = &from;
        header.msg_namelen = sizeof from;
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        const ssize_t length = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
        if (length < 0)
            return;
        const auto whole = static_cast<std::size_t>(length);
        ucred sender{};
        AgentMessage message;
        if (!sender_of(header, sender) || (sender.uid != 0 && sender.uid != geteuid()))
            complain(sender.pid, "it is another user's", now);
        else if (const char *const wrong = parse_agent({bytes, std::min(whole, sizeof bytes)}, whole, message))
            complain(sender.pid, wrong, now);
        else if (message.header.pid != sender.pid)
            complain(sender.pid, "it is said to be another process'", now);
        else if (message.header.version > kAgentVersion)
            complain(sender.pid, "its version is above ours, 3", now);
        else
            take(message, from, header.msg_namelen, now);
    }
}

void Agent::take(const AgentMessage &message, const sockaddr_un &from, unsigned length, Nanos now)
{
    const pid_t pid = message.header.pid;
    say(Level::kTrace, "process %d: code %u", pid, unsigned{message.header.code});
    switch (static_cast<AgentCode>(message.header.code)) {
    case AgentCode::kInit:
        return take_init(message, from, length, now);
    case AgentCode::kState:
        return take_state(message);
    case AgentCode::kFlow:
        return take_flow(message, from, length);
    case AgentCode::kExit:
        if (const auto process = processes_.find(pid); process != processes_.end()) {
            say(Level::kDebug, "process %d has left", pid);
            forget(process);
        }
    }
}

// Also from one that is known: it was out of reach, and tells of all of its connections again.
void Agent::take_init(const AgentMessage &message, const sockaddr_un &from, unsigned length, Nanos now)
{
    const pid_t pid = message.header.pid;
    if (const auto known = processes_.find(pid); known != processes_.end()) {
        if (is_readable(known->second.pidfd.get()))
            on_death(known, now); // and its number has come again
        else
            forget(known);
    }
    if (processes_.size() >= options_.most_processes)
        return complain(pid, "there are as many processes as --pid allows", now);
    core::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
    if (!pidfd || !watch(pidfd.get(), static_cast<std::uint64_t>(pid)))
        return complain(pid, std::strerror(errno), now);
    processes_[pid].pidfd = std::move(pidfd);
    AgentInit reply{message.header, own_version()};
    reply.header.code |= kAgentAck;
    reply.header.version = kAgentVersion;
    if (!answer(&reply, sizeof reply, from, length))
        complain(pid, "it can't be answered", now);
    const std::uint32_t library = message.init.library;
    say(Level::kDebug, "process %d: version %u.%u.%u.%u", pid, library >> 12, library >> 8 & 15, library >> 4 & 15,
        library & 15);
}

void Agent::take_state(const AgentMessage &message)
{
    const AgentState state = message.state;
    const auto process = processes_.find(state.header.pid);
    if (process == processes_.end() || state.type != SOCK_STREAM)
        return;
    auto &open = process->second.open;
    const std::uint32_t fid = state.fid;
    if (state.state != kTcpEstablished) {
        open_ -= open.erase(fid);
        return;
    }
    const Pair4 pair{state.local_address, state.remote_address, state.local_port, state.remote_port};
    if (const auto known = open.find(fid); known != open.end()) {
        known->second = pair;
    } else if (open.size() < options_.most_open && open_ < kMostInAll) {
        open.emplace(fid, pair);
        ++open_;
    } else {
        if (!std::exchange(process->second.full_told, true))
            say(Level::kWarning, "process %d has more connections than are watched (--fid: %u)", process->first,
                options_.most_open);
        return;
    }
    say(Level::kDebug, "process %d: %s", process->first, text_of(pair).c_str());
}

// Rules through tap devices are for Hyper-V's interfaces alone, whose traffic doesn't come to us.
void Agent::take_flow(const AgentMessage &message, const sockaddr_un &from, unsigned length)
{
    if (!std::exchange(flow_told_, true))
        say(Level::kWarning, "process %d asks for flow rules with a tap device: there are none here, all are refused",
            message.header.pid);
    if (message.header.status == 0)
        return;
    AgentHeader reply = message.header;
    reply.code |= kAgentAck;
    reply.version = kAgentVersion;
    reply.status = 1;
    static_cast<void>(answer(&reply, sizeof reply, from, length));
}

// Who doesn't read his answers loses them.
bool Agent::answer(const void *data, std::size_t size, const sockaddr_un &to, unsigned length)
{
    if (length <= offsetof(sockaddr_un, sun_path))
        return false;
    return sendto(socket_.get(), data, size, MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&to),
                  length) == static_cast<ssize_t>(size);
}

void Agent::complain(pid_t pid, const char *why, Nanos now)
{
    if (complained_ != 0 && now - complained_ < kComplaints) {
        ++held_back_;
        return;
    }
    complained_ = now;
    const unsigned more = std::exchange(held_back_, 0);
    say(Level::kWarning, "a message of process %d is thrown away: %s (%u more were meanwhile)", pid, why, more);
}

// ---- ends -----------------------------------------------------------------------------------------------------------

void Agent::on_death(Processes::iterator process, Nanos now)
{
    Process &dead = process->second;
    if (!dead.open.empty())
        say(Level::kInformation, "process %d has died: resets %zu connections", process->first, dead.open.size());
    for (const auto &[fid, pair] : dead.open)
        prober_.add(pair, now);
    folder_.clean(process->first);
    forget(process);
}

void Agent::forget(Processes::iterator process)
{
    open_ -= process->second.open.size();
    processes_.erase(process);
}

} // namespace vma::guard
