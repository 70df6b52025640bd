// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/options.hpp"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "compat/src/stats/capture_layout.hpp"
#include "config.h"
#include "util/tool/arguments.hpp"

namespace vma_dump {

namespace {

using vma::tool::read_folder;
using vma::tool::read_number;

constexpr long kMostSnap = 262144;
constexpr long kMegabyte = 1000000; // as tcpdump counts

constexpr option kLong[] = {
    {"pid", required_argument, nullptr, 'p'},
    {"directory", required_argument, nullptr, 'k'},
    {"interface", required_argument, nullptr, 'i'},
    {"snapshot-length", required_argument, nullptr, 's'},
    {"buffer-size", required_argument, nullptr, 'B'},
    {"direction", required_argument, nullptr, 'Q'},
    {"packet-buffered", no_argument, nullptr, 'U'},
    {"version", no_argument, nullptr, 'V'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

bool wrong(const char *value, const char *what, const char *expected)
{
    fprintf(stderr, "vma_dump: '%s' is no %s (expected %s)\n", value, what, expected);
    return false;
}

bool take_pid(const char *value, Options &o)
{
    long pid = 0;
    if (!read_number(value, 1, INT_MAX, pid))
        return wrong(value, "pid", "the id of a process");
    o.pids.push_back(static_cast<pid_t>(pid));
    return true;
}

bool take_folder(const char *value, Options &o)
{
    o.folder = read_folder(value);
    return !o.folder.empty() || wrong(value, "directory", "a path");
}

bool take_snap(const char *value, Options &o)
{
    long snap = 0;
    if (!read_number(value, 0, kMostSnap, snap))
        return wrong(value, "snapshot length", "bytes, 0 to 262144; 0 means 262144");
    o.snap = static_cast<std::uint32_t>(snap != 0 ? snap : kMostSnap);
    return true;
}

bool take_ring(const char *value, Options &o)
{
    constexpr long kMost = vma::stats::kMostCapture / 1024;
    constexpr long kLeast = vma::stats::kLeastCapture / 1024;
    long kilobytes = 0;
    if (!read_number(value, 1, kMost, kilobytes))
        return wrong(value, "buffer size", "KiB, 1 to 262144");
    long size = kLeast;
    while (size < kilobytes)
        size *= 2;
    o.ring = static_cast<std::uint32_t>(size) * 1024;
    return true;
}

bool take_direction(const char *value, Options &o)
{
    if (strcmp(value, "in") == 0)
        o.direction = Direction::kIn;
    else if (strcmp(value, "out") == 0)
        o.direction = Direction::kOut;
    else if (strcmp(value, "inout") != 0)
        return wrong(value, "direction", "in, out or inout");
    return true;
}

bool take_count(const char *value, Options &o)
{
    long count = 0;
    if (!read_number(value, 1, LONG_MAX, count))
        return wrong(value, "count", "packets, 1 or more");
    o.count = static_cast<std::uint64_t>(count);
    return true;
}

bool take_file_size(const char *value, Options &o)
{
    long size = 0;
    if (!read_number(value, 1, LONG_MAX / kMegabyte, size))
        return wrong(value, "file size", "millions of bytes, 1 or more");
    o.file_size = static_cast<std::uint64_t>(size * kMegabyte);
    return true;
}

bool take_files(const char *value, Options &o)
{
    long files = 0;
    if (!read_number(value, 1, 1000000, files))
        return wrong(value, "number of files", "1 to 1000000");
    o.files = static_cast<unsigned>(files);
    return true;
}

bool take_option(int letter, const char *value, Options &o)
{
    switch (letter) {
    case 'p':
        return take_pid(value, o);
    case 'k':
        return take_folder(value, o);
    case 'i':
        o.device = strcmp(value, "any") == 0 ? "" : value;
        return true;
    case 'w':
        o.file = value;
        return !o.file.empty() || wrong(value, "file", "a path, or - for standard output");
    case 'c':
        return take_count(value, o);
    case 's':
        return take_snap(value, o);
    case 'C':
        return take_file_size(value, o);
    case 'W':
        return take_files(value, o);
    case 'B':
        return take_ring(value, o);
    case 'Q':
        return take_direction(value, o);
    case 'U':
        o.at_once = true;
        return true;
    default:
        return false;
    }
}

bool fits_together(const Options &o)
{
    const char *fault = nullptr;
    if (o.files != 0 && o.file_size == 0)
        fault = "-W says how many files are kept, and needs -C, which says how large one is";
    else if (o.file_size != 0 && (o.file.empty() || o.file == "-"))
        fault = "-C needs -w FILE: standard output is one file";
    if (fault != nullptr)
        fprintf(stderr, "vma_dump: %s\n", fault);
    return fault == nullptr;
}

void print_usage(FILE *out)
{
    fputs("Usage: vma_dump [OPTION]... [FILTER]\n"
          "\n"
          "Shows what accelerated sockets of running programs send and receive, which tcpdump does not see.\n"
          "FILTER is tcpdump's, as 'tcp port 6379'.\n"
          "\n"
          "  -p, --pid=PID               Of this process alone; may be there several times\n"
          "  -i, --interface=NAME        Only by this device, as vma_stats --live names it, or this way: local, rdma, "
          "port\n"
          "  -Q, --direction=WHICH       in, out or inout (default)\n"
          "  -w FILE                     Write pcapng there; - is standard output, as for tcpdump -r -\n"
          "  -C SIZE                     Begin another file after so many millions of bytes\n"
          "  -W COUNT                    Keep so many files, and write over the oldest\n"
          "  -c COUNT                    End after so many packets\n"
          "  -s, --snapshot-length=N     Take so many bytes of each packet (default 262144)\n"
          "  -U, --packet-buffered       Write each packet as it comes\n"
          "  -B, --buffer-size=KIB       Room for what is not fetched yet, of each process (default 16384)\n"
          "  -k, --directory=DIRECTORY   Where the programs' files are, VMA_STATS_SHMEM_DIR (default /tmp)\n"
          "  -h, --help                  Print this\n"
          "      --version               Print the version\n",
          out);
}

std::string join(int argc, char **argv, int from)
{
    std::string all;
    for (int i = from; i < argc; ++i)
        all += std::string(i == from ? "" : " ") + argv[i];
    return all;
}

} // namespace

Parsed parse(int argc, char **argv, Options &out)
{
    for (int letter = 0; (letter = ::getopt_long(argc, argv, "+p:k:i:w:c:s:C:W:B:Q:Uh", kLong, nullptr)) != -1;) {
        if (letter == 'h') {
            print_usage(stdout);
            return Parsed::kDone;
        }
        if (letter == 'V') {
            printf("vma_dump %s\n", PACKAGE_VERSION);
            return Parsed::kDone;
        }
        if (letter == '?') {
            fputs("Try 'vma_dump --help'.\n", stderr);
            return Parsed::kWrong;
        }
        if (!take_option(letter, optarg, out))
            return Parsed::kWrong;
    }
    out.filter = join(argc, argv, optind);
    return fits_together(out) ? Parsed::kRun : Parsed::kWrong;
}

} // namespace vma_dump
