// SPDX-License-Identifier: BSD-2-Clause
#include "fabtests/ether/programs/commands.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fabtest {

using vma::inet::IpAddress;

bool Commands::take(const std::function<void(const std::string &line)> &obey)
{
    pollfd wanted{STDIN_FILENO, POLLIN, 0};
    if (::poll(&wanted, 1, 0) <= 0)
        return true;
    char bytes[4096];
    const ssize_t size = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (size <= 0)
        return false;
    input_.append(bytes, static_cast<std::size_t>(size));
    for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
        obey(input_.substr(0, end));
        input_.erase(0, end + 1);
    }
    return true;
}

void answer(int status)
{
    std::printf("%s\n", status == 0 ? "ok" : strerrorname_np(-status));
    std::fflush(stdout);
}

bool parse_address(const std::string &text, IpAddress &address)
{
    std::uint8_t bytes[16];
    if (::inet_pton(AF_INET, text.c_str(), bytes) == 1)
        address = IpAddress::v4(bytes);
    else if (::inet_pton(AF_INET6, text.c_str(), bytes) == 1)
        address = IpAddress::v6(bytes);
    else
        return false;
    return true;
}

std::string text_of(const IpAddress &address)
{
    char text[INET6_ADDRSTRLEN];
    if (address.is_v4())
        ::inet_ntop(AF_INET, address.v4_bytes(), text, sizeof text);
    else
        ::inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
    return text;
}

void die(const char *what, int error)
{
    std::fprintf(stderr, "%s: %s\n", what, strerrorname_np(error));
    std::exit(3);
}

} // namespace fabtest
