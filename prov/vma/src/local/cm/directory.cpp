// SPDX-License-Identifier: BSD-2-Clause
// A name is "<network namespace>-<port>", with a "d" before the port of a datagram endpoint, or an "r" if it is a
// reliable one. It is given by link(2) to a socket that listens already, bound under a name of its own ("t-<random>"),
// so making one needs no lock, and one that nobody answers is a dead one's. The dead ones' are removed under a lock on
// the directory itself, which nobody waits for: its holder may have been stopped (SIGSTOP, a frozen container).
#include "local/cm/directory.hpp"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/folder.hpp"
#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ofi/libfabric.hpp"

namespace vma::local {
namespace {

constexpr int kBacklog = 4096;              // connections that wait to be accepted; cut by net.core.somaxconn
constexpr int kLockTries = 100;             // of a millisecond, where somebody wants the very port of a dead one
constexpr int kListenerTries = 8;           // a name of ours can be taken for a dead one's before it listens
constexpr std::uint16_t kFirstPort = 16384; // of those chosen for port 0
constexpr std::uint16_t kPortCount = 32768;
constexpr int kPortTries = 256;

// Whose port numbers they are: /proc knows a namespace by its inode.
unsigned long network_namespace() noexcept
{
    struct stat info {
    };
    return core::kernel::stat("/proc/thread-self/ns/net", &info) == 0 ? static_cast<unsigned long>(info.st_ino) : 0;
}

bool parse_name(const char *name, unsigned long &net, unsigned &port) noexcept
{
    int end = 0;
    if (std::sscanf(name, "t-%*8[0-9a-f]%n", &end) == 0 && end != 0 && name[end] == '\0')
        return true; // its maker died before it had a port
    if (std::sscanf(name, "%lu-%u%n", &net, &port, &end) != 2 &&
        std::sscanf(name, "%lu-%*1[dr]%u%n", &net, &port, &end) != 2)
        return std::sscanf(name, "%lu-g%*[0-9a-f.]-%u%n", &net, &port, &end) == 2 && name[end] == '\0';
    return name[end] == '\0' && port > 0 && port <= 65535;
}

std::uint16_t any_port() noexcept
{
    std::uint16_t random = 0;
    [[maybe_unused]] const ssize_t filled = ::getrandom(&random, sizeof(random), 0);
    return static_cast<std::uint16_t>(kFirstPort + random % kPortCount);
}

core::UniqueFd new_socket() noexcept
{
    return core::make_fd(
        [] { return core::kernel::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

// The path of a name; where it is too long for a socket address, through our own descriptor of the directory.
bool socket_address(const std::string &directory, int fd, const std::string &name, sockaddr_un &address) noexcept
{
    address = {};
    address.sun_family = AF_UNIX;
    const std::size_t room = sizeof(address.sun_path);
    const int direct = std::snprintf(address.sun_path, room, "%s/%s", directory.c_str(), name.c_str());
    if (direct > 0 && static_cast<std::size_t>(direct) < room)
        return true;
    const int indirect = std::snprintf(address.sun_path, room, "/proc/self/fd/%d/%s", fd, name.c_str());
    return indirect > 0 && static_cast<std::size_t>(indirect) < room;
}

const sockaddr *generic(const sockaddr_un &address) noexcept
{
    return reinterpret_cast<const sockaddr *>(&address);
}

int verify(const std::string &path, int fd) noexcept
{
    struct stat info {
    };
    if (core::kernel::fstat(fd, &info) != 0)
        return -errno;
    if (info.st_uid != ::geteuid()) {
        VMA_WARN(fabric, "directory %s belongs to user %u: not used", path.c_str(), info.st_uid);
        return -FI_EACCES;
    }
    if ((info.st_mode & 077) != 0) {
        VMA_WARN(fabric, "directory %s has mode %03o, others may enter it: not used (it must be 700)", path.c_str(),
                 info.st_mode & 0777);
        return -FI_EACCES;
    }
    return 0;
}

// Everybody may make the first name; the second one is in a folder that is this user's alone, where he has one.
std::string default_path(uid_t user)
{
    std::string path = "/dev/shm/vma-" + std::to_string(user);
    struct stat info {
    };
    if (core::kernel::fstatat(AT_FDCWD, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || info.st_uid == user)
        return path;
    return user == 0 ? "/run/vma-0" : "/run/user/" + std::to_string(user) + "/vma";
}

// A socket keeps the name that it was bound under, "t-<random>", whatever links there are to it, and who connects to it
// by any of them is told that name.
template <typename Call> std::uint32_t number_in_name(Call &&call) noexcept
{
    sockaddr_un address{};
    socklen_t length = sizeof(address) - 1;
    if (call(reinterpret_cast<sockaddr *>(&address), &length) != 0)
        return 0;
    const char *const name = std::strrchr(address.sun_path, '/');
    unsigned number = 0;
    int end = 0;
    const bool ours = name != nullptr && std::sscanf(name, "/t-%8x%n", &number, &end) == 1 && name[end] == '\0';
    return ours ? number : 0;
}

} // namespace

std::uint32_t PortName::incarnation() const noexcept
{
    return number_in_name([this](sockaddr *address, socklen_t *length) {
        return core::kernel::getsockname(socket_.get(), address, length);
    });
}

std::uint32_t incarnation_behind(int socket) noexcept
{
    return number_in_name(
        [socket](sockaddr *address, socklen_t *length) { return core::kernel::getpeername(socket, address, length); });
}

// flock(2) on the directory, through an open file of this lock's own: it excludes other fabrics of the process too, and
// goes with its holder, however that ends.
class Directory::Lock
{
public:
    Lock(int directory, int tries) noexcept
        : fd_(core::make_fd([=] { return core::kernel::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }))
    {
        const timespec millisecond{0, 1000000};
        for (int i = 0; fd_ && i < tries; ++i) {
            if (core::kernel::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
                held_ = true;
                return;
            }
            if ((errno != EWOULDBLOCK && errno != EINTR) || i + 1 == tries)
                return;
            core::kernel::nanosleep(&millisecond, nullptr);
        }
    }
    bool held() const noexcept { return held_; }

private:
    core::UniqueFd fd_;
    bool held_ = false;
};

PortName::PortName(PortName &&other) noexcept
    : directory_(std::move(other.directory_)), name_(std::move(other.name_)), socket_(std::move(other.socket_)),
      port_(std::exchange(other.port_, std::uint16_t{0})), generation_(other.generation_)
{
}

PortName &PortName::operator=(PortName &&other) noexcept
{
    if (this != &other) {
        reset();
        directory_ = std::move(other.directory_);
        name_ = std::move(other.name_);
        socket_ = std::move(other.socket_);
        port_ = std::exchange(other.port_, std::uint16_t{0});
        generation_ = other.generation_;
    }
    return *this;
}

// The name goes before the socket: as long as it is there, it is alive, and only its owner removes it.
void PortName::reset() noexcept
{
    if (directory_ && generation_ == core::fork_generation())
        core::kernel::unlinkat(directory_->fd_.get(), name_.c_str(), 0);
    socket_.reset();
    directory_.reset();
    port_ = 0;
}

Directory::Directory(Passkey, std::string path, core::UniqueFd fd) noexcept : path_(std::move(path)), fd_(std::move(fd))
{
}

std::shared_ptr<Directory> Directory::open(int *error) noexcept
{
    if (const char *named = ofi::param(ofi::Param::directory))
        return open_at(named, error);
    return open_at(default_path(::geteuid()), error);
}

std::shared_ptr<Directory> Directory::open_at(std::string path, int *error) noexcept
{
    if (core::kernel::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        *error = -errno;
        VMA_WARN(fabric, "cannot make the directory %s: %s", path.c_str(), std::strerror(-*error));
        return nullptr;
    }
    core::UniqueFd fd = core::make_fd(
        [&] { return core::kernel::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (!fd) {
        *error = -errno;
        VMA_WARN(fabric, "cannot open the directory %s: %s", path.c_str(), std::strerror(-*error));
        return nullptr;
    }
    *error = verify(path, fd.get());
    if (*error != 0)
        return nullptr;
    auto directory = std::make_shared<Directory>(Passkey(), std::move(path), std::move(fd));
    directory->reap();
    return directory;
}

std::string Directory::name_of(std::uint16_t port, NameKind kind) const
{
    const char *const letter = kind == NameKind::datagrams ? "-d" : kind == NameKind::reliable ? "-r" : "-";
    return std::to_string(network_namespace()) + letter + std::to_string(port);
}

// Under a name that nobody looks for.
int Directory::make_listener(core::UniqueFd &socket, std::string &name) noexcept
{
    std::uint32_t random = 0;
    char text[16];
    sockaddr_un address;
    [[maybe_unused]] const ssize_t filled = ::getrandom(&random, sizeof(random), 0);
    random += random == 0 ? 1 : 0; // as an incarnation, 0 is none
    std::snprintf(text, sizeof(text), "t-%08x", random);
    name = text;
    if (!socket_address(path_, fd_.get(), name, address))
        return -ENAMETOOLONG;
    socket = new_socket();
    if (!socket)
        return -errno;
    if (core::kernel::bind(socket.get(), generic(address), sizeof(address)) != 0)
        return -errno;
    if (core::kernel::listen(socket.get(), kBacklog) == 0)
        return 0;
    const int error = -errno;
    core::kernel::unlinkat(fd_.get(), name.c_str(), 0);
    return error;
}

// 0, -FI_EADDRINUSE where somebody has the name, or another error.
int Directory::take_name(const std::string &listener, const std::string &name) noexcept
{
    const int directory = fd_.get();
    if (core::kernel::linkat(directory, listener.c_str(), directory, name.c_str(), 0) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (!is_dead(name))
        return -FI_EADDRINUSE;
    const Lock lock(directory, kLockTries);
    if (!lock.held()) {
        VMA_WARN(fabric, "directory %s stays locked by another process: the name of a dead one is not free",
                 path_.c_str());
        return -FI_EADDRINUSE;
    }
    if (is_dead(name)) // only who has the lock takes a dead one's name away
        core::kernel::unlinkat(directory, name.c_str(), 0);
    if (core::kernel::linkat(directory, listener.c_str(), directory, name.c_str(), 0) == 0)
        return 0;
    return errno == EEXIST ? -FI_EADDRINUSE : -errno;
}

int Directory::bind_name(const std::string &name, core::UniqueFd &socket) noexcept
{
    int result = -ENOENT;
    for (int i = 0; i < kListenerTries && (result == -ENOENT || result == -EADDRINUSE); ++i) {
        std::string own;
        result = make_listener(socket, own);
        if (result != 0)
            continue;
        result = take_name(own, name);
        core::kernel::unlinkat(fd_.get(), own.c_str(), 0);
        if (result == -FI_EADDRINUSE)
            break;
    }
    if (result != 0)
        socket.reset();
    return result;
}

int Directory::reserve(std::uint16_t port, PortName &name, NameKind kind) noexcept
{
    std::uint16_t chosen = port;
    core::UniqueFd socket;
    int result = -FI_EADDRINUSE;
    for (int i = 0; i < (port == 0 ? kPortTries : 1) && result == -FI_EADDRINUSE; ++i) {
        if (port == 0)
            chosen = any_port();
        result = bind_name(name_of(chosen, kind), socket);
    }
    if (result != 0) {
        if (result != -FI_EADDRINUSE)
            VMA_WARN(fabric, "cannot make an endpoint's name in %s: %s", path_.c_str(), std::strerror(-result));
        return result;
    }
    name.reset();
    name.directory_ = shared_from_this();
    name.name_ = name_of(chosen, kind);
    name.socket_ = std::move(socket);
    name.port_ = chosen;
    name.generation_ = core::fork_generation();
    return 0;
}

core::UniqueFd Directory::connect_name(const std::string &name, int *error) noexcept
{
    sockaddr_un address;
    core::UniqueFd socket;
    if (!socket_address(path_, fd_.get(), name, address)) {
        *error = -ENAMETOOLONG;
        return socket;
    }
    socket = new_socket();
    if (!socket) {
        *error = -errno;
        return socket;
    }
    *error = 0;
    if (core::kernel::connect(socket.get(), generic(address), sizeof(address)) == 0)
        return socket;
    // A file that is no socket of our kind is nobody's listener.
    *error = errno == ENOENT || errno == EPROTOTYPE || errno == ENOTSOCK ? -FI_ECONNREFUSED : -errno;
    socket.reset();
    return socket;
}

core::UniqueFd Directory::connect(std::uint16_t port, int *error, NameKind kind) noexcept
{
    return connect_name(name_of(port, kind), error);
}

bool Directory::is_dead(const std::string &name) noexcept
{
    struct stat info {
    };
    if (core::kernel::fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(info.st_mode))
        return false; // gone, or foreign: not ours to judge
    int error = 0;
    const core::UniqueFd probe = connect_name(name, &error);
    return error == -FI_ECONNREFUSED;
}

int Directory::reap() noexcept
{
    const Lock lock(fd_.get(), 1);
    if (!lock.held())
        return 0;
    core::Folder list(fd_.get(), ".");
    int removed = 0;
    while (const char *const name = list.next()) {
        unsigned long net = 0;
        unsigned port = 0;
        if (!parse_name(name, net, port) || !is_dead(name))
            continue;
        if (core::kernel::unlinkat(fd_.get(), name, 0) == 0)
            ++removed;
    }
    if (removed > 0)
        VMA_INFO(fabric, "removed %d names of dead processes from %s", removed, path_.c_str());
    return removed;
}

} // namespace vma::local
