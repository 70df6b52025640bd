// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/listener.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace vma_dump {

namespace {

using namespace vma::stats;

constexpr unsigned kPatience = 100; // looks
constexpr unsigned kMostAgain = 10; // a process may say anything
constexpr std::size_t kWords = offsetof(Header, capture);

class CountersFile
{
public:
    explicit CountersFile(const std::string &path)
        : fd_(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK))
    {
    }
    bool read(CaptureWords &words) const
    {
        return ::pread(fd_.get(), &words, sizeof words, kWords) == static_cast<ssize_t>(sizeof words);
    }
    bool write(const void *bytes, std::size_t size, std::size_t at) const
    {
        return ::pwrite(fd_.get(), bytes, size, static_cast<off_t>(kWords + at)) == static_cast<ssize_t>(size);
    }

private:
    vma::tool::Fd fd_;
};

std::string explain(int error)
{
    switch (error) {
    case EBUSY:
        return "another vma_dump listens to it";
    case EPERM:
        return "it is under a seccomp filter, which may not allow a capture";
    case EINVAL:
        return "its library does not know such a capture";
    default:
        return std::string("it can't make a capture: ") + strerror(error);
    }
}

} // namespace

Listener::Listener(vma_stats::Found found, vma_stats::Snapshot snapshot)
    : found_(std::move(found)), known_(std::move(snapshot)), program_(vma_stats::program_of(known_)),
      process_(static_cast<int>(::syscall(SYS_pidfd_open, found_.pid, 0)))
{
    struct stat file = {};
    known_.slots = {}; // of sockets: not needed
    if (::lstat(found_.path.c_str(), &file) == 0)
        inode_ = file.st_ino;
}

// The words before their number, which the process looks at; then the number that makes it look.
bool Listener::ask(std::uint32_t ring, std::uint32_t most)
{
    ring_size_ = ring;
    most_ = most;
    const CountersFile file(found_.path);
    CaptureWords words = {};
    if (file.read(words)) {
        number_ = words.number + 1 != 0 ? words.number + 1 : 1;
        const std::uint32_t wish[2] = {ring, most};
        if (file.write(wish, sizeof wish, offsetof(CaptureWords, ring_size)) &&
            file.write(&number_, sizeof number_, offsetof(CaptureWords, number)) &&
            vma_stats::ask(found_.path, {INT_MIN, INT_MIN, INT_MIN, 0}))
            return true;
    }
    end(std::string("it can't be asked: ") + strerror(errno));
    return false;
}

void Listener::end(const std::string &why)
{
    stage_ = Stage::kOver;
    fprintf(stderr, "vma_dump: %s (process %d): %s\n", program_.c_str(), found_.pid, why.c_str());
}

bool Listener::is_gone() const
{
    pollfd ended = {process_.get(), POLLIN, 0};
    return !process_ || ::poll(&ended, 1, 0) != 0;
}

// Not if another program runs in the process by now.
bool Listener::is_still_there() const
{
    vma_stats::Snapshot now;
    std::string error;
    return vma_stats::read_snapshot(found_.path, now, error) && is_same(now) && vma_stats::lives(now);
}

// We had no processor until the process had given its ring up, or another one's wish was written over ours.
void Listener::ask_again(const std::string &error)
{
    if (++again_ > kMostAgain || !is_still_there())
        end(error);
    else
        ask(ring_size_, most_);
}

void Listener::open_ring(int fd)
{
    std::string error;
    switch (ring_.open(found_.pid, fd, error)) {
    case Opened::kYes:
        stage_ = Stage::kListening;
        fprintf(stderr, "vma_dump: listening to %s (process %d)\n", program_.c_str(), found_.pid);
        break;
    case Opened::kMissing:
        ask_again(error);
        break;
    case Opened::kRefused:
        end(error);
        break;
    }
}

void Listener::hear_answer()
{
    CaptureWords words = {};
    if (!CountersFile(found_.path).read(words)) {
        end("its file is gone");
    } else if (words.answered == words.number && words.number != number_) {
        ask_again("another vma_dump asks it");
    } else if (words.answered != number_) {
        if (++looks_ == kPatience)
            fprintf(stderr, "vma_dump: %s (process %d) has not answered: it does when it next uses a socket\n",
                    program_.c_str(), found_.pid);
    } else if (words.error == EAGAIN) { // what is left of an earlier capture is about to go
        ask(ring_size_, most_);
    } else if (words.error != 0) {
        end(explain(words.error));
    } else {
        open_ring(words.fd);
    }
}

// What its ring has when it is over is still to be read.
void Listener::look()
{
    if (stage_ == Stage::kOver)
        return;
    if (is_gone())
        end("it has ended");
    else if (stage_ == Stage::kAsked)
        hear_answer();
    else if (ring_.has_ended() || !is_still_there())
        end("it has ended the capture");
}

std::uint64_t Listener::new_drops()
{
    const std::uint64_t all = ring_.dropped();
    return all - std::exchange(told_drops_, all);
}

bool Listener::is_same(const vma_stats::Snapshot &other) const
{
    return known_.header.pid == other.header.pid && known_.header.made_boot_ns == other.header.made_boot_ns;
}

std::string Listener::device_of(const CaptureRecord &head)
{
    if (head.ring == 0 || head.ring > kMostRings)
        return {};
    const Ring &ring = known_.header.rings[head.ring - 1];
    std::string error;
    if (ring.name[0] == '\0') {
        vma_stats::Snapshot now;
        if (vma_stats::read_snapshot(found_.path, now, error) && is_same(now))
            known_ = std::move(now);
    }
    return ring.name;
}

} // namespace vma_dump
