// SPDX-License-Identifier: BSD-2-Clause
// What common calls cost on descriptors that are no TCP sockets: run with and without a preload library, the difference
// is what the library adds to them. Each figure is the median of many short rounds, so that an interruption spoils one
// of them. Usage: call_cost; prints one JSON line, nanoseconds a call.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

namespace {

constexpr std::size_t kRounds = 151;
constexpr int kCalls = 200; // a round

void check(bool ok, const char *what)
{
    if (!ok) {
        std::perror(what);
        std::exit(1);
    }
}

struct Descriptors {
    int null = -1;     // /dev/null
    int zero = -1;     // /dev/zero
    int local[2] = {}; // a pair of UNIX stream sockets, nothing to read
    int full[2] = {};  // a pair of UNIX datagram sockets, no room to send
    int udp = -1;      // nothing to read
    int listener = -1; // of UNIX sockets, nothing to accept
    int pipe[2] = {};  // nothing to read
    int set = -1;      // an epoll set of pipe[0]
    int file = -1;     // of this process alone
    int event = -1;    // an eventfd
    int signals = -1;  // a signalfd
    int spare = -1;    // for dup2()
};

using Call = void (*)(const Descriptors &);

struct Measured {
    const char *name;
    Call call;
};

char g_byte;
iovec g_part = {&g_byte, 1};
sigset_t g_no_signals;

msghdr message()
{
    msghdr made = {};
    made.msg_iov = &g_part;
    made.msg_iovlen = 1;
    return made;
}

void lock(int fd, int command, short type)
{
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    fcntl(fd, command, &lock);
}

template <typename T> void ignore(T) {}

const Measured kMoving[] = {
    {"write_null_ns", [](const Descriptors &d) { ignore(write(d.null, &g_byte, 1)); }},
    {"writev_null_ns", [](const Descriptors &d) { ignore(writev(d.null, &g_part, 1)); }},
    {"pwritev2_null_ns", [](const Descriptors &d) { ignore(pwritev2(d.null, &g_part, 1, -1, 0)); }},
    {"read_zero_ns", [](const Descriptors &d) { ignore(read(d.zero, &g_byte, 1)); }},
    {"readv_zero_ns", [](const Descriptors &d) { ignore(readv(d.zero, &g_part, 1)); }},
    {"preadv2_zero_ns", [](const Descriptors &d) { ignore(preadv2(d.zero, &g_part, 1, -1, 0)); }},
    {"syscall_read_zero_ns", [](const Descriptors &d) { ignore(syscall(SYS_read, d.zero, &g_byte, 1)); }},
    {"recv_unix_ns", [](const Descriptors &d) { recv(d.local[0], &g_byte, 1, MSG_DONTWAIT); }},
    {"recvfrom_unix_ns",
     [](const Descriptors &d) { recvfrom(d.local[0], &g_byte, 1, MSG_DONTWAIT, nullptr, nullptr); }},
    {"recvmsg_unix_ns",
     [](const Descriptors &d) {
         msghdr m = message();
         recvmsg(d.local[0], &m, MSG_DONTWAIT);
     }},
    {"recvmmsg_unix_ns",
     [](const Descriptors &d) {
         mmsghdr m = {message(), 0};
         recvmmsg(d.local[0], &m, 1, MSG_DONTWAIT, nullptr);
     }},
    {"send_unix_ns", [](const Descriptors &d) { send(d.full[0], &g_byte, 1, MSG_DONTWAIT); }},
    {"sendto_unix_ns", [](const Descriptors &d) { sendto(d.full[0], &g_byte, 1, MSG_DONTWAIT, nullptr, 0); }},
    {"sendmsg_unix_ns",
     [](const Descriptors &d) {
         const msghdr m = message();
         sendmsg(d.full[0], &m, MSG_DONTWAIT);
     }},
    {"sendmmsg_unix_ns",
     [](const Descriptors &d) {
         mmsghdr m = {message(), 0};
         sendmmsg(d.full[0], &m, 1, MSG_DONTWAIT);
     }},
    {"sendfile_null_ns", [](const Descriptors &d) { ignore(sendfile(d.null, d.file, nullptr, 0)); }},
    {"splice_pipe_ns",
     [](const Descriptors &d) { ignore(splice(d.pipe[0], nullptr, d.null, nullptr, 1, SPLICE_F_NONBLOCK)); }},
    {"eventfd_write_ns", [](const Descriptors &d) { eventfd_write(d.event, 1); }},
    {"eventfd_read_ns",
     [](const Descriptors &d) {
         eventfd_t value = 0;
         eventfd_read(d.event, &value);
     }},
    {"recv_udp_ns", [](const Descriptors &d) { recv(d.udp, &g_byte, 1, MSG_DONTWAIT); }},
};

const Measured kAsking[] = {
    {"getfl_pipe_ns", [](const Descriptors &d) { fcntl(d.pipe[0], F_GETFL); }},
    {"setlk_file_ns",
     [](const Descriptors &d) {
         lock(d.file, F_SETLK, F_WRLCK);
         lock(d.file, F_SETLK, F_UNLCK);
     }},
    {"getlk_file_ns", [](const Descriptors &d) { lock(d.file, F_GETLK, F_WRLCK); }},
    {"ofd_setlk_file_ns",
     [](const Descriptors &d) {
         lock(d.file, F_OFD_SETLK, F_WRLCK);
         lock(d.file, F_OFD_SETLK, F_UNLCK);
     }},
    {"fionread_pipe_ns",
     [](const Descriptors &d) {
         int bytes = 0;
         ioctl(d.pipe[0], FIONREAD, &bytes);
     }},
    {"getsockopt_unix_ns",
     [](const Descriptors &d) {
         int value = 0;
         socklen_t length = sizeof value;
         getsockopt(d.local[0], SOL_SOCKET, SO_TYPE, &value, &length);
     }},
    {"setsockopt_unix_ns",
     [](const Descriptors &d) {
         const int value = 0;
         setsockopt(d.local[0], SOL_SOCKET, SO_PASSCRED, &value, sizeof value);
     }},
    {"getsockname_unix_ns",
     [](const Descriptors &d) {
         sockaddr_storage name = {};
         socklen_t length = sizeof name;
         getsockname(d.local[0], reinterpret_cast<sockaddr *>(&name), &length);
     }},
    {"connect_unix_ns",
     [](const Descriptors &d) {
         const sockaddr name = {AF_UNIX, {}};
         connect(d.local[0], &name, sizeof name);
     }},
    {"accept_unix_ns", [](const Descriptors &d) { accept4(d.listener, nullptr, nullptr, 0); }},
    {"listen_unix_ns", [](const Descriptors &d) { listen(d.listener, 1); }},
    {"poll_pipe_ns",
     [](const Descriptors &d) {
         pollfd entry{d.pipe[0], POLLIN, 0};
         poll(&entry, 1, 0);
     }},
    {"ppoll_pipe_ns",
     [](const Descriptors &d) {
         pollfd entry{d.pipe[0], POLLIN, 0};
         const timespec none = {};
         ppoll(&entry, 1, &none, &g_no_signals);
     }},
    {"select_pipe_ns",
     [](const Descriptors &d) {
         fd_set in;
         FD_ZERO(&in);
         FD_SET(d.pipe[0], &in);
         timeval none = {};
         select(d.pipe[0] + 1, &in, nullptr, nullptr, &none);
     }},
    {"epoll_pipe_ns",
     [](const Descriptors &d) {
         epoll_event event{};
         epoll_wait(d.set, &event, 1, 0);
     }},
    {"epoll_pwait2_pipe_ns",
     [](const Descriptors &d) {
         epoll_event event{};
         const timespec none = {};
         epoll_pwait2(d.set, &event, 1, &none, nullptr);
     }},
    {"epoll_ctl_pipe_ns",
     [](const Descriptors &d) {
         epoll_event event{};
         event.events = EPOLLIN;
         epoll_ctl(d.set, EPOLL_CTL_MOD, d.pipe[0], &event);
     }},
    {"syscall_gettid_ns", [](const Descriptors &) { ignore(syscall(SYS_gettid)); }},
    {"sigaction_ns",
     [](const Descriptors &) {
         struct sigaction now = {};
         sigaction(SIGUSR1, nullptr, &now);
     }},
};

const Measured kMaking[] = {
    {"dup_close_ns", [](const Descriptors &d) { close(dup(d.pipe[0])); }},
    {"dupfd_close_ns", [](const Descriptors &d) { close(fcntl(d.pipe[0], F_DUPFD_CLOEXEC, 3)); }},
    {"dup2_ns", [](const Descriptors &d) { dup2(d.zero, d.spare); }},
    {"open_close_ns", [](const Descriptors &) { close(open("/dev/null", O_RDONLY)); }},
    {"eventfd_close_ns", [](const Descriptors &) { close(eventfd(0, 0)); }},
    {"socketpair_close_ns",
     [](const Descriptors &) {
         int both[2];
         check(socketpair(AF_UNIX, SOCK_DGRAM, 0, both) == 0, "socketpair");
         close(both[0]);
         close(both[1]);
     }},
    {"signalfd_ns", [](const Descriptors &d) { signalfd(d.signals, &g_no_signals, 0); }},
    {"close_nothing_ns", [](const Descriptors &) { close(-1); }},
    {"close_range_nothing_ns", [](const Descriptors &) { close_range(600, 700, 0); }},
};

Descriptors open_all()
{
    Descriptors d;
    d.null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    d.zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    d.udp = socket(AF_INET, SOCK_DGRAM, 0);
    d.set = epoll_create1(EPOLL_CLOEXEC);
    check(d.null >= 0 && d.zero >= 0 && d.udp >= 0 && d.set >= 0, "call_cost: open");
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, d.local) == 0, "call_cost: socketpair");
    check(socketpair(AF_UNIX, SOCK_DGRAM, 0, d.full) == 0, "call_cost: socketpair");
    while (send(d.full[0], "", 1, MSG_DONTWAIT) == 1) {
    }
    check(pipe2(d.pipe, O_CLOEXEC | O_NONBLOCK) == 0, "call_cost: pipe");
    sockaddr_un name = {AF_UNIX, {}};
    d.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    check(bind(d.listener, reinterpret_cast<sockaddr *>(&name), sizeof name.sun_family) == 0, "call_cost: bind");
    check(listen(d.listener, 1) == 0, "call_cost: listen");
    d.file = memfd_create("call_cost", 0);
    d.event = eventfd(1, EFD_NONBLOCK);
    sigemptyset(&g_no_signals);
    d.signals = signalfd(-1, &g_no_signals, 0);
    d.spare = dup(d.null);
    check(d.file >= 0 && d.event >= 0 && d.signals >= 0 && d.spare >= 0, "call_cost: others");
    epoll_event event{};
    event.events = EPOLLIN;
    check(epoll_ctl(d.set, EPOLL_CTL_ADD, d.pipe[0], &event) == 0, "call_cost: epoll_ctl");
    return d;
}

std::vector<Measured> every_call()
{
    std::vector<Measured> all(std::begin(kMoving), std::end(kMoving));
    all.insert(all.end(), std::begin(kAsking), std::end(kAsking));
    all.insert(all.end(), std::begin(kMaking), std::end(kMaking));
    return all;
}

double now_ns()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

} // namespace

int main()
{
    const Descriptors d = open_all();
    const auto all = every_call();
    std::vector<std::array<double, kRounds>> times(all.size());
    for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            const double start = now_ns();
            for (int n = 0; n < kCalls; ++n)
                all[i].call(d);
            times[i][round] = (now_ns() - start) / kCalls;
        }
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::ranges::sort(times[i]);
        std::printf("%s\"%s\": %.2f", i == 0 ? "{" : ", ", all[i].name, times[i][kRounds / 2]);
    }
    std::printf("}\n");
    return 0;
}
