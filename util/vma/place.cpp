// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/place.hpp"

#include <elf.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "util/vma/files.hpp"
#include "util/vma/preload.hpp"

namespace vma::command {

namespace {

std::uint64_t number_in(std::string_view text, int base = 10)
{
    std::uint64_t number = 0;
    text = trim(text);
    std::from_chars(text.data(), text.data() + text.size(), number, base);
    return number;
}

std::uint64_t inode_of(const std::string &path)
{
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

bool has_secure_flag(std::string_view auxv)
{
    unsigned long pair[2];
    for (; auxv.size() >= sizeof pair; auxv.remove_prefix(sizeof pair)) {
        std::memcpy(pair, auxv.data(), sizeof pair);
        if (pair[0] == AT_SECURE)
            return pair[1] != 0;
    }
    return false;
}

void read_namespaces(const std::string &folder, Namespaces &out)
{
    out.network = inode_of(folder + "/ns/net");
    out.ipc = inode_of(folder + "/ns/ipc");
    out.pid = inode_of(folder + "/ns/pid");
}

bool read_folder(const std::string &folder, Place &out)
{
    const std::optional<std::string> status = read_file(folder + "/status");
    if (!status) {
        errno = ESRCH;
        return false;
    }
    const std::optional<std::string> maps = read_file(folder + "/maps");
    if (!maps) {
        errno = EACCES;
        return false;
    }
    parse_status(*status, out);
    parse_maps(*maps, out);
    parse_limits(read_file(folder + "/limits").value_or(""), out.limits);
    out.is_privileged = has_secure_flag(read_file(folder + "/auxv").value_or(""));
    read_namespaces(folder, out.namespaces);
    return true;
}

} // namespace

std::string Place::variable(const std::string &name) const
{
    const auto found = variables.find(name);
    return found != variables.end() ? found->second : std::string();
}

void parse_status(std::string_view text, Place &out)
{
    for (const std::string_view line : split(text, "\n")) {
        const std::size_t colon = std::min(line.find(':'), line.size());
        const std::string_view name = line.substr(0, colon);
        const std::string_view value = trim(line.substr(std::min(colon + 1, line.size())));
        if (name == "Uid") {
            const std::vector<std::string_view> users = split(value, "\t ");
            out.user = users.size() > 1 ? static_cast<uid_t>(number_in(users[1])) : out.user;
        } else if (name == "Seccomp") {
            out.seccomp = static_cast<int>(number_in(value));
        } else if (name == "CapEff") {
            out.capabilities = number_in(value, 16);
        } else if (name == "Cpus_allowed_list") {
            out.processors = count_processors(value);
        }
    }
}

void parse_limits(std::string_view text, Limits &out)
{
    const struct {
        std::string_view name;
        std::uint64_t &value;
    } wanted[] = {{"Max open files", out.descriptors},
                  {"Max locked memory", out.locked_memory},
                  {"Max address space", out.address_space},
                  {"Max file size", out.file_size}};
    for (const std::string_view line : split(text, "\n"))
        for (const auto &one : wanted)
            if (line.starts_with(one.name)) {
                const std::string_view soft = trim(line.substr(one.name.size()));
                one.value = soft.starts_with("unlimited") ? kUnlimited : number_in(soft);
            }
}

void parse_maps(std::string_view text, Place &out)
{
    constexpr std::string_view kGone = " (deleted)";
    out.mappings = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    for (std::string_view line : split(text, "\n")) {
        const std::size_t slash = line.find('/');
        if (slash == std::string_view::npos)
            continue;
        std::string_view path = line.substr(slash);
        const bool gone = path.ends_with(kGone);
        if (gone)
            path.remove_suffix(kGone.size());
        if (!names_library(path.substr(path.rfind('/') + 1)))
            continue;
        out.library = path;
        out.library_is_gone = gone;
        return;
    }
}

Variables parse_environment(std::string_view text)
{
    Variables all;
    for (const std::string_view entry : split(text, std::string_view("\0", 1)))
        if (const std::size_t equals = entry.find('='); equals != std::string_view::npos && equals != 0)
            all.emplace(entry.substr(0, equals), entry.substr(equals + 1)); // of two of a name libc takes the first
    return all;
}

unsigned count_processors(std::string_view list)
{
    unsigned count = 0;
    for (const std::string_view part : split(list, ",")) {
        const std::size_t dash = part.find('-');
        const std::uint64_t first = number_in(part);
        const std::uint64_t last = dash != std::string_view::npos ? number_in(part.substr(dash + 1)) : first;
        count += last >= first && last - first < 65536 ? static_cast<unsigned>(last - first + 1) : 0;
    }
    return std::max(count, 1U);
}

Place this_process()
{
    Place place;
    read_folder("/proc/self", place);
    place.pid = ::getpid();
    place.is_self = true;
    place.user = ::geteuid();
    for (char **entry = environ; *entry != nullptr; ++entry)
        if (const char *const equals = strchr(*entry, '='); equals != nullptr)
            place.variables.emplace(std::string(*entry, static_cast<std::size_t>(equals - *entry)), equals + 1);
    return place;
}

std::optional<Place> read_place(pid_t pid)
{
    const std::string folder = "/proc/" + std::to_string(pid);
    Place place;
    place.pid = pid;
    if (!read_folder(folder, place))
        return std::nullopt;
    place.variables = parse_environment(read_file(folder + "/environ").value_or(""));
    place.root = folder + "/root";
    return place;
}

} // namespace vma::command
