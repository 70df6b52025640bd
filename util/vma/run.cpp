// SPDX-License-Identifier: BSD-2-Clause
// vma run: becomes a program that has libvma.so. Whatever is missing costs acceleration and is said; only a program
// that can't be executed ends with an error.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/vma/commands.hpp"
#include "util/vma/finding.hpp"
#include "util/vma/judge.hpp"
#include "util/vma/library.hpp"
#include "util/vma/machine.hpp"
#include "util/vma/preload.hpp"
#include "util/vma/program.hpp"
#include "util/vma/settings.hpp"

namespace vma::command {

namespace {

enum class Talk { kQuiet, kUsual, kVerbose };

struct Wishes {
    Settings settings;
    Talk talk = Talk::kUsual;
    int first = 0; // of argv: the program
};

constexpr option kOptions[] = {
    VMA_SETTING_OPTIONS,
    {"quiet", no_argument, nullptr, 'q'},
    {"verbose", no_argument, nullptr, 'v'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

// Nothing: `status` is what to end with.
bool parse(int argc, char **argv, Wishes &out, int &status)
{
    const std::string letters = std::string("+qvh") + kSettingLetters;
    std::string error;
    for (int found; (found = getopt_long(argc, argv, letters.c_str(), kOptions, nullptr)) != -1;) {
        if (found == 'h') {
            fputs(help_of("run"), stdout);
            status = kFine;
            return false;
        }
        if (found == 'q')
            out.talk = Talk::kQuiet;
        else if (found == 'v')
            out.talk = Talk::kVerbose;
        else if (!take_setting(found, optarg, out.settings, error)) {
            if (!error.empty())
                fprintf(stderr, "vma run: %s\n", error.c_str());
            status = wrong_usage("run");
            return false;
        }
    }
    out.first = optind;
    if (optind < argc)
        return true;
    fprintf(stderr, "vma run: which program? (expected: vma run [OPTIONS] -- PROGRAM [ARGUMENT...])\n");
    status = wrong_usage("run");
    return false;
}

Finding not_found(const Library &library)
{
    std::string looked;
    for (const std::string &place : library.looked)
        looked.append(looked.empty() ? "" : ", ").append(place);
    return {Cost::kAll, "libvma.so was not found (looked at " + looked + ")",
            "install it, or name it with --library; the program runs without it"};
}

// The library's path, or "" with what is in the way.
std::string usable_library(const Wishes &wishes, const Program &program, Findings &findings)
{
    const Library library = find_library(wishes.settings.library);
    if (library.path.empty()) {
        findings.push_back(not_found(library));
        return {};
    }
    if (!can_be_preloaded(library.path)) {
        findings.push_back({Cost::kAll, library.path + " has a blank or colon in its name, which LD_PRELOAD can't name",
                            "move it; the program runs without it"});
        return {};
    }
    return refuses_library(program) ? std::string() : library.path;
}

void set_environment(const Wishes &wishes, const std::string &library)
{
    for (const Setting &one : wishes.settings.variables)
        ::setenv(one.name.c_str(), one.value.c_str(), 1);
    if (library.empty())
        return;
    const char *const before = ::secure_getenv("LD_PRELOAD");
    ::setenv("LD_PRELOAD", preload_value(library, before != nullptr ? before : "").c_str(), 1);
}

std::string search_path()
{
    const char *const path = ::secure_getenv("PATH");
    return path != nullptr ? path : "/bin:/usr/bin";
}

} // namespace

int run(int argc, char **argv)
{
    Wishes wishes;
    int status = kFine;
    if (!parse(argc, argv, wishes, status))
        return status;
    char **const command = argv + wishes.first;
    const Program program = look_at_program(command[0], {"", search_path(), ::geteuid(), ::getegid()});
    Findings findings;
    const std::string library = usable_library(wishes, program, findings);
    add(findings, judge(program, library));
    set_environment(wishes, library);
    if (wishes.talk != Talk::kQuiet) {
        const Place place = this_process(); // with the settings
        add(findings, judge(place, look_around(place)));
        print(stderr, findings, wishes.talk == Talk::kVerbose ? Cost::kNote : Cost::kSome);
        if (wishes.talk == Talk::kVerbose && !library.empty())
            fprintf(stderr, "vma: LD_PRELOAD is %s\n", ::secure_getenv("LD_PRELOAD"));
    }
    ::execvp(command[0], command);
    const int error = errno;
    fprintf(stderr, "vma run: %s: %s\n", command[0], strerror(error));
    return error == ENOENT ? kNotFound : kNotExecutable;
}

} // namespace vma::command
