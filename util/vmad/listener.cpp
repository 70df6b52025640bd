// SPDX-License-Identifier: BSD-2-Clause
#include "listener.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vma::guard {

namespace {

constexpr int kBacklog = 128;

std::string failure(const std::string &what)
{
    return what + ": " + std::strerror(errno);
}

void make_folder_of(const std::string &path)
{
    const std::size_t slash = path.rfind('/');
    if (slash != std::string::npos && slash != 0)
        mkdir(path.substr(0, slash).c_str(), 0755); // what is wrong with it is said when it is used
}

} // namespace

Listener::~Listener()
{
    if (!path_.empty())
        unlink(path_.c_str());
    if (lock_)
        flock(lock_.get(),
              LOCK_UN); // a child that closes what others have given (broker/discards.hpp) may still have it
}

std::string Listener::open(const char *path, mode_t mode)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length == 0 || length >= sizeof address.sun_path)
        return std::string(path) + ": the path of a socket has 1 to " + std::to_string(sizeof address.sun_path - 1) +
               " bytes";
    std::memcpy(address.sun_path, path, length);
    make_folder_of(path);
    if (std::string error = take_place(path); !error.empty())
        return error;
    socket_ = core::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_)
        return failure("socket");
    const mode_t before = umask(0777 & ~mode);
    const int bound = bind(socket_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address);
    umask(before);
    if (bound != 0)
        return failure(path);
    path_ = path;
    return listen(socket_.get(), kBacklog) == 0 ? "" : failure(path);
}

int Listener::accept(core::UniqueFd &connection) const
{
    do {
        connection = core::UniqueFd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (connection)
            return 0;
    } while (errno == ECONNABORTED || errno == EINTR);
    return errno;
}

bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

std::string Listener::take_place(const std::string &path)
{
    const std::string lock = path + ".lock";
    lock_ = core::UniqueFd(::open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_)
        return failure(lock);
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? path + ": another vmad listens there" : failure(lock);
    struct stat there = {};
    if (lstat(path.c_str(), &there) != 0)
        return errno == ENOENT ? "" : failure(path);
    if (!S_ISSOCK(there.st_mode))
        return path + ": is there, and is no socket";
    return unlink(path.c_str()) == 0 ? "" : failure(path);
}

} // namespace vma::guard
