// SPDX-License-Identifier: BSD-2-Clause
// vma enable and vma disable: a drop-in of systemd that starts a service with libvma.so. It writes one file and says
// what is to be done next; it restarts nothing.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "util/vma/commands.hpp"
#include "util/vma/files.hpp"
#include "util/vma/library.hpp"
#include "util/vma/preload.hpp"
#include "util/vma/program.hpp"
#include "util/vma/systemd/drop_in.hpp"
#include "util/vma/systemd/unit.hpp"
#include "util/vma/systemd/unit_judge.hpp"

namespace vma::command {

namespace {

struct Wishes {
    const char *command = ""; // "enable", "disable"
    Settings settings;
    std::string root; // "" for this system
    std::string name; // "redis-server.service"
    bool force = false;
    bool mends = false;
    std::string folder() const { return root + "/etc/systemd/system/" + name + ".d"; }
    std::string path() const { return folder() + "/" + kDropIn; }
};

constexpr int kRoot = 0x200;
constexpr option kOptions[] = {
    VMA_SETTING_OPTIONS,
    {"root", required_argument, nullptr, kRoot},
    {"force", no_argument, nullptr, 'f'},
    {"mend", no_argument, nullptr, 'm'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

int fail(const Wishes &wishes, const std::string &what, const std::string &why)
{
    fprintf(stderr, "vma %s: %s: %s\n", wishes.command, what.c_str(), why.c_str());
    return kNo;
}

bool parse(int argc, char **argv, Wishes &out, int &status)
{
    const bool enables = strcmp(out.command, "enable") == 0;
    const std::string letters = enables ? std::string("fhm") + kSettingLetters : "fh";
    std::string error;
    status = kUsage;
    for (int found; (found = getopt_long(argc, argv, letters.c_str(), kOptions, nullptr)) != -1;) {
        if (found == 'h') {
            fputs(help_of(out.command), stdout);
            status = kFine;
            return false;
        }
        if (found == kRoot)
            out.root = optarg;
        else if (found == 'f')
            out.force = true;
        else if (found == 'm' && enables)
            out.mends = true;
        else if (!enables || !take_setting(found, optarg, out.settings, error)) {
            if (!error.empty())
                fprintf(stderr, "vma %s: %s\n", out.command, error.c_str());
            wrong_usage(out.command);
            return false;
        }
    }
    while (out.root.ends_with('/'))
        out.root.pop_back();
    const std::optional<std::string> name = optind + 1 == argc ? service_name(argv[optind]) : std::nullopt;
    if (!name) {
        fprintf(stderr, "vma %s: %s: expected the name of one service, as redis-server.service\n", out.command,
                optind < argc ? argv[optind] : "nothing is named");
        wrong_usage(out.command);
        return false;
    }
    out.name = *name;
    status = kFine;
    return true;
}

// What the unit itself puts into LD_PRELOAD, and has to stay there.
std::string preload_of(const Unit &unit)
{
    std::string preload;
    for (const std::string &value : unit.all("Environment"))
        for (const std::string &word : words_of_value(value))
            if (word.starts_with("LD_PRELOAD="))
                preload = word.substr(strlen("LD_PRELOAD="));
    return preload;
}

Findings judge_program(const Unit &unit, const Wishes &wishes, const std::string &library)
{
    const std::vector<std::string> starts = unit.all("ExecStart");
    std::vector<std::string> words = starts.empty() ? starts : words_of_value(starts.front());
    if (words.empty())
        return {};
    words.front().erase(0, std::min(words.front().find_first_not_of("@-:+!|"), words.front().size()));
    const std::string user = unit.last("User");
    // Of a user other than root the number doesn't matter: none of what is set-user-ID is likely to be his.
    const uid_t number = unit.is_on("DynamicUser") || !(user.empty() || user == "root") ? 65534 : 0;
    return judge(look_at_program(words.front(), {wishes.root, "/usr/local/bin:/usr/bin:/bin", number, number}),
                 library);
}

// The file is whole or it is not there.
bool write_file(const std::string &path, const std::string &text)
{
    constexpr mode_t kMode = 0644;
    const std::string part = path + ".new";
    ::unlink(part.c_str());
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode);
    if (fd < 0)
        return false;
    const bool written = ::fchmod(fd, kMode) == 0 &&
                         ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
    const int error = errno;
    if (::close(fd) == 0 && written && ::rename(part.c_str(), path.c_str()) == 0)
        return true;
    errno = written ? errno : error;
    ::unlink(part.c_str());
    return false;
}

// The last folders of the path, as far as they are missing. `made`: the last one was.
bool make_folders(const Wishes &wishes, bool &made)
{
    std::string path = wishes.root;
    const std::string folders = "etc/systemd/system/" + wishes.name + ".d";
    for (const std::string_view part : split(folders, "/")) {
        path.append("/").append(part);
        made = ::mkdir(path.c_str(), 0755) == 0;
        if (!made && errno != EEXIST)
            return false;
    }
    return true;
}

void say_next(const Wishes &wishes, const char *then)
{
    printf("Next: systemctl daemon-reload && systemctl restart %s\n", wishes.name.c_str());
    printf("Then: %s\n", then);
}

// The drop-in that was there. Nothing: it must not be written over, which was said.
std::optional<std::string> old_text(const Wishes &wishes)
{
    const std::string text = read_file(wishes.path()).value_or("");
    if (text.empty() || wishes.force || author_of(text) == Author::kUs)
        return text;
    fail(wishes, wishes.path(),
         author_of(text) == Author::kEdited ? "it was changed by hand since vma wrote it; --force does it all the same"
                                            : "vma did not write it; --force does it all the same");
    return std::nullopt;
}

int write_drop_in(const Wishes &wishes, const std::string &preload, const std::vector<std::string> &more)
{
    const std::optional<std::string> before = old_text(wishes);
    if (!before)
        return kNo;
    bool made = false;
    if (!make_folders(wishes, made))
        return fail(wishes, wishes.folder(), strerror(errno));
    if (!write_file(wishes.path(),
                    drop_in_text(preload, wishes.settings.variables, more, made || made_folder(*before)))) {
        const int error = errno;
        if (made)
            ::rmdir(wishes.folder().c_str());
        return fail(wishes, wishes.path(), strerror(error));
    }
    printf("%s: written\n", wishes.path().c_str());
    say_next(wishes, "vma list");
    return kFine;
}

// What is still in the way, with or without what is mended. `more`: the settings that do that.
Findings judge_all(Unit unit, const Wishes &wishes, const std::string &library, std::vector<std::string> &more)
{
    const auto is_ethernet = [](const Setting &one) { return one.name == "VMA_ETHERNET"; };
    const std::vector<Setting> &variables = wishes.settings.variables;
    const Intent intent = {library, std::any_of(variables.begin(), variables.end(), is_ethernet)};
    if (wishes.mends)
        more = mend(unit, intent);
    for (const std::string &setting : more) {
        printf("vma: mended: %s\n", setting.c_str());
        unit.add(parse_unit("[Service]\n" + setting));
    }
    Findings findings = judge(unit, intent);
    for (Finding &one : findings)
        if (!one.setting.empty())
            one.mend += " (--mend does)";
    add(findings, judge_program(unit, wishes, library));
    return findings;
}

} // namespace

int enable(int argc, char **argv)
{
    Wishes wishes;
    wishes.command = "enable";
    int status = kFine;
    if (!parse(argc, argv, wishes, status))
        return status;
    if (find_unit(wishes.root, wishes.name).empty())
        return fail(wishes, wishes.name,
                    "there is no such unit (expected a file of that name in " + wishes.root +
                        "/etc/systemd/system, /usr/lib/systemd/system or another of systemd's folders)");
    const Library library = find_library(wishes.settings.library);
    if (library.path.empty() || !can_be_preloaded(library.path))
        return fail(wishes, wishes.settings.library.empty() ? "libvma.so" : wishes.settings.library,
                    "it is not there, or LD_PRELOAD can't name it; --library names one");
    const Unit unit = read_unit(wishes.root, wishes.name, kDropIn);
    std::vector<std::string> more;
    print(stdout, judge_all(unit, wishes, library.path, more), Cost::kNote);
    return write_drop_in(wishes, preload_value(library.path, preload_of(unit)), more);
}

int disable(int argc, char **argv)
{
    Wishes wishes;
    wishes.command = "disable";
    int status = kFine;
    if (!parse(argc, argv, wishes, status))
        return status;
    if (::access(wishes.path().c_str(), F_OK) != 0)
        return fail(wishes, wishes.path(),
                    errno == ENOENT ? "it is not there: the service is not enabled by vma" : strerror(errno));
    const std::optional<std::string> text = old_text(wishes);
    if (!text)
        return kNo;
    if (::unlink(wishes.path().c_str()) != 0)
        return fail(wishes, wishes.path(), strerror(errno));
    printf("%s: removed\n", wishes.path().c_str());
    if (made_folder(*text))
        ::rmdir(wishes.folder().c_str()); // others' files keep it
    say_next(wishes, "it runs without libvma.so");
    return kFine;
}

} // namespace vma::command
