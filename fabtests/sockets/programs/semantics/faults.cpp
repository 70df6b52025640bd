// SPDX-License-Identifier: BSD-2-Clause
// Memory that is not there: each call with an argument that lies in pages that were unmapped, may not be read or
// written, or are of a file that has become shorter. And what is left of the signals that tell of it: they are the
// program's.
#include <netinet/in.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

#include <thread>

#include "fabtests/sockets/programs/semantics/refused.hpp"

namespace {

using namespace fabtest;

constexpr std::size_t kPage = 4096;

char *map(int protection, int fd = -1)
{
    const int flags = MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *const pages = ::mmap(nullptr, 2 * kPage, protection, flags, fd, 0);
    if (pages == MAP_FAILED)
        die("mmap: %s", strerrorname_np(errno));
    return static_cast<char *>(pages);
}

// Where mmap() puts nothing by itself as long as there is room above: a hole elsewhere would be the next one's, which
// may be of a thread of the library's.
char *unmapped()
{
    void *const low = reinterpret_cast<void *>(std::uintptr_t{1} << 33); // NOLINT(performance-no-int-to-ptr)
    void *const there = ::mmap(low, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    must(there == MAP_FAILED ? -1 : ::munmap(there, 2 * kPage), "a place for no memory");
    return static_cast<char *>(there);
}

// Places where a call finds memory amiss; the byte before the last of them is there.
struct Places {
    char *gone = nullptr;
    char *none = map(PROT_NONE);
    char *constant = map(PROT_READ);
    char *cut = nullptr;    // SIGBUS
    char *border = nullptr; // there before it, not from it on
    Places()
    {
        const int file = must(::memfd_create("cut", 0), "memfd_create");
        must(::ftruncate(file, 2 * kPage), "ftruncate");
        cut = map(PROT_READ | PROT_WRITE, file);
        must(::ftruncate(file, 0), "ftruncate");
        ::close(file);
        border = map(PROT_READ | PROT_WRITE) + kPage;
        must(::mprotect(border, kPage, PROT_NONE), "mprotect");
        gone = unmapped();
    }
};

const Places &places()
{
    static const Places made;
    return made;
}

template <typename T> T *as(char *place)
{
    return reinterpret_cast<T *>(place);
}

msghdr message(iovec *parts, std::size_t count)
{
    msghdr made = {};
    made.msg_iov = parts;
    made.msg_iovlen = count;
    return made;
}

char g_buffer[4096];

void add_sends(std::vector<Row> &rows, const std::string &where, char *at)
{
    for (const std::size_t size : {std::size_t{1}, std::size_t{10}, std::size_t{2000}, 2 * kPage}) {
        const std::string tail = " of " + std::to_string(size) + where;
        rows.push_back({"write" + tail, [=](int fd) { return ::write(fd, at, size); }});
        rows.push_back({"send" + tail, [=](int fd) { return ::send(fd, at, size, MSG_DONTWAIT); }});
        rows.push_back({"sendto" + tail, [=](int fd) { return ::sendto(fd, at, size, MSG_DONTWAIT, nullptr, 0); }});
        rows.push_back({"writev" + tail, [=](int fd) {
                            const iovec two[] = {{g_buffer, 4}, {at, size}};
                            return ::writev(fd, two, 2);
                        }});
        rows.push_back({"sendmsg" + tail, [=](int fd) {
                            iovec one[] = {{at, size}};
                            const msghdr m = message(one, 1);
                            return ::sendmsg(fd, &m, MSG_DONTWAIT);
                        }});
    }
}

void add_headers_to_send(std::vector<Row> &rows, const std::string &where, char *at)
{
    rows.push_back({"writev, parts" + where, [=](int fd) { return ::writev(fd, as<iovec>(at), 2); }});
    rows.push_back({"sendmsg, header" + where, [=](int fd) { return ::sendmsg(fd, as<msghdr>(at), 0); }});
    rows.push_back({"sendmsg, parts" + where, [=](int fd) {
                        const msghdr m = message(as<iovec>(at), 3);
                        return ::sendmsg(fd, &m, 0);
                    }});
    rows.push_back({"sendmsg, control" + where, [=](int fd) {
                        iovec one = {g_buffer, 1};
                        msghdr m = message(&one, 1);
                        m.msg_control = at;
                        m.msg_controllen = 64;
                        return ::sendmsg(fd, &m, 0);
                    }});
    rows.push_back({"sendmsg, name" + where, [=](int fd) {
                        iovec one = {g_buffer, 1};
                        msghdr m = message(&one, 1);
                        m.msg_name = at;
                        m.msg_namelen = sizeof(sockaddr_in);
                        return ::sendmsg(fd, &m, 0);
                    }});
    rows.push_back({"sendto, name" + where,
                    [=](int fd) { return ::sendto(fd, g_buffer, 1, 0, as<sockaddr>(at), sizeof(sockaddr_in)); }});
    rows.push_back({"sendmmsg" + where, [=](int fd) { return ::sendmmsg(fd, as<mmsghdr>(at), 2, 0); }});
    rows.push_back({"connect" + where, [=](int fd) { return ::connect(fd, as<sockaddr>(at), sizeof(sockaddr_in)); }});
    rows.push_back({"setsockopt" + where, [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, at, 4); }});
    rows.push_back(
        {"setsockopt of a time" + where, [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, at, 16); }});
    rows.push_back({"setsockopt of a rate" + where,
                    [=](int fd) { return ::setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, at, 8); }});
}

void add_receives(std::vector<Row> &rows, const std::string &where, char *at)
{
    for (const std::size_t size : {std::size_t{1}, std::size_t{10}, 2 * kPage}) {
        const std::string tail = " of " + std::to_string(size) + where;
        rows.push_back({"read" + tail, [=](int fd) { return ::read(fd, at, size); }});
        rows.push_back({"recv" + tail, [=](int fd) { return ::recv(fd, at, size, MSG_DONTWAIT); }});
        rows.push_back({"recv PEEK" + tail, [=](int fd) { return ::recv(fd, at, size, MSG_DONTWAIT | MSG_PEEK); }});
        rows.push_back({"readv" + tail, [=](int fd) {
                            const iovec two[] = {{g_buffer, 4}, {at, size}};
                            return ::readv(fd, two, 2);
                        }});
        rows.push_back({"recvmsg" + tail, [=](int fd) {
                            iovec one[] = {{at, size}};
                            msghdr m = message(one, 1);
                            return ::recvmsg(fd, &m, MSG_DONTWAIT);
                        }});
    }
    rows.push_back({"getsockopt" + where, [=](int fd) {
                        socklen_t size = 4;
                        return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, at, &size);
                    }});
    rows.push_back({"getsockopt of a rate" + where, [=](int fd) {
                        socklen_t size = 8;
                        return ::getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, at, &size);
                    }});
    rows.push_back({"getsockopt, length" + where,
                    [=](int fd) { return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, g_buffer, as<socklen_t>(at)); }});
    rows.push_back({"FIONREAD" + where, [=](int fd) { return ::ioctl(fd, FIONREAD, at); }});
    rows.push_back({"SIOCATMARK" + where, [=](int fd) { return ::ioctl(fd, SIOCATMARK, at); }});
#ifndef __SANITIZE_ADDRESS__ // whose own wrappers look
    rows.push_back({"getsockname" + where, [=](int fd) {
                        socklen_t size = sizeof(sockaddr_in);
                        return ::getsockname(fd, as<sockaddr>(at), &size);
                    }});
#endif
}

void add_headers_to_receive(std::vector<Row> &rows, const std::string &where, char *at)
{
    rows.push_back({"readv, parts" + where, [=](int fd) { return ::readv(fd, as<iovec>(at), 2); }});
    rows.push_back({"recvmsg, header" + where, [=](int fd) { return ::recvmsg(fd, as<msghdr>(at), MSG_DONTWAIT); }});
    rows.push_back({"recvmsg, parts" + where, [=](int fd) {
                        msghdr m = message(as<iovec>(at), 3);
                        return ::recvmsg(fd, &m, MSG_DONTWAIT);
                    }});
    rows.push_back(
        {"recvmmsg" + where, [=](int fd) { return ::recvmmsg(fd, as<mmsghdr>(at), 2, MSG_DONTWAIT, nullptr); }});
}

// Times of ppoll() and select() libc reads by itself.
void add_waits(std::vector<Row> &rows, const std::string &where, char *at)
{
    rows.push_back({"poll" + where, [=](int) { return ::poll(as<pollfd>(at), 2, 0); }});
    rows.push_back({"ppoll" + where, [=](int) { return ::ppoll(as<pollfd>(at), 2, nullptr, nullptr); }});
    rows.push_back({"select" + where, [=](int fd) {
                        timeval none = {};
                        return ::select(fd >= 0 && fd < FD_SETSIZE ? fd + 1 : 1, as<fd_set>(at), nullptr, nullptr,
                                        &none);
                    }});
    for (const int operation : {EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD})
        rows.push_back({"epoll_ctl " + std::to_string(operation) + where, [=](int fd) {
                            const int set = ::epoll_create1(0);
                            const long result = ::epoll_ctl(set, operation, fd, as<epoll_event>(at));
                            const int saved = errno;
                            ::close(set);
                            errno = saved;
                            return result;
                        }});
    rows.push_back({"epoll_wait" + where, [=](int fd) {
                        const int set = ::epoll_create1(0);
                        epoll_event event = {EPOLLOUT, {}};
                        ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
                        const long result = ::epoll_wait(set, as<epoll_event>(at), 10, 0);
                        const int saved = errno;
                        ::close(set);
                        errno = saved;
                        return result;
                    }});
}

void add_to_read(std::vector<Row> &rows)
{
    for (const auto &[where, at] : {std::pair<const char *, char *>{" that are gone", places().gone},
                                    {" without rights", places().none},
                                    {" cut off", places().cut},
                                    {" at the border", places().border - 1}}) {
        add_sends(rows, where, at);
        if (at != places().border - 1)
            add_headers_to_send(rows, where, at);
    }
}

void add_to_write(std::vector<Row> &rows)
{
    for (const auto &[where, at] : {std::pair<const char *, char *>{" that are gone", places().gone},
                                    {" without rights", places().none},
                                    {" cut off", places().cut},
                                    {" of constants", places().constant}}) {
        add_receives(rows, where, at);
        if (at != places().constant)
            add_headers_to_receive(rows, where, at);
    }
}

void add_to_wait(std::vector<Row> &rows)
{
    for (const auto &[where, at] : {std::pair<const char *, char *>{" that are gone", places().gone},
                                    {" without rights", places().none},
                                    {" cut off", places().cut}})
        add_waits(rows, where, at);
}

// ---- what is left of the signals

sigjmp_buf g_out;
volatile sig_atomic_t g_faults = 0;

void jump_out(int)
{
    g_faults = g_faults + 1;
    ::siglongjmp(g_out, 1);
}

void count_fault(int, siginfo_t *info, void *)
{
    g_faults = g_faults + 1;
    if (info->si_addr != places().gone)
        ::_exit(3);
    ::siglongjmp(g_out, 2);
}

void read_fault()
{
    static_cast<void>(*const_cast<volatile char *>(places().gone));
}

void show_faults(const Side &me, const char *what)
{
    me.show(what, ::send(me.fd, places().gone, 10, MSG_DONTWAIT));
    me.show("of it a file's", ::send(me.fd, places().cut, 10, MSG_DONTWAIT));
    me.say("handled: %d", static_cast<int>(g_faults));
}

// In a child: its end.
template <typename Act> void show_end(const Side &me, const char *what, Act act)
{
    const pid_t child = must(::fork(), "fork");
    if (child == 0) {
        const rlimit no_core = {};
        ::setrlimit(RLIMIT_CORE, &no_core);
        act();
        ::_exit(0);
    }
    int status = -1;
    must(::waitpid(child, &status, 0), "waitpid");
    me.say("%s: status %d", what, status);
}

constexpr unsigned kRestorer = 0x04000000; // libc's own

void handle_faults(const Side &me, unsigned flags)
{
    struct sigaction action = {};
    struct sigaction before = {};
    if ((flags & SA_SIGINFO) != 0)
        action.sa_sigaction = count_fault;
    else
        action.sa_handler = jump_out;
    action.sa_flags = static_cast<int>(flags);
    must(::sigaction(SIGSEGV, &action, &before), "sigaction");
    me.say("before: %s, flags %x", before.sa_handler == SIG_DFL ? "default" : "another",
           static_cast<unsigned>(before.sa_flags) & ~kRestorer);
    show_faults(me, "send with a handler");
    if (::sigsetjmp(g_out, 1) == 0)
        read_fault();
    me.say("handled: %d", static_cast<int>(g_faults));
    must(::sigaction(SIGSEGV, &before, &action), "sigaction");
    me.say("it was %s, flags %x",
           action.sa_handler == SIG_DFL    ? "default"
           : action.sa_handler == jump_out ? "jump_out"
                                           : "count_fault",
           static_cast<unsigned>(action.sa_flags) & ~kRestorer);
    show_faults(me, "send without it");
}

} // namespace

SCENARIO(faults_in_sends)
{
    compare(me, add_to_read);
}

SCENARIO(faults_in_receives)
{
    compare(me, add_to_write);
}

SCENARIO(faults_in_receives_with_bytes_there)
{
    compare_with_bytes_there(me, add_to_write);
}

SCENARIO(faults_in_waits)
{
    compare(me, add_to_wait);
}

// As much as the kernel takes before the fault, and the error with the next call: not less than nothing, and not what
// is not there.
SCENARIO(fault_after_much)
{
    constexpr std::size_t kMuch = 256 << 10;
    constexpr std::size_t kKernelPiece = 64 << 10;
    if (me.server)
        return me.say("came in order: %s", [&] {
            const Pattern pattern(1);
            char block[4096];
            std::size_t total = 0;
            for (ssize_t n; (n = ::recv(me.fd, block, sizeof block, 0)) > 0; total += static_cast<std::size_t>(n))
                if (pattern.check(total, block, static_cast<std::size_t>(n)) != static_cast<std::size_t>(n))
                    return "no";
            return total > kMuch - kKernelPiece && total <= kMuch ? "yes" : "not as many";
        }());
    auto *const pages =
        static_cast<char *>(::mmap(nullptr, kMuch + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Pattern(1).fill(0, pages, kMuch);
    must(::mprotect(pages + kMuch, kPage, PROT_NONE), "mprotect");
    std::size_t sent = 0;
    ssize_t n;
    while ((n = ::send(me.fd, pages + sent, kMuch + kPage - sent, 0)) > 0)
        sent += static_cast<std::size_t>(n);
    me.show("at last", n);
    me.say("enough: %d", sent > kMuch - kKernelPiece && sent <= kMuch);
    must(::shutdown(me.fd, SHUT_WR), "shutdown");
}

SCENARIO(signals_of_faults)
{
    ::signal(SIGPIPE, SIG_IGN);
    if (!me.server) {
        show_faults(me, "send");
        handle_faults(me, 0);
        handle_faults(me, SA_RESTART | SA_NODEFER);
        handle_faults(me, SA_RESETHAND);
        handle_faults(me, SA_SIGINFO | SA_ONSTACK);
        me.say("signal: %d", ::signal(SIGSEGV, SIG_DFL) == SIG_DFL);
        show_faults(me, "send");
        std::thread([&me] { show_faults(me, "send of another thread"); }).join();
    }
    me.step();
    show_end(me, "a fault", [] { read_fault(); });
    show_end(me, "SIGSEGV raised", [] { ::raise(SIGSEGV); });
    show_end(me, "SIGBUS sent", [] { ::kill(::getpid(), SIGBUS); });
    show_end(me, "SIGSEGV ignored and raised", [] {
        ::signal(SIGSEGV, SIG_IGN);
        ::raise(SIGSEGV);
    });
    show_end(me, "SIGSEGV ignored", [] {
        ::signal(SIGSEGV, SIG_IGN);
        read_fault();
    });
    show_end(me, "SIGSEGV blocked", [] {
        sigset_t all;
        ::sigfillset(&all);
        ::sigprocmask(SIG_BLOCK, &all, nullptr);
        read_fault();
    });
    show_end(me, "the default again", [] {
        ::signal(SIGSEGV, jump_out);
        ::signal(SIGSEGV, SIG_DFL);
        read_fault();
    });
    show_end(me, "another program", [] { ::execlp("sh", "sh", "-c", "kill -SEGV $$", nullptr); });
}
