// SPDX-License-Identifier: BSD-2-Clause
// numbers CALL: a program of one thread, which counts on its descriptors. The lowest number that is free is the next
// one, and one that it chooses or closes is nobody else's. Whoever opens libvma-fi.so has some meanwhile, as the linker
// has, until this thread has made two such calls, or sleeps in one.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <string>

#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using fabtest::must;

constexpr int kNumbers = 4; // that are taken at once
constinit std::atomic<unsigned> g_calls{0};
constinit std::atomic<bool> g_may_wait{true};     // in such a call, or where latency is asked for in connect()
constinit std::atomic<bool> g_others_have{false}; // from now on
constinit std::atomic<bool> g_others_had{false};  // no more
constinit std::atomic<bool> g_lost{false};
constexpr std::chrono::milliseconds kPatience(400); // a call waits for half a second, and once
bool g_in_vain = false;                             // one has, on a machine that let nobody else run

// Past every library.
int take_number(const char *path)
{
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

bool main_sleeps()
{
    const std::string path = "/proc/self/task/" + std::to_string(::getpid()) + "/stat";
    const int fd = take_number(path.c_str());
    char text[1024] = {};
    const long length = ::syscall(SYS_read, fd, text, sizeof text - 1);
    ::syscall(SYS_close, fd);
    const char *const name = length > 0 ? std::strrchr(text, ')') : nullptr; // the state is behind it
    return name != nullptr && name[1] == ' ' && name[2] == 'S';
}

void have_numbers_for_a_while()
{
    int numbers[kNumbers];
    for (int &number : numbers)
        number = take_number("/dev/null");
    g_others_have.store(true);
    const std::time_t until = std::time(nullptr) + patience::seconds();
    const unsigned begun = g_calls.load();
    while (g_calls.load() < begun + 2 && !(g_may_wait.load() && main_sleeps()) && std::time(nullptr) < until) {
    }
    for (const int number : numbers)
        if (::syscall(SYS_fcntl, number, F_GETFD) != FD_CLOEXEC || ::syscall(SYS_close, number) != 0)
            g_lost.store(true);
    g_others_had.store(true);
}

// All below it are in use from then on, and none above it.
int first_free(const fabtest::Ends &ends)
{
    int fd = -1;
    while (fd < std::max(ends.a, ends.b))
        fd = must(::dup(STDIN_FILENO), "dup");
    ::close(fd);
    return fd;
}

using Call = int(int first); // what it was given, where it was

const std::map<std::string, Call *> kCalls = {
    {"dup", [](int) { return must(::dup(STDIN_FILENO), "dup"); }},
    {"fcntl", [](int first) { return must(::fcntl(STDIN_FILENO, F_DUPFD, first), "fcntl"); }},
    {"open", [](int) { return must(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open"); }},
    {"socket", [](int) { return must(::socket(AF_INET, SOCK_STREAM, 0), "socket"); }},
    {"eventfd", [](int) { return must(::eventfd(0, 0), "eventfd"); }},
    {"dup2", [](int first) { return must(::dup2(STDIN_FILENO, first), "dup2"); }},
    {"close",
     [](int first) {
         for (int fd = first; fd < first + kNumbers; ++fd)
             ::close(fd);
         return first;
     }},
    {"closefrom",
     [](int first) {
         ::closefrom(first);
         return first;
     }},
};

void use_number(Call *call, int first)
{
    const auto began = std::chrono::steady_clock::now();
    g_may_wait.store(true);
    const int fd = call(first);
    g_may_wait.store(false);
    g_in_vain = g_in_vain || std::chrono::steady_clock::now() - began >= kPatience;
    if (fd != first && !g_in_vain && g_others_have.load() && !g_others_had.load())
        fabtest::die("%d in place of %d", fd, first);
    ::close(fd);
    g_calls.fetch_add(1);
}

} // namespace

extern "C" [[gnu::visibility("default")]] void *dlopen(const char *path, int mode) noexcept
{
    static const auto next = reinterpret_cast<decltype(&::dlopen)>(::dlsym(RTLD_NEXT, "dlopen"));
    if (path != nullptr && std::strstr(path, "libvma-fi") != nullptr)
        have_numbers_for_a_while();
    return next(path, mode);
}

int main(int argc, char **argv)
{
    const auto found = argc == 2 ? kCalls.find(argv[1]) : kCalls.end();
    if (found == kCalls.end())
        fabtest::die("numbers CALL");
    const fabtest::Ends ends = fabtest::connected();
    g_may_wait.store(false);
    const int first = first_free(ends);
    const bool others_come = fabtest::offload_expected();
    for (int i = 0; others_come ? !g_others_had.load() : i < 100; ++i) {
        fabtest::talk(ends, 1);
        use_number(found->second, first);
    }
    fabtest::accelerate(ends);
    std::puts(g_lost.load() && !g_in_vain ? "a number of another thread was closed" : "each had its own numbers");
    return 0;
}
