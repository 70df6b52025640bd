// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/output.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace vma_dump {

namespace {

constexpr std::size_t kMuch = std::size_t{256} * 1024;

// As tcpdump names them: FILE, FILE1, FILE2 ...; FILE00 ... FILE11 where they are written over, so that they sort.
std::string name_of(const Options &o, std::uint64_t number)
{
    if (o.file_size == 0 || (o.files == 0 && number == 0))
        return o.file;
    if (o.files == 0)
        return o.file + std::to_string(number);
    const std::string digits = std::to_string(number % o.files);
    const std::size_t width = std::to_string(o.files - 1).size();
    return o.file + std::string(width - digits.size(), '0') + digits;
}

} // namespace

Output::~Output()
{
    if (fd_ > STDERR_FILENO)
        ::close(fd_);
}

bool Output::fail(const char *what)
{
    fprintf(stderr, "vma_dump: %s: %s: %s\n", path_.c_str(), what, strerror(errno));
    return false;
}

// What others have sent is for its reader alone.
bool Output::open_file()
{
    path_ = name_of(options_, files_);
    written_ = 0;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd_ >= 0 || fail("it can't be written");
}

bool Output::open()
{
    if (!options_.file.empty() && options_.file != "-")
        return open_file();
    fd_ = STDOUT_FILENO;
    path_ = "standard output";
    if (options_.file == "-" && ::isatty(fd_) == 1) {
        fputs("vma_dump: -w - is for a program that reads it, and standard output is a terminal\n", stderr);
        return false;
    }
    return true;
}

bool Output::write_all()
{
    std::size_t done = 0;
    while (done < buffer_.size()) {
        const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            ended_ = errno == EPIPE;
            return ended_ ? false : fail("it can't be written to");
        }
        done += static_cast<std::size_t>(n);
    }
    written_ += done;
    buffer_.clear();
    return true;
}

bool Output::write_some()
{
    return (buffer_.size() < kMuch && !options_.at_once) || write_all();
}

bool Output::is_full() const
{
    return options_.file_size != 0 && written_ + buffer_.size() >= options_.file_size;
}

bool Output::begin_next()
{
    if (!write_all())
        return false;
    ::close(fd_);
    ++files_;
    return open_file();
}

} // namespace vma_dump
