// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/machine.hpp"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "compat/src/base/bounds.hpp"
#include "compat/src/engine/sandbox_trial.hpp"
#include "compat/src/rendezvous/broker_messages.hpp"
#include "util/tool/fd.hpp"
#include "util/vma/files.hpp"

namespace vma::command {

namespace {

constexpr std::uint64_t kRing = std::uint64_t{256} << 10; // VMA_STREAM_RING's default

bool is_of_another(const std::string &path, uid_t user)
{
    struct stat status = {};
    return ::lstat(path.c_str(), &status) == 0 &&
           (!S_ISDIR(status.st_mode) || status.st_uid != user || (status.st_mode & 077) != 0);
}

// As the library chooses it (compat/src/rendezvous/offer.cpp).
std::string meeting_folder(const Place &place)
{
    std::string named = place.variable("VMA_SHM_DIR");
    std::string usual = "/dev/shm/vma-" + std::to_string(place.user);
    if (!named.empty())
        return named;
    if (!is_of_another(place.root + usual, place.user))
        return usual;
    return place.user == 0 ? "/run/vma-0" : "/run/user/" + std::to_string(place.user) + "/vma";
}

Meeting look_at_meeting(const Place &place, const std::string &folder)
{
    const std::string path = place.root + folder;
    struct stat status = {};
    struct statvfs system = {};
    std::string here = path;
    if (is_of_another(path, place.user))
        return Meeting::kStranger;
    if (::stat(path.c_str(), &status) != 0)
        here = path.substr(0, path.rfind('/'));
    if (::stat(here.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
        return Meeting::kMissing;
    if (::statvfs(here.c_str(), &system) == 0 && (system.f_flag & ST_RDONLY) != 0)
        return Meeting::kReadOnly;
    return !place.is_self || ::access(here.c_str(), W_OK | X_OK) == 0 ? Meeting::kGood : Meeting::kReadOnly;
}

std::uint64_t count_streams(const Place &place, std::uint64_t most_mappings)
{
    sock::ProcessLimits limits = sock::read_process_limits(0);
    if (!place.is_self) {
        limits = {};
        limits.mappings = most_mappings;
        limits.mapped = place.mappings;
        limits.address_space = place.limits.address_space;
    }
    const std::uint64_t ring = parse_number(place.variable("VMA_STREAM_RING")).value_or(kRing);
    return sock::most_streams(limits, ring);
}

std::vector<Interface> look_at_interfaces(const std::string &names)
{
    std::vector<Interface> all;
    for (const std::string_view name : split(names, ",")) {
        if (trim(name) == "*")
            continue;
        Interface one{std::string(trim(name))};
        const std::string folder = "/sys/class/net/" + one.name;
        one.exists = ::if_nametoindex(one.name.c_str()) != 0;
        const std::string state{trim(read_file(folder + "/operstate", 64).value_or(""))};
        one.is_up = state == "up" || state == "unknown"; // some drivers tell nothing
        all.push_back(std::move(one));
    }
    return all;
}

bool wait_for_answer(int fd)
{
    constexpr int kPatienceMs = 1000;
    pollfd waiting = {fd, POLLIN, 0};
    return ::poll(&waiting, 1, kPatienceMs) == 1 && (waiting.revents & POLLIN) != 0;
}

} // namespace

// A version that nobody speaks is answered, and nothing else happens (doc/broker.md).
Broker ask_broker(const std::string &path)
{
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof name.sun_path)
        return Broker::kNobody;
    memcpy(name.sun_path, path.data(), path.size());
    const tool::Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0 || ::connect(fd.get(), reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0)
        return errno == EACCES || errno == EPERM ? Broker::kForbidden
               : errno == EAGAIN                 ? Broker::kSilent
                                                 : Broker::kNobody;
    const broker::Request question = {broker::kMagic, UINT16_MAX, sizeof question, broker::Kind::kAsk, 1};
    broker::Answer answer = {};
    if (::send(fd.get(), &question, sizeof question, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof question) ||
        !wait_for_answer(fd.get()) ||
        ::recv(fd.get(), &answer, sizeof answer, MSG_DONTWAIT) < static_cast<ssize_t>(broker::kAnswerBase) ||
        answer.header.magic != broker::kMagic)
        return Broker::kSilent;
    return Broker::kAnswers;
}

Machine look_around(const Place &place)
{
    Machine m;
    m.folder = meeting_folder(place);
    m.meeting = look_at_meeting(place, m.folder);
    m.most_mappings = read_number("/proc/sys/vm/max_map_count").value_or(kUnlimited);
    m.most_streams = count_streams(place, m.most_mappings);
    m.huge_pages = read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").value_or(0);
    struct stat first = {};
    if (::stat("/proc/1/ns/net", &first) == 0)
        m.first_network = first.st_ino;
    const auto named = place.variables.find("VMA_BROKER");
    m.broker_path = named != place.variables.end() ? named->second : std::string(broker::kPath);
    const bool unwanted = m.broker_path.empty() || place.variable("VMA_OTHER_USERS") == "0";
    m.broker = unwanted ? Broker::kUnwanted : ask_broker(place.root + m.broker_path);
    if (place.is_self && place.seccomp == SECCOMP_MODE_FILTER)
        if (const char *const call = sock::refused_call(); call != nullptr)
            m.refused = call;
    m.interfaces = look_at_interfaces(place.variable("VMA_ETHERNET"));
    return m;
}

} // namespace vma::command
