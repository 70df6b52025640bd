// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/program.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "util/vma/files.hpp"

namespace vma::command {

namespace {

constexpr int kMostInterpreters = 4; // as the kernel has it

bool is_program(const std::string &path)
{
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string find(const std::string &name, const Starter &starter)
{
    if (name.find('/') != std::string::npos) {
        std::string path = name.front() == '/' ? starter.root + name : name;
        return is_program(path) ? path : std::string();
    }
    std::size_t first = 0;
    while (first <= starter.search.size()) { // an empty part is the folder where we are
        const std::size_t end = std::min(starter.search.find(':', first), starter.search.size());
        const std::string folder = starter.search.substr(first, end - first);
        std::string path = folder.empty() ? join({"./", name}) : join({starter.root, folder, "/", name});
        if (is_program(path))
            return path;
        first = end + 1;
    }
    return {};
}

// What a script is run by; of "#!/usr/bin/env python3" that is python3.
std::string interpreter_of(const Image &image)
{
    if (base_name(image.interpreter) == "env")
        for (const std::string_view word : split(image.interpreted, " \t"))
            if (word.front() != '-' && word.find('=') == std::string_view::npos)
                return std::string(word);
    return image.interpreter;
}

Finding privileged(const Program &p, const char *why)
{
    return {Cost::kAll, p.path + " " + why + ": the loader ignores LD_PRELOAD for it, and the library its settings",
            "name the library in /etc/ld.so.preload and the program in a line `privileged` of /etc/libvma.conf "
            "(libvma.conf(5))"};
}

} // namespace

Program look_at_program(const std::string &name, const Starter &starter)
{
    Program p;
    p.name = name;
    p.path = find(name, starter);
    p.runs = p.path;
    for (int i = 0; !p.runs.empty() && i <= kMostInterpreters; ++i) {
        p.image = read_image(read_file(p.runs, kHeadSize).value_or(""));
        if (p.image.interpreter.empty())
            break;
        p.runs = find(interpreter_of(p.image), starter);
    }
    struct stat status = {};
    if (p.runs.empty() || ::stat(p.runs.c_str(), &status) != 0)
        return p;
    p.sets_user = ((status.st_mode & S_ISUID) != 0 && status.st_uid != starter.user) ||
                  ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != starter.group);
    p.has_capabilities = starter.user != 0 && ::getxattr(p.runs.c_str(), "security.capability", nullptr, 0) > 0;
    return p;
}

Findings judge(const Program &p, const std::string &library)
{
    Findings out;
    if (p.path.empty() || !p.image.is_elf)
        return out; // whoever executes it says so
    const std::string subject = p.runs == p.path ? p.path : p.path + " is run by " + p.runs + ", which";
    const Image own = read_image(read_file(library.empty() ? "/proc/self/exe" : library, kHeadSize).value_or(""));
    if (p.image.is_go)
        out.push_back({Cost::kAll, subject + " is a Go program, which calls the kernel itself",
                       "accelerate what it talks to only if that pays by itself; a proxy in C can stand before it"});
    else if (p.image.is_static)
        out.push_back({Cost::kAll, subject + " is statically linked, so no library can be put before libc",
                       "link it dynamically, or take the distribution's package of it"});
    else if (p.image.is_musl())
        out.push_back({Cost::kAll, subject + " is linked with musl's C library; libvma.so needs glibc",
                       "take a build for glibc; it is started without the library"});
    if (own.is_elf && (p.image.bits != own.bits || p.image.machine != own.machine))
        out.push_back({Cost::kAll,
                       subject +
                           (p.image.bits != own.bits ? " has " + std::to_string(p.image.bits) + " bits"
                                                     : std::string(" is for another kind of processor")) +
                           ", and libvma.so is for others",
                       "take a build for this machine's architecture"});
    if (p.sets_user)
        out.push_back(privileged(p, "is set-user-ID or set-group-ID"));
    else if (p.has_capabilities)
        out.push_back(privileged(p, "has capabilities"));
    return out;
}

bool refuses_library(const Program &p)
{
    return p.image.is_musl();
}

} // namespace vma::command
