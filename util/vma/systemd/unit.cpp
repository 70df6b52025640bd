// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/systemd/unit.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "util/vma/files.hpp"

namespace vma::command {

namespace {

// The strongest first; those of generators are last but the package's.
constexpr const char *kFolders[] = {
    "/etc/systemd/system",     "/run/systemd/system", "/run/systemd/generator",      "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late",
};
constexpr std::string_view kSuffix = ".service";

// "redis@.service" of "redis@one.service"; "" of one without an instance.
std::string template_of(const std::string &name)
{
    const std::size_t at = name.find('@');
    return at != std::string::npos ? name.substr(0, at + 1) + std::string(kSuffix) : std::string();
}

// One logical line: what a backslash continues is joined by a blank, and comments between are passed over.
std::string take_line(std::string_view &text)
{
    std::string line;
    while (!text.empty()) {
        std::string_view part = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(part.size() + 1, text.size()));
        part = trim(part);
        if (part.starts_with('#') || part.starts_with(';')) {
            if (line.empty())
                return line;
            continue;
        }
        const bool goes_on = part.ends_with('\\');
        if (goes_on)
            part.remove_suffix(1);
        line.append(part).append(goes_on ? " " : "");
        if (!goes_on)
            return line;
    }
    return line;
}

// Of all folders; a file of the same name in a stronger one stands for it.
void add_drop_ins(const std::string &root, const std::string &folder, std::map<std::string, std::string> &files)
{
    for (auto place = std::rbegin(kFolders); place != std::rend(kFolders); ++place) {
        const std::string path = join({root, *place, "/", folder});
        DIR *const directory = ::opendir(path.c_str());
        if (directory == nullptr)
            continue;
        while (const dirent *const entry = ::readdir(directory))
            if (const std::string_view name = entry->d_name; name.ends_with(".conf"))
                files[std::string(name)] = join({path, "/", name});
        ::closedir(directory);
    }
}

} // namespace

std::vector<Assignment> parse_unit(std::string_view text)
{
    std::vector<Assignment> all;
    std::string section;
    while (!text.empty()) {
        const std::string line = take_line(text);
        const std::size_t equals = line.find('=');
        if (line.starts_with('[') && line.ends_with(']'))
            section = line.substr(1, line.size() - 2);
        else if (equals != std::string::npos)
            all.push_back({section, std::string(trim(line.substr(0, equals))),
                           std::string(trim(std::string_view(line).substr(equals + 1)))});
    }
    return all;
}

void Unit::add(std::vector<Assignment> more)
{
    std::move(more.begin(), more.end(), std::back_inserter(assignments_));
}

std::string Unit::last(std::string_view key) const
{
    std::string value;
    for (const Assignment &one : assignments_)
        if (one.section == "Service" && one.key == key)
            value = one.value;
    return value;
}

bool Unit::is_on(std::string_view key) const
{
    const std::string value = last(key);
    return value == "yes" || value == "true" || value == "on" || value == "1";
}

std::vector<std::string> Unit::all(std::string_view key) const
{
    std::vector<std::string> values;
    for (const Assignment &one : assignments_) {
        if (one.section != "Service" || one.key != key)
            continue;
        if (one.value.empty())
            values.clear();
        else
            values.push_back(one.value);
    }
    return values;
}

std::vector<std::string> words_of_value(std::string_view value)
{
    std::vector<std::string> words;
    std::string word;
    bool inside = false; // of a word
    char quote = '\0';
    for (std::size_t i = 0; i < value.size(); ++i) {
        const char c = value[i];
        if (quote == '\0' && (c == ' ' || c == '\t')) {
            if (inside)
                words.push_back(std::move(word));
            word.clear();
            inside = false;
        } else if (c == quote || (quote == '\0' && (c == '"' || c == '\''))) {
            quote = c == quote ? '\0' : c;
            inside = true;
        } else if (c == '\\' && i + 1 < value.size()) {
            word.push_back(value[++i]);
            inside = true;
        } else if (c == '%' && i + 1 < value.size() && value[i + 1] == '%') {
            word.push_back(value[++i]);
            inside = true;
        } else {
            word.push_back(c);
            inside = true;
        }
    }
    if (inside)
        words.push_back(std::move(word));
    return words;
}

std::string quoted(std::string_view word)
{
    std::string text = "\"";
    for (const char c : word) {
        if (c == '"' || c == '\\')
            text.push_back('\\');
        text.push_back(c);
        if (c == '%')
            text.push_back(c);
    }
    return text + "\"";
}

std::optional<std::string> service_name(std::string_view given)
{
    constexpr std::size_t kLongest = 255; // as systemd has it
    std::string name(given);
    if (!given.ends_with(kSuffix)) {
        for (const char *const other : {".socket", ".timer", ".target", ".path", ".mount", ".slice", ".scope"})
            if (given.ends_with(other))
                return std::nullopt;
        name += kSuffix;
    }
    const auto is_fine = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view(":-_.\\@").find(c) != std::string_view::npos;
    };
    if (name.size() > kLongest || name.size() == kSuffix.size() || name.front() == '.' ||
        !std::all_of(name.begin(), name.end(), is_fine))
        return std::nullopt;
    return name;
}

std::string find_unit(const std::string &root, const std::string &name)
{
    for (const std::string &file : {name, template_of(name)})
        for (const char *const folder : kFolders) {
            std::string path = join({root, folder, "/", file});
            if (!file.empty() && ::access(path.c_str(), R_OK) == 0)
                return path;
        }
    return {};
}

Unit read_unit(const std::string &root, const std::string &name, const std::string &but)
{
    Unit unit;
    std::map<std::string, std::string> files; // drop-ins are read by their names
    unit.add(parse_unit(read_file(find_unit(root, name)).value_or("")));
    add_drop_ins(root, "service.d", files);
    if (const std::string general = template_of(name); !general.empty())
        add_drop_ins(root, general + ".d", files);
    add_drop_ins(root, name + ".d", files);
    for (const auto &[file, path] : files)
        if (file != but)
            unit.add(parse_unit(read_file(path).value_or("")));
    return unit;
}

} // namespace vma::command
