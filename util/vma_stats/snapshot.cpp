// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_stats/snapshot.hpp"
#include "compat/src/stats/text.hpp"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace vma_stats {

namespace {

using namespace vma::stats;

class File
{
public:
    File(const std::string &path, int flags) : fd_(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)) {}
    ~File()
    {
        if (fd_ >= 0)
            ::close(fd_);
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    int fd() const { return fd_; }

    bool read(void *out, std::size_t size, std::size_t at) const
    {
        return ::pread(fd_, out, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
    }
    bool write(const void *bytes, std::size_t size, std::size_t at) const
    {
        return ::pwrite(fd_, bytes, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
    }

private:
    int fd_;
};

template <std::size_t kSize> void end_text(char (&text)[kSize])
{
    text[kSize - 1] = '\0';
    for (char *c = text; *c != '\0'; ++c)
        if (static_cast<unsigned char>(*c) < ' ' || *c == '\177')
            *c = '?'; // nothing that a terminal would follow
}

template <typename Enum> void bound(Enum &value, Enum last)
{
    if (value > last)
        value = {};
}

void bound(Header &h)
{
    h.slots_used = std::min(h.slots_used, h.slot_count);
    end_text(h.program);
    end_text(h.library);
    for (Queue &queue : h.queues)
        end_text(queue.name);
    for (Ring &ring : h.rings) {
        end_text(ring.name);
        bound(ring.kind, RingKind::kRdma);
    }
}

void bound(Facts &f)
{
    end_text(f.device);
    end_text(f.reason);
    f.group_count = std::min(f.group_count, kMostGroups);
    bound(f.way, Way::kPort);
}

// The ring has what closed sockets counted.
void add_to_ring(const Slot &slot, Header &h)
{
    const std::uint32_t ring = slot.facts.ring;
    if (slot.facts.fd < 0 || ring == 0 || ring > kMostRings)
        return;
    Ring &r = h.rings[ring - 1];
    r.rx_packets += slot.now.rx.packets;
    r.rx_bytes += slot.now.rx.bytes;
    r.tx_packets += slot.now.tx.packets;
    r.tx_bytes += slot.now.tx.bytes;
    r.retransmits += slot.now.tx.retransmits;
}

bool is_known(const Header &h, std::string &error)
{
    if (h.magic != kMagic)
        error = "it is not a file of this vma_stats";
    else if (h.version != kVersion)
        error = "its version is " + std::to_string(h.version) + ", expected " + std::to_string(kVersion);
    else if (h.header_size != sizeof(Header) || h.slot_size != sizeof(Slot) || h.slot_count > kMostSlots)
        error = "its sizes are not those of this version";
    else
        return true;
    return false;
}

double now_seconds()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::size_t place_of(std::size_t slot)
{
    return sizeof(Header) + slot * sizeof(Slot);
}

bool may_be_unfinished(const std::string &path)
{
    constexpr time_t kLongestS = 5; // a busy machine
    const File file(path, O_RDONLY);
    struct stat status = {};
    timespec now = {};
    if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    std::uint64_t magic = 0;
    const bool has_magic = file.read(&magic, sizeof magic, offsetof(Header, magic)) && magic != 0;
    ::clock_gettime(CLOCK_REALTIME, &now);
    return !has_magic && now.tv_sec >= status.st_mtim.tv_sec && now.tv_sec - status.st_mtim.tv_sec <= kLongestS;
}

} // namespace

namespace {

bool read_all(const File &file, Snapshot &out, std::string &error)
{
    if (!file.read(&out.header, sizeof out.header, 0)) {
        error = "it is too short";
        return false;
    }
    if (!is_known(out.header, error))
        return false;
    bound(out.header);
    out.slots.resize(out.header.slots_used);
    if (!out.slots.empty() && !file.read(out.slots.data(), out.slots.size() * sizeof(Slot), place_of(0))) {
        error = "it is too short";
        return false;
    }
    return true;
}

// Whether no counts moved while all was read.
bool is_same_turn(const File &file, const Snapshot &out)
{
    std::uint32_t turn = 0;
    return out.header.closed.turn % 2 == 0 &&
           file.read(&turn, sizeof turn, offsetof(Header, closed) + offsetof(Closed, turn)) &&
           turn == out.header.closed.turn;
}

} // namespace

bool read_snapshot(const std::string &path, Snapshot &out, std::string &error)
{
    constexpr int kMostTries = 50; // a program may close sockets all the time
    const File file(path, O_RDONLY);
    struct stat status = {};
    if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0) {
        error = strerror(errno);
        return false;
    }
    if (!S_ISREG(status.st_mode)) {
        error = "it is not a plain file";
        return false;
    }
    out.owner = status.st_uid;
    out.whole = false;
    for (int tries = 0; !out.whole && tries < kMostTries; ++tries) {
        out.seconds = now_seconds();
        if (!read_all(file, out, error))
            return false;
        out.whole = is_same_turn(file, out);
    }
    for (Slot &slot : out.slots) {
        bound(slot.facts);
        add_to_ring(slot, out.header);
    }
    return true;
}

bool read_when_written(const std::string &path, Snapshot &out, std::string &error)
{
    while (!read_snapshot(path, out, error)) {
        if (!may_be_unfinished(path))
            return read_snapshot(path, out, error); // it may have been finished since
        ::usleep(5000);                             // nobody tells when a page that is shared is written
    }
    return true;
}

void add_reasons(Snapshot &s)
{
    for (Slot &slot : s.slots)
        explain_kernel(slot, s.header.lift_after);
}

std::string path_of(const std::string &folder, pid_t pid)
{
    return folder + "/vmastat." + std::to_string(pid);
}

std::string program_of(const Snapshot &s)
{
    return s.header.program;
}

bool zero_counters(const std::string &path, const Snapshot &s)
{
    const File file(path, O_RDWR);
    if (file.fd() < 0)
        return false;
    bool good = true;
    const std::uint64_t none[2] = {};
    for (std::size_t i = 0; i < s.slots.size(); ++i) {
        const std::size_t at = place_of(i);
        good = file.write(&s.slots[i].now, sizeof(Counters), at + offsetof(Slot, zero)) &&
               file.write(none, sizeof none,
                          at + offsetof(Slot, now) + offsetof(Counters, in) + offsetof(Arrived, most_packets)) &&
               good;
    }
    const auto zero = [&](const Mux &mux, std::size_t at) {
        good = file.write(&mux.now, sizeof mux.now, at + offsetof(Mux, zero)) && good;
    };
    for (std::size_t i = 0; i < kThreadGroups; ++i) {
        zero(s.header.select[i], offsetof(Header, select) + i * sizeof(Mux));
        zero(s.header.poll[i], offsetof(Header, poll) + i * sizeof(Mux));
    }
    for (std::size_t i = 0; i < kEpollSets; ++i)
        zero(s.header.epoll[i], offsetof(Header, epoll) + i * sizeof(Mux));
    return good;
}

bool ask(const std::string &path, const Wishes &wishes)
{
    const File file(path, O_RDWR);
    Requests requests = {};
    constexpr std::size_t kAt = offsetof(Header, requests);
    if (file.fd() < 0 || !file.read(&requests, sizeof requests, kAt))
        return false;
    const auto or_keep = [](int value) { return value != INT_MIN ? value : Requests::kKeep; };
    const std::uint32_t count = requests.count + 1;
    requests.log_level = or_keep(wishes.log_level);
    requests.log_details = or_keep(wishes.log_details);
    requests.dump_fd = or_keep(wishes.dump_fd);
    requests.dump_level = wishes.dump_level;
    return file.write(&requests, sizeof requests, kAt) && // with the old number: nobody looks at half of it
           file.write(&count, sizeof count, kAt);
}

} // namespace vma_stats
