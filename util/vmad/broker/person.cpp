// SPDX-License-Identifier: BSD-2-Clause
#include "person.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "core/fd.hpp"
#include "discards.hpp"

namespace vma::guard {

namespace {

#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;
#endif

core::UniqueFd process_of(int socket)
{
    int process = -1;
    socklen_t length = sizeof process;
    getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &length);
    return core::UniqueFd(process);
}

std::string cgroup_of(pid_t pid)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/cgroup";
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "re"), std::fclose);
    char line[4200];
    while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
        if (std::strncmp(line, "0::", 3) == 0) // that of version 2
            return std::string(line + 3, std::strcspn(line + 3, "\n"));
    }
    return "";
}

} // namespace

bool identify(int socket, Person &out)
{
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return false;
    out = {peer.uid, peer.gid, peer.pid, ""};
    const core::UniqueFd process = process_of(socket);
    if (!process || peer.pid <= 0)
        return true;
    std::string cgroup = cgroup_of(peer.pid);
    if (!has_come(process.get(), POLLIN)) // it lives, so it was the one that was read of
        out.cgroup = std::move(cgroup);
    return true;
}

} // namespace vma::guard
