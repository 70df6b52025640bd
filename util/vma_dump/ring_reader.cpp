// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/vma_dump/listener.hpp"

namespace vma_dump {

namespace {

using namespace vma::stats;

// Another description of the same file, so that a lock on it is ours. Only of a plain file: to open others may do
// something.
int open_again(pid_t pid, int fd)
{
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    const vma::tool::Fd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status = {};
    if (!place || ::fstat(place.get(), &status) != 0)
        return -1;
    if (!S_ISREG(status.st_mode)) {
        errno = EINVAL;
        return -1;
    }
    return ::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDWR | O_CLOEXEC);
}

// Else a page that is missing would end us.
bool stays_as_long(int fd)
{
    constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_SEAL;
    return (::fcntl(fd, F_GET_SEALS) & kNeeded) == kNeeded && ::fcntl(fd, F_GET_SEALS) >= 0;
}

bool take_lock(int fd)
{
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool is_known(const CaptureHeader &h, pid_t pid, std::size_t file_size)
{
    const std::uint32_t size = h.ring_size;
    return h.magic == kCaptureMagic && h.pid == static_cast<std::uint32_t>(pid) && size >= kLeastCapture &&
           size <= kMostCapture && (size & (size - 1)) == 0 && file_size == capture_file_size(size);
}

} // namespace

RingReader::~RingReader()
{
    close();
}

void RingReader::close()
{
    if (file_ && header_ != nullptr)
        ::munmap(header_, capture_file_size(size_) + size_);
    header_ = nullptr;
    file_ = {};
}

// Twice, one behind the other: no record has an end in its middle.
bool RingReader::map(int file, std::uint32_t size, std::string &error)
{
    constexpr int kWrite = PROT_READ | PROT_WRITE;
    const std::size_t once = capture_file_size(size);
    void *const place = ::mmap(nullptr, once + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED || ::mmap(place, once, kWrite, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED ||
        ::mmap(static_cast<std::uint8_t *>(place) + once, size, kWrite, MAP_SHARED | MAP_FIXED, file,
               static_cast<off_t>(kCaptureStart)) == MAP_FAILED) {
        error = std::string("its ring can't be mapped: ") + strerror(errno);
        if (place != MAP_FAILED)
            ::munmap(place, once + size);
        return false;
    }
    read_from(*static_cast<CaptureHeader *>(place), size);
    return true;
}

void RingReader::read_from(CaptureHeader &header, std::uint32_t size)
{
    header_ = &header;
    size_ = size;
}

Opened RingReader::open(pid_t pid, int fd, std::string &error)
{
    file_ = vma::tool::Fd(open_again(pid, fd));
    struct stat status = {};
    CaptureHeader header = {};
    if (!file_ || ::fstat(file_.get(), &status) != 0) {
        const bool is_another = errno == ENOENT || errno == EINVAL; // the number is another file's, or nobody's, by now
        error = std::string("its ring can't be opened: ") + strerror(errno);
        return is_another ? Opened::kMissing : Opened::kRefused;
    }
    if (!stays_as_long(file_.get()) || ::pread(file_.get(), &header, sizeof header, 0) != sizeof header ||
        !is_known(header, pid, static_cast<std::size_t>(status.st_size))) {
        error = "what it names is not a ring of this version";
        return Opened::kMissing;
    }
    if (!take_lock(file_.get())) {
        error = "another vma_dump listens to it";
        return Opened::kRefused;
    }
    if (!map(file_.get(), header.ring_size, error))
        return Opened::kRefused;
    __atomic_store_n(&header_->heard, 1, __ATOMIC_RELAXED);
    return Opened::kYes;
}

const CaptureRecord *RingReader::at(std::uint64_t place) const
{
    const auto *const bytes = reinterpret_cast<const std::uint8_t *>(header_) + kCaptureStart;
    return reinterpret_cast<const CaptureRecord *>(bytes + (place & (size_ - 1)));
}

const CaptureRecord *RingReader::front()
{
    if (has_head_)
        return &head_;
    const CaptureRecord *const record = at(taken_);
    const std::uint32_t size = __atomic_load_n(&record->size, __ATOMIC_ACQUIRE);
    if (size == 0)
        return nullptr;
    memcpy(&head_, record, sizeof head_);
    head_.size = size;
    has_head_ = true;
    return &head_;
}

bool RingReader::read(Message &message)
{
    return message.take(head_, at(taken_));
}

void RingReader::pop()
{
    auto *const bytes = reinterpret_cast<std::uint8_t *>(const_cast<CaptureRecord *>(at(taken_)));
    for (std::uint32_t cell = 0; cell < head_.size; cell += kCaptureCell)
        __atomic_store_n(reinterpret_cast<std::uint32_t *>(bytes + cell), 0, __ATOMIC_RELAXED);
    taken_ += head_.size;
    has_head_ = false;
    if (taken_ - told_ >= size_ / 16)
        tell();
}

// What is cleared is seen before the room is.
void RingReader::tell()
{
    if (header_ == nullptr || told_ == taken_)
        return;
    told_ = taken_;
    __atomic_store_n(&header_->taken, taken_, __ATOMIC_RELEASE);
}

std::uint64_t RingReader::dropped() const
{
    return header_ != nullptr ? __atomic_load_n(&header_->dropped, __ATOMIC_RELAXED) : 0;
}

bool RingReader::has_ended() const
{
    return header_ != nullptr && __atomic_load_n(&header_->ended, __ATOMIC_ACQUIRE) != 0;
}

} // namespace vma_dump
