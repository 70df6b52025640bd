// SPDX-License-Identifier: BSD-2-Clause
// What datagram scenarios share: links, warm-up, transcripts, strangers. See side.hpp.
#include "fabtests/sockets/programs/datagrams/side.hpp"
#include "fabtests/patience.hpp"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

extern "C" char **environ;

namespace fabtest {

namespace {

constexpr int kRounds = 200;

// Of this thread: where both sides are threads of one process, each has its own.
std::map<std::uint16_t, std::string> &port_names()
{
    static thread_local std::map<std::uint16_t, std::string> names;
    return names;
}

// Do the lines "fd=N UDP A: accelerated:" and "fd=N UDP A -> B: accelerated:" of this process's debug log have the
// socket's port and the other's?
bool log_says_accelerated(const Link &link)
{
    const char *pattern = std::getenv("VMA_LOG_FILE");
    if (pattern == nullptr)
        die("FABTEST_LIFT without VMA_LOG_FILE");
    std::string path = pattern;
    if (const auto at = path.find("%d"); at != std::string::npos)
        path.replace(at, 2, std::to_string(::getpid()));
    const std::string start = "fd=" + std::to_string(link.fd) + " UDP ";
    const std::string own = ":" + std::to_string(local_address(link.fd).port());
    const std::string other = ":" + std::to_string(link.other.port());
    bool receiver = false, route = false;
    std::ifstream log(path);
    for (std::string line; std::getline(log, line);) {
        const auto begin = line.find(start), end = line.find(": accelerated: ");
        if (begin == std::string::npos || end == std::string::npos)
            continue;
        const std::string who = line.substr(begin + start.size(), end - begin - start.size());
        if (who.find(" -> ") == std::string::npos)
            receiver = receiver || who.ends_with(own);
        else
            route = route || who.ends_with(other);
    }
    return receiver && route;
}

} // namespace

// ---- links ----------------------------------------------------------------------------------------------------------

Link Datagrams::open(const char *client_name, const char *server_name, const Prepare &prepare)
{
    const Address here = make_address(server ? bound.c_str() : from.c_str(), 0);
    Link made;
    made.fd = udp_socket(here.family());
    if (prepare)
        prepare(made.fd);
    must(bind_to(made.fd, here), "bind");
    const std::uint16_t mine = local_address(made.fd).port();
    tell(mine);
    const auto theirs = static_cast<std::uint16_t>(hear());
    name_port(server ? mine : theirs, server_name);
    name_port(server ? theirs : mine, client_name);
    if (server) { // learns from the first datagram how the other end looks from here
        char byte;
        must(static_cast<int>(::recvfrom(made.fd, &byte, 1, 0, made.other.get(), &made.other.len)), "first datagram");
    } else {
        made.other = make_address(to.c_str(), theirs);
        must(static_cast<int>(send_to(made.fd, "1", 1, made.other)), "first datagram");
    }
    step();
    warm(made);
    return made;
}

void Datagrams::warm(const Link &l) const
{
    constexpr char kMore = 'm', kEnd = 'e', kYes = 'y', kNo = 'n';
    bool seen = !offload_expected();
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0, after = 0;; ++round) {
        if (!seen && (round % 50 == 49))
            seen = log_says_accelerated(l);
        char byte = 0;
        if (server) {
            must(static_cast<int>(::recv(l.fd, &byte, 1, 0)), "warm-up");
            const char answer = seen ? kYes : kNo;
            must(static_cast<int>(send_to(l.fd, &answer, 1, l.other)), "warm-up");
            if (byte == kEnd)
                break;
            continue;
        }
        const char question = after > 40 && round >= kRounds ? kEnd : kMore;
        must(static_cast<int>(send_to(l.fd, &question, 1, l.other)), "warm-up");
        must(static_cast<int>(::recv(l.fd, &byte, 1, 0)), "warm-up");
        if (question == kEnd)
            break;
        after += seen && byte == kYes;
        if (after == 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(patience::seconds()))
            die("not accelerated: client says %s, server says %s", seen ? "yes" : "no", byte == kYes ? "yes" : "no");
    }
    step();
}

void Datagrams::deliver(const Link &l, std::initializer_list<std::string> texts) const
{
    if (!server)
        for (const std::string &text : texts)
            if (send_to(l.fd, text.data(), text.size(), l.other) != static_cast<ssize_t>(text.size()))
                die("deliver: %s", strerrorname_np(errno));
    step();
}

void Datagrams::still_works(const Link &l) const
{
    char byte = 'w';
    if (!server)
        must(static_cast<int>(send_to(l.fd, &byte, 1, l.other)), "at the end");
    must(static_cast<int>(::recv(l.fd, &byte, 1, 0)), "at the end");
    if (byte != 'w')
        die("at the end: something else comes");
    if (server)
        must(static_cast<int>(send_to(l.fd, &byte, 1, l.other)), "at the end");
    step();
    say("still works");
}

// ---- transcripts ----------------------------------------------------------------------------------------------------

void Datagrams::name_port(std::uint16_t number, const std::string &text) const
{
    port_names()[number] = text;
}

std::uint16_t Datagrams::share_port(std::uint16_t number, bool mine, const char *text) const
{
    if (mine)
        tell(number);
    const auto shared = mine ? number : static_cast<std::uint16_t>(hear());
    name_port(shared, text);
    return shared;
}

std::string Datagrams::name(const Address &address)
{
    if (address.len == 0)
        return "nobody";
    if (address.family() != AF_INET && address.family() != AF_INET6)
        return "family " + std::to_string(address.family());
    const auto found = port_names().find(address.port());
    const std::string number = address.port() == 0 ? "0" : found == port_names().end() ? "?" : found->second;
    return (address.family() == AF_INET6 ? "[" + address.host() + "]" : address.host()) + ":" + number;
}

void Datagrams::say(const char *format, ...) const
{
    char line[2048];
    std::va_list args;
    va_start(args, format);
    int len = std::vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (len > static_cast<int>(sizeof line) - 2)
        len = static_cast<int>(sizeof line) - 2;
    line[len] = '\n';
    must(static_cast<int>(::write(transcript, line, static_cast<std::size_t>(len) + 1)), "write");
}

long Datagrams::show(const char *call, long result) const
{
    if (result < 0)
        say("%s = %ld %s", call, result, strerrorname_np(errno));
    else
        say("%s = %ld", call, result);
    return result;
}

void Datagrams::show(const char *call, const Received &r) const
{
    if (r.result < 0) {
        say("%s = %zd %s", call, r.result, strerrorname_np(r.error));
        return;
    }
    std::string text = "\"" + r.data + "\"";
    if (r.data.size() > 24) {
        std::uint64_t sum = 0;
        for (const char c : r.data)
            sum = sum * 1099511628211U + static_cast<unsigned char>(c);
        text = std::to_string(r.data.size()) + " bytes of sum " + std::to_string(sum);
    }
    if (r.from.len != 0)
        text += " from " + name(r.from);
    if (r.flags != 0)
        text += " flags " + std::to_string(r.flags);
    if (!r.control.empty())
        text += " with " + r.control;
    say("%s = %zd %s", call, r.result, text.c_str());
}

Received Datagrams::take(const char *call, int fd, int flags) const
{
    Received r = receive_by(Form::kRecvmsg, fd, 65536, flags, 512);
    show(call, r);
    return r;
}

void Datagrams::nothing_there(const char *when, int fd) const
{
    char byte;
    show(when, ::recv(fd, &byte, 1, MSG_DONTWAIT));
}

unsigned Datagrams::drain(int fd) const
{
    char byte;
    unsigned count = 0;
    while (::recv(fd, &byte, 1, MSG_DONTWAIT) >= 0)
        ++count;
    return count;
}

std::string event_text(unsigned events)
{
    static constexpr struct {
        unsigned bit;
        const char *name;
    } kNames[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"},   {POLLOUT, "OUT"},     {POLLERR, "ERR"},
                  {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}, {POLLRDNORM, "RDNORM"}};
    std::string text;
    for (const auto &entry : kNames)
        if (events & entry.bit)
            text += (text.empty() ? "" : "|") + std::string(entry.name);
    return text.empty() ? "none" : text;
}

void set_nonblocking(int fd, bool on)
{
    const int flags = must(::fcntl(fd, F_GETFL), "F_GETFL");
    must(::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), "F_SETFL");
}

std::string pattern_text(std::size_t len)
{
    std::string text(len, '\0');
    for (std::size_t i = 0; i < len; ++i)
        text[i] = static_cast<char>('a' + i * 31 % 25);
    return text;
}

// ---- strangers ------------------------------------------------------------------------------------------------------

namespace {

struct Order {
    Address to;
    std::uint32_t len = 0;
    bool only_tell = false; // the address that it would be sent by
    char text[256]{};
};

} // namespace

Stranger::Stranger()
{
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
    std::vector<char *> env;
    for (char **e = environ; *e != nullptr; ++e)
        if (std::strncmp(*e, "LD_PRELOAD=", 11) != 0 && std::strncmp(*e, "VMA_", 4) != 0)
            env.push_back(*e);
    env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    must(-::posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
    must(-::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO), "adddup2");
    char program[] = "/proc/self/exe", role[] = "--stranger";
    char *argv[] = {program, role, nullptr};
    must(-::posix_spawn(&pid_, program, &actions, nullptr, argv, env.data()), "posix_spawn");
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    control_ = ends[0];
}

Stranger::~Stranger()
{
    ::close(control_);
    ::waitpid(pid_, nullptr, 0);
}

void Stranger::send(const Address &to, const std::string &text) const
{
    Order order;
    order.to = to;
    order.len = static_cast<std::uint32_t>(text.copy(order.text, sizeof order.text));
    must(static_cast<int>(::send(control_, &order, sizeof order, MSG_NOSIGNAL)), "to the stranger");
    Address used;
    if (::recv(control_, &used, sizeof used, 0) != sizeof used)
        die("the stranger is gone");
}

Address Stranger::address(const Address &to)
{
    Order order;
    order.to = to;
    order.only_tell = true;
    must(static_cast<int>(::send(control_, &order, sizeof order, MSG_NOSIGNAL)), "to the stranger");
    Address used;
    if (::recv(control_, &used, sizeof used, 0) != sizeof used)
        die("the stranger is gone");
    return used;
}

int be_a_stranger(int control)
{
    must(::prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
    std::map<int, int> sockets; // one a family
    for (Order order; ::recv(control, &order, sizeof order, 0) == sizeof order;) {
        const int family = order.to.family();
        if (!sockets.contains(family)) {
            sockets[family] = udp_socket(family);
            Address any = make_address(family == AF_INET ? "0.0.0.0" : "::", 0);
            must(bind_to(sockets[family], any), "bind");
        }
        if (!order.only_tell && send_to(sockets[family], order.text, order.len, order.to) < 0)
            die("the stranger's sendto: %s", strerrorname_np(errno));
        const Address used = local_address(sockets[family]);
        must(static_cast<int>(::send(control, &used, sizeof used, MSG_NOSIGNAL)), "from the stranger");
    }
    return 0;
}

} // namespace fabtest
