// SPDX-License-Identifier: BSD-2-Clause
// The directory of one user in which passive endpoints are found: one listening UNIX socket a port, nothing
// else. It creates and verifies the directory, allocates ports, and removes the names that the dead left
// behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/fd.hpp"

namespace vma::local {

class Directory;

// Ports of the kinds of endpoints have nothing to do with each other, as TCP's and UDP's.
enum class NameKind { connections, datagrams, reliable };

// A name in the directory with the listening socket behind it. Removed by its destructor, but never in a
// forked child.
class PortName
{
public:
    PortName() noexcept = default;
    PortName(PortName &&other) noexcept;
    PortName &operator=(PortName &&other) noexcept;
    ~PortName() { reset(); }

    std::uint16_t port() const noexcept { return port_; }
    int socket() const noexcept { return socket_.get(); }
    // A number of this listener, which is another one for each that ever has the name, as incarnation_behind() tells
    // who has connected to it. 0: unknown.
    std::uint32_t incarnation() const noexcept;
    explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
    void reset() noexcept;

private:
    friend class Directory;
    std::shared_ptr<Directory> directory_;
    std::string name_;
    core::UniqueFd socket_;
    std::uint16_t port_ = 0;
    std::uint32_t generation_ = 0;
};

// Of the listener that a socket was connected to by a name. 0: unknown.
std::uint32_t incarnation_behind(int socket) noexcept;

// Which endpoint of all that ever have a name: its process, of which the kernel tells, and its incarnation, which an
// endpoint says of itself. So nobody can call himself another process's, whoever is heard of first.
constexpr std::uint64_t identity_of(pid_t process, std::uint32_t incarnation) noexcept
{
    const std::uint32_t seen = process > 0 ? static_cast<std::uint32_t>(process) : UINT32_MAX; // of another namespace
    return std::uint64_t{seen} << 32 | incarnation;
}
// Whether two that were heard of may be one. 0: nothing is known of it, or, in the lower half, of its incarnation.
constexpr bool may_be(std::uint64_t identity, std::uint64_t other) noexcept
{
    const std::uint64_t differ = identity ^ other;
    return differ == 0 || identity == 0 || other == 0 ||
           (differ >> 32 == 0 && (static_cast<std::uint32_t>(identity) == 0 || static_cast<std::uint32_t>(other) == 0));
}
static_assert(!may_be(identity_of(0, 0), identity_of(37, 5)) && may_be(identity_of(37, 0), identity_of(37, 5)));

class Directory : public std::enable_shared_from_this<Directory>
{
public:
    // Where FI_VMA_DIR or VMA_SHM_DIR say, else /dev/shm/vma-<uid>, or, where another user has made that,
    // /run/user/<uid>/vma (root: /run/vma-0). Removes what the dead left. On failure an error is logged, *error is a
    // negative fi_errno and nothing is returned.
    static std::shared_ptr<Directory> open(int *error) noexcept;
    static std::shared_ptr<Directory> open_at(std::string path, int *error) noexcept;

    // Binds and listens. Port 0 takes any free one. 0, -FI_EADDRINUSE or another negative fi_errno.
    int reserve(std::uint16_t port, PortName &name, NameKind kind = NameKind::connections) noexcept;

    // A socket whose connection to the port's listener is made. *error: -FI_ECONNREFUSED when nobody listens,
    // -FI_EAGAIN when its backlog is full: try again later.
    core::UniqueFd connect(std::uint16_t port, int *error, NameKind kind = NameKind::connections) noexcept;

    std::string name_of(std::uint16_t port, NameKind kind) const;
    core::UniqueFd connect_name(const std::string &name, int *error) noexcept;

    // Members of a group of datagram endpoints: each has a second name, "<network namespace>-g<group>-<port>", which is
    // a link to the first and so dies with it. A group's own name has no "-". 0 or a negative fi_errno.
    int join(const std::string &group, const PortName &member) noexcept;
    void leave(const std::string &group, const PortName &member) noexcept;
    // The names of the members, those of the dead perhaps included.
    std::vector<std::string> members(const std::string &group) const noexcept;
    // When a name was made or removed last: ns of the file system's clock, which stands for some milliseconds.
    std::int64_t changed_at() const noexcept;

    // Removes every name of ours whose socket nobody holds, unless another process is at it. How many were removed.
    int reap() noexcept;

    const std::string &path() const noexcept { return path_; }

private:
    friend class PortName;
    struct Passkey {
    };

public:
    Directory(Passkey, std::string path, core::UniqueFd fd) noexcept;

private:
    class Lock;
    int make_listener(core::UniqueFd &socket, std::string &name) noexcept;
    int take_name(const std::string &listener, const std::string &name) noexcept;
    int bind_name(const std::string &name, core::UniqueFd &socket) noexcept;
    bool is_dead(const std::string &name) noexcept;

    std::string path_;
    core::UniqueFd fd_;
};

} // namespace vma::local
