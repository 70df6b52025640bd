// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/systemd/unit_judge.hpp"

#include <algorithm>

#include "util/vma/files.hpp"
#include "util/vma/preload.hpp"

namespace vma::command {

namespace {

bool is_below(std::string_view path, std::string_view folder)
{
    while (folder.ends_with('/'))
        folder.remove_suffix(1);
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

Finding mended(Cost cost, std::string what, const std::string &setting)
{
    return {cost, std::move(what), "set " + setting, setting};
}

// The deepest folder of a list of paths that a file lies in; its length, 0 for none.
std::size_t deepest(const Unit &unit, std::string_view key, std::string_view path)
{
    std::size_t length = 0;
    for (const std::string &value : unit.all(key))
        for (std::string word : words_of_value(value)) {
            word.erase(0, word.find_first_not_of("-+"));
            const std::string folder = word.substr(0, word.find(':'));
            if (is_below(path, folder))
                length = std::max(length, std::max<std::size_t>(folder.size(), 1));
        }
    return length;
}

bool has_family(const Unit &unit, std::string_view family)
{
    bool restricted = false;
    bool allowed = true;
    for (const std::string &value : unit.all("RestrictAddressFamilies")) {
        const bool inverted = value.starts_with('~');
        if (!restricted)
            allowed = inverted; // the first says what is listed
        restricted = true;
        for (const std::string_view word : split(value, " \t~"))
            if (word == family)
                allowed = !inverted;
    }
    return allowed;
}

void judge_namespaces(const Unit &unit, Findings &out)
{
    if (unit.is_on("PrivateNetwork") || !unit.last("NetworkNamespacePath").empty())
        out.push_back({Cost::kSome,
                       "PrivateNetwork= or NetworkNamespacePath=: processes outside its network namespace are met by "
                       "vmad alone",
                       "start vmad (systemctl enable --now vma), or set PrivateNetwork=no"});
    if (unit.is_on("PrivateIPC") || !unit.last("IPCNamespacePath").empty())
        out.push_back({Cost::kAll, "PrivateIPC= or IPCNamespacePath=: no process outside its IPC namespace is met",
                       "set PrivateIPC=no, and no IPCNamespacePath="});
    if (!unit.last("RootDirectory").empty() || !unit.last("RootImage").empty())
        out.push_back({Cost::kAll, "RootDirectory= or RootImage=: libvma.so has to be inside",
                       "BindReadOnlyPaths= the folder of libvma.so, and BindPaths=/dev/shm"});
}

void judge_users(const Unit &unit, Findings &out)
{
    const std::string user = unit.last("User");
    if (!unit.is_on("DynamicUser") && (user.empty() || user == "root"))
        return;
    out.push_back({Cost::kNote,
                   std::string(unit.is_on("DynamicUser") ? "DynamicUser=" : "User=") +
                       ": datagrams to programs of other users go by the kernel (streams are accelerated)",
                   "run programs that exchange datagrams as one user"});
}

void judge_calls(const Unit &unit, Findings &out)
{
    const bool kills = unit.last("SystemCallErrorNumber").empty();
    if (const std::string refused = refused_by(unit.all("SystemCallFilter"), kills); !refused.empty())
        out.push_back(mended(Cost::kAll, "SystemCallFilter= refuses " + refused + ", which acceleration needs",
                             "SystemCallFilter=" + refused));
    for (const char *const family : {"AF_UNIX", "AF_NETLINK"})
        if (!has_family(unit, family))
            out.push_back(mended(Cost::kAll, std::string("RestrictAddressFamilies= leaves ") + family + " out",
                                 std::string("RestrictAddressFamilies=") + family));
}

void judge_paths(const Unit &unit, const Intent &intent, Findings &out)
{
    constexpr std::string_view kMeeting = "/dev/shm";
    // Of two that name the same folder the stricter one counts.
    const std::size_t closed = deepest(unit, "ReadOnlyPaths", kMeeting);
    if (closed != 0 && closed >= deepest(unit, "ReadWritePaths", kMeeting)) {
        const std::string what = "ReadOnlyPaths= has /dev/shm, where processes meet";
        if (closed < kMeeting.size())
            out.push_back(mended(Cost::kAll, what, "ReadWritePaths=/dev/shm"));
        else
            out.push_back({Cost::kAll, what, "remove it from there, or let VMA_SHM_DIR name another folder"});
    }
    for (const char *const key : {"InaccessiblePaths", "TemporaryFileSystem"})
        if (deepest(unit, key, kMeeting) != 0)
            out.push_back({Cost::kAll, std::string(key) + "= hides /dev/shm, where processes meet",
                           "remove it from there, or let VMA_SHM_DIR name another folder"});
    if (deepest(unit, "NoExecPaths", intent.library) > deepest(unit, "ExecPaths", intent.library))
        out.push_back(mended(Cost::kAll, "NoExecPaths= has the folder of " + intent.library + ", so it can't be loaded",
                             "ExecPaths=" + intent.library.substr(0, intent.library.rfind('/'))));
    if (unit.is_on("ProtectHome") || unit.last("ProtectHome") == "tmpfs")
        for (const char *const home : {"/home", "/root", "/run/user"})
            if (is_below(intent.library, home))
                out.push_back({Cost::kAll, "ProtectHome= hides " + intent.library, "install libvma.so into /usr"});
    if (unit.is_on("PrivateTmp") && is_below(intent.library, "/tmp"))
        out.push_back({Cost::kAll, "PrivateTmp= hides " + intent.library, "install libvma.so into /usr"});
}

void judge_limits(const Unit &unit, Findings &out)
{
    constexpr std::uint64_t kFew = 1024;
    const std::string files = unit.last("LimitNOFILE");
    if (const auto most = parse_number(files.substr(0, files.find(':'))); most && *most < kFew)
        out.push_back(mended(Cost::kSome,
                             "LimitNOFILE=" + files + ": the library needs descriptors beside the program's",
                             "LimitNOFILE=65536"));
    for (const char *const key : {"LimitAS", "LimitFSIZE"})
        if (const std::string value = unit.last(key); !value.empty() && value != "infinity")
            out.push_back(mended(Cost::kSome, std::string(key) + "=" + value + " bounds the shared memory, too",
                                 std::string(key) + "=infinity"));
    if (unit.last("LimitNPROC") == "1")
        out.push_back(mended(Cost::kAll, "LimitNPROC=1 leaves no thread to the library", "LimitNPROC=64"));
}

void judge_rights(const Unit &unit, Findings &out)
{
    const std::string user = unit.last("User");
    const bool is_root = !unit.is_on("DynamicUser") && (user.empty() || user == "root" || user == "0");
    std::string given;
    for (const std::string &value : unit.all(is_root ? "CapabilityBoundingSet" : "AmbientCapabilities"))
        given += value + " ";
    const bool bounded = !is_root || !unit.all("CapabilityBoundingSet").empty();
    for (const char *const right : {"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"})
        if (bounded && !given.starts_with('~') == (given.find(right) == std::string::npos))
            out.push_back(mended(Cost::kSome, std::string("--ethernet needs ") + right,
                                 std::string(is_root ? "CapabilityBoundingSet=" : "AmbientCapabilities=") + right));
}

void judge_environment(const Unit &unit, Findings &out)
{
    for (const std::string &value : unit.all("UnsetEnvironment"))
        for (const std::string &word : words_of_value(value))
            if (word == "LD_PRELOAD" || word.starts_with("LD_PRELOAD="))
                out.push_back({Cost::kAll, "UnsetEnvironment= takes LD_PRELOAD away", "remove it from there"});
    if (!unit.all("EnvironmentFile").empty())
        out.push_back({Cost::kNote, "EnvironmentFile= is read after the drop-in, and its variables count",
                       "see that it has no LD_PRELOAD and no other VMA_*"});
}

} // namespace

std::vector<std::string> mend(Unit unit, const Intent &intent)
{
    constexpr int kMostRounds = 32; // a filter tells one refusal at a time
    std::vector<std::string> settings;
    for (int round = 0; round < kMostRounds; ++round) {
        const std::size_t before = settings.size();
        for (const Finding &one : judge(unit, intent))
            if (!one.setting.empty() && std::find(settings.begin(), settings.end(), one.setting) == settings.end())
                settings.push_back(one.setting);
        if (settings.size() == before)
            break;
        for (std::size_t i = before; i < settings.size(); ++i)
            unit.add(parse_unit("[Service]\n" + settings[i]));
    }
    return settings;
}

Findings judge(const Unit &unit, const Intent &intent)
{
    Findings out;
    judge_namespaces(unit, out);
    judge_users(unit, out);
    judge_calls(unit, out);
    judge_paths(unit, intent, out);
    judge_limits(unit, out);
    judge_environment(unit, out);
    if (intent.ethernet)
        judge_rights(unit, out);
    return out;
}

} // namespace vma::command
