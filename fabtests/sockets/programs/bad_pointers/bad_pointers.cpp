// SPDX-License-Identifier: BSD-2-Clause
// Every function that libvma.so exports (table.cpp), with each of its pointers bad in each way, one at a time, and what
// came of it: a line each. The harness compares the lines of the kernel with the library's. Usage: bad_pointers names |
// none | epoll | socket | plain | accelerated, which is what the process has besides. A call that may end the process
// is made in a child; not those on accelerated connections, which a child has not: there the harness names, on standard
// input, the calls that end it.
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <set>
#include <sstream>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/bad_pointers/contents.hpp"
#include "fabtests/sockets/programs/bad_pointers/table.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostArguments = 7;
constexpr int kUntouched = 200;                                    // errno before a call, which no call sets
const auto kPatience = static_cast<unsigned>(patience::seconds()); // a call, which ends at once or never

enum class Way { kNull, kGone, kNone, kBeyond, kConstant, kBorder, kFits };
struct {
    Way way;
    const char *name;
} const kWays[] = {{Way::kNull, "null"},           {Way::kGone, "unmapped"},
                   {Way::kNone, "without rights"}, {Way::kBeyond, "the kernel's"},
                   {Way::kConstant, "read-only"},  {Way::kBorder, "one byte before nothing"},
                   {Way::kFits, "up to nothing"}};

char *map(int rights)
{
    void *const pages = ::mmap(nullptr, 2 * kPage, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        die("mmap: %s", strerrorname_np(errno));
    return static_cast<char *>(pages);
}

// Below all that is mapped, where nobody's mmap() comes to lie meanwhile.
constexpr std::uintptr_t kGone = 0x20000;

char *border() // there before it, without rights from it on
{
    char *const pages = map(PROT_READ | PROT_WRITE);
    must(::mprotect(pages + kPage, kPage, PROT_NONE), "mprotect");
    return pages + kPage;
}

char *constant(const std::string &bytes)
{
    char *const pages = map(PROT_READ | PROT_WRITE);
    std::memcpy(pages, bytes.data(), bytes.size());
    must(::mprotect(pages, 2 * kPage, PROT_READ), "mprotect");
    return pages;
}

char *before_border(const std::string &bytes)
{
    char *const place = border() - bytes.size();
    std::memcpy(place, bytes.data(), bytes.size());
    return place;
}

const void *bad(Way way, const std::string &bytes)
{
    static char *const none = map(PROT_NONE);
    switch (way) {
    case Way::kGone:
        return reinterpret_cast<const void *>(kGone);
    case Way::kNone:
        return none;
    case Way::kBeyond:
        return reinterpret_cast<const void *>(std::uintptr_t{0xffff888000000000});
    case Way::kConstant:
        return constant(bytes);
    case Way::kBorder:
        return before_border(bytes.substr(0, 1));
    case Way::kFits:
        return before_border(bytes);
    default:
        return nullptr;
    }
}

// ---- a call

struct Case {
    const Row *row;
    std::vector<std::string> words;
    std::size_t argument; // the bad one; none if words has fewer
    Way way;
    std::string kind; // of fd
    std::string name;
};

bool is_pointer(const std::string &word)
{
    return word.size() > 1 && word[1] == ':';
}

// What only libc knows the bytes of can't be made; what is only read is as well in constant pages.
bool makes_sense(const std::string &word, Way way)
{
    if (word[0] == 'p')
        return way <= Way::kBeyond;
    if (word[0] == 'w')
        return way != Way::kNull;
    return word[0] != 'i' || way != Way::kConstant;
}

long value_of(const std::string &word, const Descriptors &d)
{
    if (word == "fd")
        return d.fd;
    if (word == "set")
        return d.set;
    if (word == "pipe")
        return d.pipe[0];
    if (word == "into")
        return d.pipe[1];
    if (word == "file")
        return d.file;
    return std::stol(word);
}

using Function = long (*)(long, long, long, long, long, long, long);

struct Result {
    long value;
    int error;
};

Result call(const Case &c, const Descriptors &d)
{
    static char room[kMostArguments][kPage];
    long a[kMostArguments] = {};
    std::size_t n = 0;
    if (c.row->number >= 0)
        a[n++] = c.row->number;
    for (std::size_t i = 0; i < c.words.size(); ++i, ++n) {
        const std::string &word = c.words[i];
        if (!is_pointer(word)) {
            a[n] = value_of(word, d);
            continue;
        }
        const std::string bytes = word[0] == 'p' ? std::string() : content(word.substr(2), d);
        std::memset(room[i], 0, kPage);
        std::memcpy(room[i], bytes.data(), bytes.size());
        a[n] = reinterpret_cast<long>(i == c.argument ? bad(c.way, bytes) : room[i]);
    }
    auto *const function =
        reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, c.row->number >= 0 ? "syscall" : c.row->name.c_str()));
    if (function == nullptr)
        die("%s: not there", c.row->name.c_str());
    errno = kUntouched;
    const long value = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    return {value, errno};
}

std::string told(const Case &c, const Result &r)
{
    const bool pointer = c.row->gives == Row::Gives::kPointer;
    const auto number = static_cast<int>(r.value);
    const bool untouched = r.error == kUntouched;
    if (pointer ? r.value == 0 : number == -1)
        return untouched ? "fails, no error" : strerrorname_np(r.error);
    const std::string came = pointer || c.row->gives == Row::Gives::kDescriptor ? "made" : std::to_string(number);
    return came + (untouched ? "" : std::string(", errno became ") + strerrorname_np(r.error));
}

// ---- what the process has

Descriptors around(int fd, int other)
{
    Descriptors d;
    d.fd = fd;
    d.other = other;
    d.set = must(::epoll_create1(0), "epoll_create1");
    epoll_event event = {EPOLLIN | EPOLLOUT, {}};
    must(::epoll_ctl(d.set, EPOLL_CTL_ADD, other, &event), "epoll_ctl");
    must(::pipe2(d.pipe, O_NONBLOCK), "pipe2");
    must(static_cast<int>(::write(d.pipe[1], "0123456789abcdef", 16)), "write");
    d.file = must(::memfd_create("file", 0), "memfd_create");
    must(static_cast<int>(::pwrite(d.file, "0123456789abcdef", 16, 0)), "pwrite");
    return d;
}

void close_around(const Descriptors &d)
{
    for (const int fd : {d.set, d.pipe[0], d.pipe[1], d.file})
        ::close(fd);
}

// ---- which descriptors a case leaves
//
// Their numbers are nothing to compare: a thread of the library's has one of its own at a low
// number for a moment, before it moves it up, and the program's next one gets another number than without it.

constexpr int kNumbers = 64; // more than a process has here; the library's are above

int count_open()
{
    int open = 0;
    for (int fd = 0; fd < kNumbers; ++fd)
        open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open;
}

bool has_threads()
{
    struct stat tasks = {};
    return ::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3; // itself, its parent, and a folder a thread
}

class Left
{
public:
    explicit Left(int before) : before_(before) {}

    // What is open more than before the case, or less. What is there for a moment only is waited for.
    std::string told()
    {
        int open = count_open();
        for (int look = 0; open > before_ && look < kLooks && has_threads(); ++look) {
            ::usleep(1000);
            open = count_open();
        }
        const int more = open - before_;
        before_ = open;
        return more != 0 ? ", leaves " + std::to_string(more) : "";
    }

private:
    static constexpr int kLooks = 200;
    int before_;
};

// What the program's numbers stand for.
struct Files {
    explicit Files(const Descriptors &d)
    {
        std::size_t i = 0;
        for (const int fd : {d.fd, d.other, d.set, d.pipe[0], d.pipe[1], d.file})
            all[i++] = ::fstat(fd, &status) == 0 ? status.st_ino : 0;
    }
    bool operator==(const Files &other) const { return std::ranges::equal(all, other.all); }

    struct stat status = {};
    ino_t all[6] = {};
};

// A set with an event, as a wait for ever ends at once then.
int eventful_set()
{
    const int set = must(::epoll_create1(0), "epoll_create1");
    static const int event_fd = must(::eventfd(1, 0), "eventfd");
    epoll_event event = {EPOLLIN, {}};
    must(::epoll_ctl(set, EPOLL_CTL_ADD, event_fd, &event), "epoll_ctl");
    return set;
}

int udp_to_itself()
{
    const int fd = must(::socket(AF_INET, SOCK_DGRAM, 0), "socket");
    sockaddr_in name = {};
    socklen_t length = sizeof name;
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(::bind(fd, reinterpret_cast<sockaddr *>(&name), length), "bind");
    must(::getsockname(fd, reinterpret_cast<sockaddr *>(&name), &length), "getsockname");
    must(::connect(fd, reinterpret_cast<sockaddr *>(&name), length), "connect");
    return fd;
}

// Bytes to be read, and room, at both ends where it has two.
Ends pair_of(const std::string &kind)
{
    int two[2] = {-1, -1};
    if (kind == "plain")
        return connected();
    if (kind == "unix")
        must(::socketpair(AF_UNIX, SOCK_STREAM, 0, two), "socketpair");
    else
        two[0] = kind == "epoll set" ? eventful_set()
                 : kind == "udp"     ? udp_to_itself()
                                     : must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    if (two[1] < 0)
        two[1] = must(::dup(two[0]), "dup");
    return {two[0], two[1]};
}

void fill(const Ends &ends)
{
    for (const int fd : {ends.a, ends.b})
        static_cast<void>(::send(fd, "0123456789abcdef", 16, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void drain(const Ends &ends)
{
    char bytes[256];
    for (const int fd : {ends.a, ends.b})
        while (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        }
}

// ---- in children, each of which goes on until a call ends it

struct Shared { // what the child tells
    std::size_t next;
    char result[64];
};

std::string ended(int status)
{
    if (WIFSIGNALED(status))
        return std::string("killed by ") + sigabbrev_np(WTERMSIG(status));
    return "exit " + std::to_string(WEXITSTATUS(status));
}

void tell(const Case &c, const std::string &result)
{
    ::printf("%s: %s\n", c.name.c_str(), result.c_str());
    ::fflush(stdout);
}

// Makes the call of a case on these ends, and says what came of it. `over` is what becomes of the ends.
template <typename Over> void observe(const Case &c, const Ends &ends, Left &left, Over over)
{
    fill(ends);
    const Descriptors d = around(ends.a, ends.b);
    ::alarm(kPatience);
    const Files files(d);
    const Result result = call(c, d);
    const bool same = files == Files(d);
    close_around(d);
    over();
    if (result.value > STDERR_FILENO && c.row->gives == Row::Gives::kDescriptor)
        ::close(static_cast<int>(result.value));
    tell(c, told(c, result) + (same ? "" : ", files changed") + left.told());
}

void make_calls(const std::vector<Case> &cases, Shared &shared)
{
    Left left(count_open()); // there is no other thread yet
    for (; shared.next < cases.size(); ++shared.next) {
        const Case &c = cases[shared.next];
        const Ends ends = pair_of(c.kind);
        observe(c, ends, left, [&ends] {
            ::close(ends.a);
            ::close(ends.b);
        });
    }
}

void in_children(const std::vector<Case> &cases)
{
    auto &shared = *static_cast<Shared *>(
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    while (shared.next < cases.size()) {
        const pid_t child = must(::fork(), "fork");
        if (child == 0) {
            make_calls(cases, shared);
            ::_exit(0);
        }
        int status = -1;
        must(::waitpid(child, &status, 0), "waitpid");
        if (shared.next == cases.size())
            break;
        tell(cases[shared.next], ended(status));
        ++shared.next;
    }
}

// ---- on accelerated connections

bool names_descriptor(const Case &c)
{
    return std::ranges::any_of(c.words, [](const std::string &word) {
        return word == "fd" || word == "set" || word == "b:pollfd" || word.ends_with(":fdset");
    });
}

void without_children(const std::vector<Case> &cases)
{
    std::set<std::string> deadly;
    for (std::string line; std::getline(std::cin, line);)
        deadly.insert(line);
    Ends ends = {-1, -1};
    const Row *row = nullptr;
    Left left(count_open() + 2); // and the ends; there is no other thread yet
    for (const Case &c : cases) {
        if (deadly.contains(c.name) || !names_descriptor(c))
            continue;
        if (row != c.row) { // some of them are given to the kernel by a call
            ::close(ends.a);
            ::close(ends.b);
            ends = accelerated();
            row = c.row;
        }
        observe(c, ends, left, [&ends] { drain(ends); });
    }
}

std::vector<std::string> words_of(const std::string &line)
{
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

std::vector<Case> cases_of(const std::vector<std::string> &kinds)
{
    std::vector<Case> made;
    for (const Row &row : rows()) {
        std::vector<std::string> words = words_of(row.arguments);
        if (words[0] == "-")
            continue;
        if (words[0] == "=") {
            words.erase(words.begin());
            made.push_back({&row, words, words.size(), Way::kNull, kinds[0], row.name + "(" + row.arguments + ")"});
            continue;
        }
        for (const std::string &kind : kinds)
            for (std::size_t i = 0; i < words.size(); ++i)
                for (const auto &[way, name] : kWays)
                    if (is_pointer(words[i]) && makes_sense(words[i], way))
                        made.push_back({&row, words, i, way, kind,
                                        row.name + "(" + row.arguments + ") argument " + std::to_string(i + 1) + " " +
                                            name + ", " + kind});
    }
    return made;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string has = argc == 2 ? argv[1] : "";
    const rlimit no_core = {};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(SIGPIPE, SIG_IGN);
    if (has == "names") {
        for (const Row &row : rows())
            std::puts(row.number >= 0 ? "syscall" : row.name.c_str());
    } else if (has == "accelerated") {
        without_children(cases_of({has}));
    } else if (has == "none") {
        in_children(cases_of({"unix"}));
    } else if (has == "epoll") {
        must(::epoll_create1(0), "epoll_create1");
        in_children(cases_of({"unix", "epoll set"}));
    } else if (has == "socket") {
        must(::socket(AF_INET, SOCK_STREAM, 0), "socket");
        in_children(cases_of({"unix", "tcp", "udp"}));
    } else if (has == "plain") {
        in_children(cases_of({has}));
    } else {
        die("usage: bad_pointers names|none|epoll|socket|plain|accelerated");
    }
    return 0;
}
