// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/udp/backlog.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "compat/src/libc/real.hpp"
#include "compat/src/libc/when_left.hpp"

namespace vma::sock::udp {

namespace {

constexpr int kLengthWord = 11;
constexpr std::size_t kRoom = 1024; // of a read, on the stack; the kernel ends each at a line, of 135 bytes

std::string_view word_of(std::string_view line, int index)
{
    constexpr std::string_view kSpace = " \t";
    for (;; --index) {
        const std::size_t begin = std::min(line.find_first_not_of(kSpace), line.size());
        line.remove_prefix(begin);
        const std::size_t end = std::min(line.find_first_of(kSpace), line.size());
        if (index == 0)
            return line.substr(0, end);
        line.remove_prefix(end);
    }
}

} // namespace

bool tells_backlog(std::string_view text)
{
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view word = word_of(text.substr(0, end), kLengthWord);
        if (word.find_first_not_of('0') != std::string_view::npos)
            return true;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return false;
}

bool kernel_has_backlog()
{
    const libc::NotCancelled whole; // a lock of the socket is held
    const int fd = libc::real.open("/proc/net/softnet_stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    char text[kRoom];
    bool found = false;
    for (ssize_t n; !found && (n = libc::real.read(fd, text, sizeof text)) > 0;)
        found = tells_backlog({text, static_cast<std::size_t>(n)});
    libc::real.close(fd);
    return found;
}

} // namespace vma::sock::udp
