// SPDX-License-Identifier: BSD-2-Clause
// A voucher is an epoll set that has the TCP socket in it, with the number of the link's end as the entry's data. Only
// a process that has the socket's descriptor can put it into a set, the kernel shows to whoever has the set which
// socket it is and what stands beside it, and nobody without that descriptor can change the entry. A copy of a voucher
// says nothing about who shows it: the link's end in it does.
#include "local/cm/possession.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <sys/sysmacros.h>

#include <rdma/fi_errno.h>

#include "core/kernel.hpp"
#include "local/segment.hpp"

namespace vma::local {
namespace {

constexpr std::uint64_t kPurpose =
    0x564d4131; // "VMA1": beside the number of a link's end, so that no other program's set says the same

std::uint64_t statement(SocketInode end_of_link) noexcept
{
    return kPurpose << 32 | end_of_link;
}

// proc(5): one line for each descriptor in the set. We make sets of one; of a longer list only the beginning is read.
ssize_t read_entries(int set, char *text, std::size_t room) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/thread-self/fdinfo/%d", set);
    const core::UniqueFd file = core::make_fd([&] { return core::kernel::open(path, O_RDONLY | O_CLOEXEC); });
    const ssize_t length = file ? core::kernel::read(file.get(), text, room - 1) : -1;
    text[length > 0 ? length : 0] = '\0';
    return length;
}

bool is_set(int fd) noexcept
{
    epoll_event event{};
    return core::kernel::epoll_wait(fd, &event, 1, 0) >= 0;
}

struct Entry {
    std::uint64_t data = 0;
    std::uint64_t inode = 0;
    std::uint64_t device = 0; // as the kernel writes it: 12 bits and 20

    bool parse(const char *line) noexcept
    {
        return std::sscanf(line, "tfd: %*d events: %*x data: %" SCNx64 " pos:%*d ino:%" SCNx64 " sdev:%" SCNx64, &data,
                           &inode, &device) == 3;
    }
};

bool says(const char *text, const Entry &wanted) noexcept
{
    for (const char *line = text; line != nullptr; line = std::strchr(line, '\n')) {
        line += *line == '\n' ? 1 : 0;
        Entry found;
        if (std::strncmp(line, "tfd:", 4) == 0 && found.parse(line) && found.data == wanted.data &&
            found.inode == wanted.inode && found.device == wanted.device)
            return true;
    }
    return false;
}

} // namespace

int TcpEnd::assign(int tcp_socket, const TcpAddresses *known, SockDiag &kernel) noexcept
{
    struct stat status {
    };
    if (core::kernel::fstat(tcp_socket, &status) != 0)
        return -errno;
    if (!S_ISSOCK(status.st_mode))
        return -FI_EINVAL;
    TcpAddresses asked;
    if (const int error = known == nullptr ? read_tcp_addresses(tcp_socket, asked) : 0)
        return error;
    socket = tcp_socket;
    own_end = static_cast<SocketInode>(status.st_ino);
    device = std::uint64_t{major(status.st_dev)} << 20 | minor(status.st_dev);
    return kernel.other_end_of_tcp(known != nullptr ? *known : asked, other_end, other_owner);
}

core::UniqueFd make_voucher(int tcp_socket, SocketInode own_end_of_link) noexcept
{
    core::UniqueFd set = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    epoll_event event{}; // it waits for nothing
    event.data.u64 = statement(own_end_of_link);
    if (set && core::kernel::epoll_ctl(set.get(), EPOLL_CTL_ADD, tcp_socket, &event) != 0) {
        const int error = errno;
        set.reset();
        errno = error;
    }
    return set;
}

core::UniqueFd make_token(int tcp_socket) noexcept
{
    char path[48];
    std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", tcp_socket);
    return core::make_fd([&] { return core::kernel::open(path, O_PATH | O_CLOEXEC); });
}

namespace {

// All users that this process's user namespace does not know have one number: it names nobody.
bool is_somebody(uid_t user) noexcept
{
    constexpr uid_t kOverflow = 65534;
    if (user != kOverflow)
        return true;
    const core::UniqueFd file =
        core::make_fd([] { return core::kernel::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC); });
    char text[128] = {};
    unsigned inside = 1;
    unsigned outside = 1;
    unsigned count = 0;
    return file && core::kernel::read(file.get(), text, sizeof text - 1) > 0 &&
           std::sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 && count == UINT32_MAX;
}

} // namespace

int check_token(int token, const TcpEnd &tcp, uid_t user) noexcept
{
    const int flags = core::kernel::fcntl(token, F_GETFL);
    const bool shows = flags >= 0 && (flags & O_PATH) != 0 && socket_number(token) == tcp.other_end;
    return shows && user == tcp.other_owner && is_somebody(user) ? 0 : -FI_EACCES;
}

int check_voucher(int voucher, const TcpEnd &tcp, SocketInode peers_end_of_link) noexcept
{
    char text[1024];
    if (voucher < 0 || peers_end_of_link == 0 || read_entries(voucher, text, sizeof text) <= 0)
        return -FI_EACCES;
    if (std::strstr(text, "tfd:") == nullptr && is_set(voucher))
        return -FI_ENOTCONN; // the kernel takes a socket out of all sets when it is closed
    return says(text, {statement(peers_end_of_link), tcp.other_end, tcp.device}) ? 0 : -FI_EACCES;
}

} // namespace vma::local
