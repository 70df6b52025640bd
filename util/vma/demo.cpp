// SPDX-License-Identifier: BSD-2-Clause
// vma demo: what the library makes of a round trip on this machine, in some seconds. The kernel is also shown at its
// best, with both sides asking again and again, as waking a processor that sleeps flatters whoever polls.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "compat/src/stats/text.hpp"
#include "util/vma/commands.hpp"
#include "util/vma/files.hpp"
#include "util/vma/library.hpp"
#include "util/vma/pingpong.hpp"
#include "util/vma/preload.hpp"
#include "util/vma/processes.hpp"
#include "util/vma/reasons.hpp"

namespace vma::command {

namespace {

struct Way {
    const char *name;
    bool library;
    const char *spec; // VMA_SPEC, nullptr for none
    bool spins;
    bool needs_two; // processors
};

constexpr Way kWays[] = {
    {"kernel", false, nullptr, false, false},
    {"kernel, both ends polling", false, nullptr, true, true},
    {"libvma", true, nullptr, false, false},
    {"libvma --latency", true, "latency", false, true},
};

struct Wishes {
    unsigned milliseconds = 1000; // of each way
    std::size_t size = 64;        // bytes
    std::string library;
};

struct Figures {
    unsigned long long count = 0;
    unsigned long long p50 = 0; // ns
    unsigned long long p99 = 0;
    unsigned long long ns = 0;
};

struct Result {
    Figures figures;
    bool accelerated = false;
    std::string reason; // why not
};

// A process of ours with pipes to and from it. It ends with this.
class Child
{
public:
    Child() = default;
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    ~Child()
    {
        end_input();
        if (output_ != nullptr)
            ::fclose(output_);
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL); // a child that has ended is still ours
            ::waitpid(pid_, nullptr, 0);
        }
    }

    bool start(const std::vector<std::string> &words, const std::vector<std::string> &environment);
    bool read_line(char *line, int size) { return output_ != nullptr && ::fgets(line, size, output_) != nullptr; }
    bool tell_to_begin() { return ::write(input_, "\n", 1) == 1; }
    void end_input()
    {
        if (input_ >= 0)
            ::close(input_);
        input_ = -1;
    }
    bool ends_well()
    {
        int status = 1;
        end_input();
        const pid_t pid = pid_;
        pid_ = 0;
        while (pid > 0 && ::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        return status == 0;
    }
    pid_t pid() const { return pid_; }

private:
    pid_t pid_ = 0;
    int input_ = -1;
    FILE *output_ = nullptr;
};

std::vector<char *> pointers(const std::vector<std::string> &words)
{
    std::vector<char *> all;
    all.reserve(words.size() + 1);
    for (const std::string &word : words)
        all.push_back(const_cast<char *>(word.c_str())); // exec() writes to none of them
    all.push_back(nullptr);
    return all;
}

bool Child::start(const std::vector<std::string> &words, const std::vector<std::string> &environment)
{
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0)
        return false;
    if (::pipe2(out, O_CLOEXEC) != 0) {
        ::close(in[0]);
        ::close(in[1]);
        return false;
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int error =
        ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers(words).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_ = ::fdopen(out[0], "r");
    pid_ = error == 0 ? pid_ : 0;
    errno = error;
    return error == 0;
}

std::vector<std::string> environment_of(const Way &way, const std::string &library)
{
    std::vector<std::string> all;
    std::string preload;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with("LD_PRELOAD="))
            preload = text.substr(strlen("LD_PRELOAD="));
        else if (!text.starts_with("VMA_SPEC=") && !text.starts_with("VMA_STATS_SHMEM_DIR="))
            all.emplace_back(text);
    }
    all.push_back("VMA_STATS_SHMEM_DIR=" + counters_folder());
    if (way.spec != nullptr)
        all.push_back(std::string("VMA_SPEC=") + way.spec);
    preload = preload_value(way.library ? library : "", preload);
    if (!trim(preload).empty())
        all.push_back("LD_PRELOAD=" + preload);
    if (way.library && ::secure_getenv("VMA_TRACELEVEL") == nullptr)
        all.emplace_back("VMA_TRACELEVEL=warn");
    return all;
}

// Whether nothing will change any more: it is accelerated, or the kernel's for good.
bool look_at_connection(pid_t pid, Result &out)
{
    Accelerated process;
    bool settled = false;
    if (!find_process(counters_folder(), pid, process)) {
        out.reason = "its counters can't be read";
        return false;
    }
    for (const vma::stats::Slot &slot : process.snapshot.slots) {
        if (slot.facts.fd < 0)
            continue;
        out.accelerated = vma::stats::is_offloaded(slot.facts);
        out.reason = slot.facts.reason;
        settled = out.accelerated || slot.facts.way == vma::stats::Way::kPinned;
    }
    return settled;
}

// After some messages, or not at all; a busy machine may take its time for these.
void wait_for_acceleration(pid_t pid, Result &out)
{
    constexpr int kMostLooks = 1500;
    constexpr unsigned kPauseUs = 10000; // nobody tells when a page that is shared is written
    for (int i = 0; i < kMostLooks && !look_at_connection(pid, out); ++i)
        ::usleep(kPauseUs);
}

std::optional<Result> measure(const Way &way, const Wishes &wishes, const std::string &library)
{
    Child server;
    Child client;
    Result result;
    char line[128];
    const std::string spins = way.spins ? "1" : "0";
    const std::string size = std::to_string(wishes.size);
    const std::vector<std::string> environment = environment_of(way, library);
    if (!server.start({"vma", "demo", kServerRole, spins, size}, environment) || !server.read_line(line, sizeof line))
        return std::nullopt;
    const std::string port(trim(line));
    if (!client.start({"vma", "demo", kClientRole, port, spins, size, std::to_string(wishes.milliseconds)},
                      environment))
        return std::nullopt;
    if (way.library)
        wait_for_acceleration(client.pid(), result);
    if (!client.tell_to_begin() || !client.read_line(line, sizeof line))
        return std::nullopt;
    Figures &f = result.figures;
    if (sscanf(line, "%llu %llu %llu %llu", &f.count, &f.p50, &f.p99, &f.ns) != 4 || f.ns == 0)
        return std::nullopt;
    if (way.library) // still?
        look_at_connection(client.pid(), result);
    const bool good = client.ends_well();
    return server.ends_well() && good ? std::optional(result) : std::nullopt;
}

void print_row(const Way &way, const Result &r, unsigned long long best)
{
    const Figures &f = r.figures;
    printf("%-27s %9.2f us %9.2f us %12.0f  ", way.name, static_cast<double>(f.p50) / 1e3,
           static_cast<double>(f.p99) / 1e3, static_cast<double>(f.count) * 1e9 / static_cast<double>(f.ns));
    if (!way.library)
        printf("\n");
    else if (!r.accelerated)
        printf("NOT accelerated: %s\n", r.reason.c_str());
    else
        printf("%.1f times the kernel's best\n", static_cast<double>(best) / static_cast<double>(f.p50));
    fflush(stdout);
}

void say_if_busy(const cpu_set_t &set)
{
    double load = 0;
    if (::getloadavg(&load, 1) == 1 && load > CPU_COUNT(&set) / 2.0)
        printf("This machine is busy (load %.1f, %d processors): figures vary, and those of who polls suffer most\n",
               load, CPU_COUNT(&set));
}

int measure_all(const Wishes &wishes, const std::string &library)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    const bool two = ::sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
    unsigned long long best = 0; // median of the kernel
    int status = kFine;
    printf("TCP within this host, one message of %zu bytes at a time, there and back; %s\n\n", wishes.size,
           library.c_str());
    printf("%-27s %12s %12s %12s\n", "", "median", "99 of 100", "a second");
    for (const Way &way : kWays) {
        if (way.needs_two && !two) {
            printf("%-27s not measured: this process has one processor, and both ends poll\n", way.name);
            continue;
        }
        const std::optional<Result> result = measure(way, wishes, library);
        if (!result) {
            printf("%-27s failed\n", way.name);
            status = kNo;
            continue;
        }
        if (!way.library && (best == 0 || result->figures.p50 < best))
            best = result->figures.p50;
        print_row(way, *result, best);
        if (way.library && !result->accelerated)
            status = kNo;
    }
    printf("\n");
    say_if_busy(set);
    printf("%s\n", status == kFine ? "Your own programs: vma run [--latency] -- PROGRAM, at both ends; then vma list"
                                   : "What is in the way: vma check");
    return status;
}

constexpr option kOptions[] = {
    {"seconds", required_argument, nullptr, 't'},
    {"size", required_argument, nullptr, 'b'},
    {"library", required_argument, nullptr, 'L'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

// What starts this program again. Nothing: the words are not of that kind.
std::optional<int> play_role(int argc, char **argv)
{
    const auto number = [&](int i) {
        return i < argc ? static_cast<std::size_t>(parse_number(argv[i], 1 << 20).value_or(0)) : 0;
    };
    if (argc == 4 && strcmp(argv[1], kServerRole) == 0)
        return serve_demo(number(2) != 0, number(3));
    if (argc == 6 && strcmp(argv[1], kClientRole) == 0)
        return ask_demo(static_cast<std::uint16_t>(number(2)), number(3) != 0, number(4),
                        static_cast<unsigned>(number(5)));
    return std::nullopt;
}

bool parse(int argc, char **argv, Wishes &out, int &status)
{
    constexpr unsigned kMostSeconds = 60;
    constexpr unsigned kMostBytes = 65536;
    for (int found; (found = getopt_long(argc, argv, "t:b:h", kOptions, nullptr)) != -1;) {
        status = kUsage;
        if (found == 't') {
            char *end = nullptr;
            const double seconds = strtod(optarg, &end);
            if (end == optarg || *end != '\0' || !(seconds >= 0.01 && seconds <= kMostSeconds)) {
                fprintf(stderr, "vma demo: --seconds %s: expected 0.01 to %u\n", optarg, kMostSeconds);
                return false;
            }
            out.milliseconds = static_cast<unsigned>(seconds * 1000);
        } else if (found == 'b') {
            out.size = parse_number(optarg, kMostBytes).value_or(0);
            if (out.size == 0) {
                fprintf(stderr, "vma demo: --size %s: expected 1 to %u bytes\n", optarg, kMostBytes);
                return false;
            }
        } else if (found == 'L') {
            out.library = optarg;
        } else {
            status = found == 'h' ? kFine : wrong_usage("demo");
            if (found == 'h')
                fputs(help_of("demo"), stdout);
            return false;
        }
    }
    status = optind == argc ? kFine : wrong_usage("demo");
    return optind == argc;
}

} // namespace

int demo(int argc, char **argv)
{
    if (const std::optional<int> status = play_role(argc, argv))
        return *status;
    Wishes wishes;
    int status = kFine;
    if (!parse(argc, argv, wishes, status))
        return status;
    ::signal(SIGPIPE, SIG_IGN); // a child that fails has said why
    const Library library = find_library(wishes.library);
    if (library.path.empty() || !can_be_preloaded(library.path)) {
        fprintf(stderr, "vma demo: libvma.so was not found, or LD_PRELOAD can't name it (%s); --library names one\n",
                library.looked.empty() ? "" : library.looked.back().c_str());
        return kNo;
    }
    return measure_all(wishes, library.path);
}

} // namespace vma::command
