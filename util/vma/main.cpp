// SPDX-License-Identifier: BSD-2-Clause
// vma: one command for who uses libvma.so. It starts programs with it, says what is in the way, and shows who is
// accelerated with whom. See man/vma.1.
#include <stdio.h>
#include <string.h>

#include "config.h"

#include "util/vma/commands.hpp"
#include "util/vma/library.hpp"

namespace vma::command {

namespace {

struct Command {
    const char *name;
    int (*function)(int argc, char **argv);
};

int help(int argc, char **argv)
{
    const char *const text = help_of(argc > 1 ? argv[1] : "");
    if (text == nullptr) {
        fprintf(stderr, "vma help: there is no command %s\n", argv[1]);
        return wrong_usage("");
    }
    fputs(text, stdout);
    return kFine;
}

constexpr Command kCommands[] = {
    {"run", run},       {"check", check},       {"list", list},       {"explain", explain}, {"demo", demo},
    {"enable", enable}, {"disable", disable},   {"version", version}, {"help", help},       {"--help", help},
    {"-h", help},       {"--version", version}, {"-V", version},
};

} // namespace

int version(int argc, char **)
{
    if (argc > 1)
        return wrong_usage("version");
    const Library library = find_library("");
    printf("vma %s\n%s\n", PACKAGE_VERSION, library.path.empty() ? "libvma.so was not found" : library.path.c_str());
    return kFine;
}

int wrong_usage(const char *command)
{
    fprintf(stderr, "vma help%s%s says how it is used\n", *command != '\0' ? " " : "", command);
    return kUsage;
}

} // namespace vma::command

int main(int argc, char **argv)
{
    using namespace vma::command;
    if (argc < 2) {
        fputs(help_of(""), stderr);
        return kUsage;
    }
    for (const Command &one : kCommands)
        if (strcmp(one.name, argv[1]) == 0)
            return one.function(argc - 1, argv + 1);
    fprintf(stderr, "vma: there is no command %s\n", argv[1]);
    return wrong_usage("");
}
