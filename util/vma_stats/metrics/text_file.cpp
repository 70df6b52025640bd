// SPDX-License-Identifier: BSD-2-Clause
// The name beside doesn't end in .prom, which node_exporter would read.
#include "util/vma_stats/metrics/text_file.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace vma_stats {

namespace {

std::string name_beside(const std::string &path)
{
    const std::size_t slash = path.rfind('/');
    const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
    return path.substr(0, begin) + "." + path.substr(begin) + "." + std::to_string(::getpid()) + ".tmp";
}

int create(const std::string &path)
{
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = ::open(path.c_str(), kFlags, 0644);
    if (fd < 0 && errno == EEXIST && ::unlink(path.c_str()) == 0) // of one that was killed, and had our id
        fd = ::open(path.c_str(), kFlags, 0644);
    return fd;
}

bool write_all(int fd, const std::string &text)
{
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    return true;
}

} // namespace

bool replace_file(const std::string &path, const std::string &text)
{
    const std::string beside = name_beside(path);
    const int fd = create(beside);
    if (fd < 0)
        return false;
    const bool written = write_all(fd, text);
    int error = errno;
    if (::close(fd) == 0 && written && ::rename(beside.c_str(), path.c_str()) == 0)
        return true;
    error = written ? errno : error;
    ::unlink(beside.c_str());
    errno = error;
    return false;
}

} // namespace vma_stats
