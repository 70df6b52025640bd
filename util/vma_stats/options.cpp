// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_stats/options.hpp"

#include <getopt.h>
#include <string.h>

#include <algorithm>

#include "config.h"
#include "util/tool/arguments.hpp"
#include "util/vma_stats/metrics/listen_address.hpp"

namespace vma_stats {

namespace {

using vma::tool::read_folder;
using vma::tool::read_number;

constexpr int kMostFd = 1 << 20;

enum Long { kJson = 256, kLive, kExplain, kPrometheus, kListen, kPerSocket };

constexpr option kLong[] = {
    {"pid", required_argument, nullptr, 'p'},
    {"directory", required_argument, nullptr, 'k'},
    {"name", required_argument, nullptr, 'n'},
    {"find_pid", no_argument, nullptr, 'f'},
    {"forbid_clean", no_argument, nullptr, 'F'},
    {"interval", required_argument, nullptr, 'i'},
    {"cycles", required_argument, nullptr, 'c'},
    {"view", required_argument, nullptr, 'v'},
    {"details", required_argument, nullptr, 'd'},
    {"zero", no_argument, nullptr, 'z'},
    {"log_level", required_argument, nullptr, 'l'},
    {"details_level", required_argument, nullptr, 'D'},
    {"fd_dump", required_argument, nullptr, 'S'},
    {"sockets", required_argument, nullptr, 's'},
    {"version", no_argument, nullptr, 'V'},
    {"help", no_argument, nullptr, 'h'},
    {"json", no_argument, nullptr, kJson},
    {"live", no_argument, nullptr, kLive},
    {"explain", optional_argument, nullptr, kExplain},
    {"prometheus", optional_argument, nullptr, kPrometheus},
    {"listen", required_argument, nullptr, kListen},
    {"per_socket", no_argument, nullptr, kPerSocket},
    {nullptr, 0, nullptr, 0},
};

bool wrong(const char *value, const char *what, const char *expected)
{
    fprintf(stderr, "vmastat: '%s' Invalid %s (expected %s)\n", value, what, expected);
    return false;
}

template <typename Number>
bool take(const char *value, const char *what, const char *expected, long least, long most, Number &out)
{
    long number = 0;
    if (!read_number(value, least, most, number))
        return wrong(value, what, expected);
    out = static_cast<Number>(number);
    return true;
}

// "4-16,1,9"
bool take_sockets(const char *value, Options &o)
{
    const std::string list = value;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        const std::string one = list.substr(at, end - at);
        const std::size_t dash = one.find('-');
        long first = 0;
        long last = 0;
        if (!read_number(one.substr(0, dash).c_str(), 0, kMostFd, first) ||
            !read_number(dash == std::string::npos ? one.c_str() : one.c_str() + dash + 1, first, kMostFd, last))
            return wrong(value, "sockets", "a list of descriptors and ranges, as 4-16,1,9");
        o.sockets.emplace_back(static_cast<int>(first), static_cast<int>(last));
        at = end + 1;
    }
    return true;
}

bool take_folder(const char *value, Options &o)
{
    o.folder = read_folder(value);
    return !o.folder.empty() || wrong(value, "directory", "a path");
}

// What follows an option that may have a word behind it.
const char *next_word(int argc, char **argv)
{
    return optind < argc && argv[optind][0] != '-' ? argv[optind++] : nullptr;
}

bool take_dump(const char *value, int argc, char **argv, Options &o)
{
    if (!take(value, "fd", "a descriptor, or 0 for all", 0, kMostFd, o.dump_fd))
        return false;
    const char *const level = next_word(argc, argv);
    if (level == nullptr)
        return true;
    o.dump_word = level;
    return read_level(level, o.dump_level) || wrong(level, "log level", "a level of VMA_TRACELEVEL, or 1 to 7");
}

bool take_listen(const char *value, Options &o)
{
    ListenAddress address;
    o.listen = value;
    return read_listen_address(o.listen, address) ||
           wrong(value, "address", "PORT, ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH");
}

// Those that have no letter.
bool take_long_option(int which, int argc, char **argv, Options &o)
{
    const char *const value = optarg;
    switch (which) {
    case kJson:
        o.json = true;
        return true;
    case kExplain: {
        const char *const name = value != nullptr ? value : next_word(argc, argv);
        o.explain = true;
        o.explained = name != nullptr ? name : "";
        return true;
    }
    case kPrometheus:
        o.prometheus = true;
        o.prometheus_file = value != nullptr ? value : "";
        return value == nullptr || *value != '\0' || wrong(value, "file", "a path");
    case kListen:
        return take_listen(value, o);
    case kPerSocket:
        o.per_socket = true;
        return true;
    default:
        return false;
    }
}

bool take_option(int letter, int argc, char **argv, Options &o)
{
    const char *const value = optarg;
    switch (letter) {
    case 'p':
        return take(value, "pid", "the id of a process", 1, INT_MAX, o.pid);
    case 'k':
        return take_folder(value, o);
    case 'n':
        o.name = value;
        return true;
    case 'f':
        return true;
    case 'F':
        o.cleans = false;
        return true;
    case 'i':
        o.repeats = true;
        return take(value, "interval", "seconds, 1 or more", 1, 86400, o.interval);
    case 'c':
        return take(value, "cycles", "a number, 0 for no end", 0, INT_MAX, o.cycles);
    case 'v':
        return take(value, "view", "1 to 5", 1, 5, o.view);
    case 'd': {
        int mode = 1;
        const bool good = take(value, "details mode", "1 for totals, 2 for deltas", 1, 2, mode);
        o.deltas = mode == 2;
        return good;
    }
    case 'z':
        o.zero = true;
        return true;
    case 'l':
        return read_level(value, o.log_level) || wrong(value, "log level", "a level of VMA_TRACELEVEL, or 1 to 7");
    case 'D':
        return take(value, "details level", "0 to 3", 0, 3, o.log_details);
    case 'S':
        return take_dump(value, argc, argv, o);
    case 's':
        return take_sockets(value, o);
    case kLive:
    case 't':
        o.live = true;
        return true;
    default:
        return take_long_option(letter, argc, argv, o);
    }
}

// The form of 2008: the process, and 1 for what there is to know of each socket besides its counters.
bool take_words(int argc, char **argv, Options &o)
{
    long pid = 0;
    long level = 0;
    const int words = argc - optind;
    if (words == 0)
        return true;
    if (o.pid != 0 || !read_number(argv[optind], 1, INT_MAX, pid)) {
        fprintf(stderr, "vmastat: '%s' is not an option\n", argv[optind]);
        return false;
    }
    if (words > 1 && !read_number(argv[optind + 1], 0, 1, level))
        return wrong(argv[optind + 1], "info level", "0 or 1");
    if (words > 2) {
        fprintf(stderr, "vmastat: '%s' is not an option\n", argv[optind + 2]);
        return false;
    }
    o.pid = static_cast<pid_t>(pid);
    if (level == 1)
        o.view = 3;
    return true;
}

bool is_help(int letter, char **argv)
{
    return letter == 'h' || (letter == '?' && strcmp(argv[optind - 1], "-?") == 0);
}

void print_version()
{
    printf("vmastat: Linked with VMA version: %s-0\n", PACKAGE_VERSION);
    printf("vmastat: Build Date: %s\n", BUILT_ON);
}

} // namespace

void print_usage(FILE *out)
{
    fputs("\nUsage:\n"
          "\tvma_stats [-p pid] [-k directory] [-v view] [-d details] [-i interval] \n"
          "\n"
          "Defaults:\n"
          "\tfind_pid=enabled, directory=\"/tmp/\", view=1, details=1, interval=1,\n"
          "\n"
          "Options:\n"
          "  -p, --pid=<pid>\t\tShow VMA statistics for process with pid: <pid>\n"
          "  -k, --directory=<directory>\tSet shared memory directory path to <directory>\n"
          "  -n, --name=<application>\tShow VMA statistics for application: <application>\n"
          "  -f, --find_pid\t\tFind PID and show statistics for VMA instance running (default)\n"
          "  -F, --forbid_clean\t\tDon't remove the files of processes that are gone\n"
          "  -i, --interval=<n>\t\tPrint report every <n> seconds\n"
          "  -c, --cycles=<n>\t\tDo <n> report print cycles and exit, use 0 value for infinite (default)\n"
          "  -v, --view=<1|2|3|4|5>\tSet view type:1- basic info,2- extra info,3- full info,4- mc groups,5- similar to "
          "'netstat -tunaep'\n"
          "  -d, --details=<1|2>\t\tSet details mode:1- to see totals,2- to see deltas\n"
          "  -S, --fd_dump=<fd> [<level>]\tDump statistics for fd number <fd> using log level <level>, use 0 value for "
          "all open fds.\n"
          "  -z, --zero\t\t\tZero counters\n"
          "  -l, --log_level=<level>\tSet VMA log level to <level>(1 <= level <= 7)\n"
          "  -D, --details_level=<level>\tSet VMA log detail level to <level>(0 <= level <= 3)\n"
          "  -s, --sockets=<list|range>\tLog only sockets that match <list> or <range>, format: 4-16 or 1,9 (or "
          "combination)\n"
          "  -t, --live\t\t\tFull-screen view with rates; its keys stand at its foot\n"
          "      --json\t\t\tPrint everything as JSON, an object a cycle\n"
          "      --explain [<parameter>]\tPrint what the VMA_* parameters are\n"
          "      --prometheus[=<file>]\tPrint metrics of all processes as Prometheus reads them, or replace <file>\n"
          "      --listen=<address>\tServe them by HTTP: <port>, <address>:<port>, unix:<path>\n"
          "      --per_socket\t\tAlso of each socket\n"
          "  -V, --version\t\t\tPrint version\n"
          "  -h, -?, --help\t\t\tPrint this help message\n",
          out);
}

bool shows(const Options &o, int fd)
{
    for (const auto &[first, last] : o.sockets)
        if (fd >= first && fd <= last)
            return true;
    return o.sockets.empty();
}

Parsed parse(int argc, char **argv, Options &out)
{
    opterr = 1;
    for (;;) {
        const int letter = ::getopt_long(argc, argv, "p:k:n:fFi:c:v:d:zl:D:S:s:Vht?", kLong, nullptr);
        if (letter == -1)
            break;
        if (is_help(letter, argv)) {
            print_usage(stdout);
            return Parsed::kDone;
        }
        if (letter == 'V') {
            print_version();
            return Parsed::kDone;
        }
        if (!take_option(letter, argc, argv, out)) {
            print_usage(stderr);
            return Parsed::kWrong;
        }
    }
    if (take_words(argc, argv, out))
        return Parsed::kRun;
    print_usage(stderr);
    return Parsed::kWrong;
}

} // namespace vma_stats
