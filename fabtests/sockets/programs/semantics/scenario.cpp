// SPDX-License-Identifier: BSD-2-Clause
// The main program of all scenarios, and what they share. See scenario.hpp.
#include "fabtests/sockets/programs/semantics/scenario.hpp"
#include "fabtests/patience.hpp"

#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace fabtest {

namespace {

Registration *g_scenarios = nullptr;

void pause_a_little()
{
    ::usleep(1000);
}

// Polls a condition, but not for ever.
template <typename Condition> void await(const char *what, Condition condition)
{
    const std::int64_t end = now_ms() + patience::milliseconds();
    while (!condition()) {
        if (now_ms() > end)
            die("timed out: %s", what);
        pause_a_little();
    }
}

} // namespace

Registration::Registration(const char *scenario, void (*function)(Side &))
    : name(scenario), run(function), next(g_scenarios)
{
    g_scenarios = this;
}

int Side::connection()
{
    const int socket = connect_plain();
    offload(socket);
    return socket;
}

void Side::say(const char *format, ...) const
{
    char line[1024];
    std::va_list args;
    va_start(args, format);
    int len = std::vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (len > static_cast<int>(sizeof line) - 2)
        len = static_cast<int>(sizeof line) - 2;
    line[len] = '\n';
    must(static_cast<int>(::write(STDERR_FILENO, line, static_cast<std::size_t>(len) + 1)), "write");
}

long Side::show(const char *call, long result) const
{
    if (result < 0)
        say("%s = %ld %s", call, result, strerrorname_np(errno));
    else
        say("%s = %ld", call, result);
    return result;
}

std::int64_t now_ms()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void await_readable(int fd, int bytes)
{
    await("bytes to read", [=] {
        int count = 0;
        must(::ioctl(fd, FIONREAD, &count), "FIONREAD");
        return count >= bytes;
    });
}

void await_acknowledged(int fd)
{
    await("acknowledgements", [=] {
        int left = -1;
        must(::ioctl(fd, SIOCOUTQ, &left), "SIOCOUTQ");
        return left == 0;
    });
}

void await_events(int fd, short events)
{
    await("events of poll", [=] {
        pollfd p{fd, events, 0};
        return ::poll(&p, 1, 100) > 0 && (p.revents & events) == events; // or a signal
    });
}

void set_nonblocking(int fd, bool on)
{
    const int flags = must(::fcntl(fd, F_GETFL), "F_GETFL");
    must(::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), "F_SETFL");
}

// That the kernel has: past the library, which counts what the peer's process has been given.
static bool has_unsent(int fd)
{
    int unsent = 0;
    must(static_cast<int>(::syscall(SYS_ioctl, fd, SIOCOUTQ, &unsent)), "SIOCOUTQ");
    return unsent != 0;
}

// Others have done what they had to do: the processors had time for a thread that only runs where nobody else wants to.
// The library's threads work every 10 ms, or when a busy machine lets them.
static void await_others()
{
    std::thread([] {
        const sched_param none{};
        must(::sched_setscheduler(0, SCHED_IDLE, &none), "SCHED_IDLE");
        for (int turn = 0; turn < 3; ++turn) {
            ::usleep(12000);
            timespec used{};
            ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
            const long until = used.tv_nsec + 100000;
            while (used.tv_sec == 0 && used.tv_nsec < until)
                ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
        }
    }).join();
}

// Full for a while, and for good: a peer's process that was asked to go on by the kernel, whose buffers are larger, may
// be late.
void fill_until_full(int fd)
{
    const std::int64_t until = now_ms() + patience::milliseconds();
    static const char block[16384] = {};
    timeval before{};
    socklen_t len = sizeof before;
    must(::getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &before, &len), "SO_SNDTIMEO");
    const timeval little{0, 50000};
    must(::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &little, sizeof little), "SO_SNDTIMEO");
    const int flags = must(::fcntl(fd, F_GETFL), "F_GETFL");
    set_nonblocking(fd, false);
    // Calls that wait, as more room may be found for them than for those that do not.
    for (int full = 0; full < 3 || !has_unsent(fd);) {
        if (now_ms() > until)
            die("it doesn't stay full");
        const ssize_t n = ::send(fd, block, sizeof block, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            die("send: %s", strerrorname_np(errno));
        full = n < 0 ? full + 1 : 0;
        if (n < 0)
            await_others();
    }
    must(::fcntl(fd, F_SETFL, flags), "F_SETFL");
    must(::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &before, sizeof before), "SO_SNDTIMEO");
}

std::size_t drain(int fd)
{
    char block[16384];
    std::size_t total = 0;
    for (ssize_t n; (n = ::recv(fd, block, sizeof block, 0)) != 0;) {
        if (n < 0)
            die("recv after %zu bytes: %s", total, strerrorname_np(errno));
        total += static_cast<std::size_t>(n);
    }
    return total;
}

void send_text(int fd, const char *text)
{
    send_all(fd, text, std::strlen(text));
}

std::string receive_text(int fd, std::size_t len)
{
    std::string text(len, '\0');
    receive_all(fd, text.data(), len);
    return text;
}

void write_pattern(int fd, const Pattern &pattern, std::uint64_t from, std::uint64_t to)
{
    char block[20011];
    while (from < to) {
        const std::size_t len = to - from < sizeof block ? to - from : sizeof block;
        pattern.fill(from, block, len);
        send_all(fd, block, len);
        from += len;
    }
}

void read_pattern(int fd, const Pattern &pattern, std::uint64_t from, std::uint64_t to)
{
    char block[30011];
    while (from < to) {
        const std::size_t len = to - from < sizeof block ? to - from : sizeof block;
        const ssize_t n = ::recv(fd, block, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("%zd %s at %llu of %llu", n, n < 0 ? strerrorname_np(errno) : "", static_cast<unsigned long long>(from),
                static_cast<unsigned long long>(to));
        const std::size_t good = pattern.check(from, block, static_cast<std::size_t>(n));
        if (good != static_cast<std::size_t>(n))
            die("wrong byte at %llu; these stand at %lld", static_cast<unsigned long long>(from + good),
                static_cast<long long>(pattern.find(block + good, static_cast<std::size_t>(n) - good, from + 8000000)));
        from += static_cast<std::uint64_t>(n);
    }
}

std::string event_names(unsigned events)
{
    static constexpr struct {
        unsigned bit;
        const char *name;
    } kNames[] = {{POLLIN, "IN"},         {POLLPRI, "PRI"},       {POLLOUT, "OUT"},      {POLLERR, "ERR"},
                  {POLLHUP, "HUP"},       {POLLNVAL, "NVAL"},     {POLLRDHUP, "RDHUP"},  {POLLRDNORM, "RDNORM"},
                  {POLLRDBAND, "RDBAND"}, {POLLWRNORM, "WRNORM"}, {POLLWRBAND, "WRBAND"}};
    std::string text;
    for (const auto &entry : kNames)
        if (events & entry.bit)
            text += (text.empty() ? "" : "|") + std::string(entry.name);
    return text.empty() ? "none" : text;
}

Alarms::Alarms(int milliseconds, bool restart, void (*handler)(int))
{
    struct sigaction action {
    };
    action.sa_handler = handler;
    action.sa_flags = restart ? SA_RESTART : 0;
    must(::sigaction(SIGALRM, &action, nullptr), "sigaction");
    const itimerval every{{0, milliseconds * 1000}, {0, milliseconds * 1000}};
    must(::setitimer(ITIMER_REAL, &every, nullptr), "setitimer");
}

Alarms::~Alarms()
{
    const itimerval never{};
    must(::setitimer(ITIMER_REAL, &never, nullptr), "setitimer");
    ::signal(SIGALRM, SIG_IGN);
}

} // namespace fabtest

// semantics server|client --control FD [--family F] SCENARIO. The transcript goes to standard error, unbuffered.
int main(int argc, char **argv)
{
    using namespace fabtest;
    if (argc == 6 && std::strcmp(argv[1], "--inherited") == 0)
        return inherited_socket(argv);
    Side me;
    static_cast<Peer &>(me) = parse_peer(&argc, argv);
    const char *wanted = argc == 2 ? argv[1] : "";
    for (const Registration *r = g_scenarios; r != nullptr; r = r->next) {
        if (std::strcmp(r->name, wanted) != 0)
            continue;
        me.open_listener();
        me.fd = me.connection();
        me.step();
        r->run(me);
        me.say("done");
        return 0;
    }
    die("no scenario %s", wanted);
}
