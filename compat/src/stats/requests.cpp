// SPDX-License-Identifier: BSD-2-Clause
// What vma_stats asks of a running process: another log level, other details, a socket's counters in the log. And the
// text that a socket leaves in VMA_STATS_FILE when it is closed.
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "compat/src/config/log.hpp"
#include "compat/src/config/once.hpp"
#include "compat/src/config/params.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"
#include "compat/src/stats/region_state.hpp"
#include "compat/src/stats/text.hpp"

namespace vma::stats {

namespace {

// What is written of a socket: too long for the stack of a program's close(), and told to a log callback, which may do
// what it likes, so that no lock can keep it for others.
class Report
{
public:
    struct Parts {
        char path[PATH_MAX];
        Text text;
    };

    Report() : memory_(::mmap(nullptr, sizeof(Parts), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    {
        if (*this)
            new (memory_) Parts;
    }
    ~Report()
    {
        if (*this)
            ::munmap(memory_, sizeof(Parts));
    }
    Report(const Report &) = delete;
    Report &operator=(const Report &) = delete;

    explicit operator bool() const { return memory_ != MAP_FAILED; }
    Parts &parts() const { return *static_cast<Parts *>(memory_); }

private:
    void *const memory_;
};

constexpr const char *kRule = "======================================================";

config::Level clamp_level(int level)
{
    return static_cast<config::Level>(std::clamp(level, 0, static_cast<int>(config::Level::kFuncAll)));
}

// One line of the log for each of the text's.
void log_text(config::Level level, const char *text)
{
    while (*text != '\0') {
        const std::size_t length = strcspn(text, "\n");
        config::log_line(level, "%.*s", static_cast<int>(length), text);
        text += length + (text[length] == '\n' ? 1 : 0);
    }
}

bool dump(Slot &slot, config::Level level)
{
    const Report report;
    if (!report)
        return false;
    Text &text = report.parts().text;
    describe(view_of(slot), text);
    if (slot.facts.protocol == IPPROTO_TCP)
        kDescriber.stream(slot.facts.fd, text);
    log_text(level, kRule);
    log_text(level, text.c_str());
    return true;
}

// Records in private memory are left out.
template <typename Visit> void each_open(Visit visit)
{
    Header &h = header();
    auto *const slots = reinterpret_cast<Slot *>(&h + 1);
    const std::uint32_t count = std::min(h.slots_used, config::params().stats_fd_num);
    for (std::uint32_t i = 0; i < count; ++i)
        if (get(slots[i].facts.fd) >= 0)
            visit(slots[i]);
}

bool may_append(int fd, std::size_t size)
{
    struct stat file = {};
    if (::fstat(fd, &file) == 0 && !exceeds_file_limit(static_cast<std::size_t>(file.st_size) + size))
        return true;
    errno = EFBIG;
    return false;
}

} // namespace

bool dump_to_log(int fd, int level)
{
    bool found = false;
    each_open([&](Slot &slot) {
        if (fd == 0 || slot.facts.fd == fd)
            found |= dump(slot, clamp_level(level));
    });
    return found;
}

[[VMA_AT_STARTUP]] void dump_open_to_file()
{
    if (config::params().stats_file != nullptr)
        each_open([](const Slot &slot) { dump_to_file(slot); });
}

void answer_requests()
{
    const std::uint32_t count =
        __atomic_load_n(g_region.pending.asked.load(std::memory_order_relaxed), __ATOMIC_ACQUIRE);
    if (g_region.pending.answered.exchange(count, std::memory_order_acq_rel) == count)
        return; // another thread does it
    const int saved = errno;
    const Requests asked = header().requests;
    if (asked.log_level != Requests::kKeep)
        config::set_log_level(asked.log_level);
    if (asked.log_details != Requests::kKeep)
        config::set_log_details(std::clamp(asked.log_details, 0, 3));
    if (asked.dump_fd != Requests::kKeep)
        dump_to_log(asked.dump_fd, asked.dump_level);
    answer_capture(header().capture);
    errno = saved;
}

void dump_to_file(const Slot &slot)
{
    const char *const name = config::params().stats_file;
    if (name == nullptr || !has_traffic(slot.now))
        return;
    const Report report;
    if (!report)
        return;
    auto &[path, text] = report.parts();
    if (!config::expand_process_id(name, path, sizeof path))
        return;
    text.add("%s\n", kRule);
    describe(view_of(slot), text);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    const long fd = libc::real.syscall(SYS_openat, AT_FDCWD, path, kFlags, 0600);
    const bool written = fd >= 0 && may_append(static_cast<int>(fd), text.size()) &&
                         libc::real.syscall(SYS_write, fd, text.c_str(), text.size()) >= 0;
    if (!written && config::is_first(config::Once::kStatsNotWritten))
        VMA_LOG(kWarn, "VMA_STATS_FILE: %s: %s: what sockets counted is not written", path, strerror(errno));
    if (fd >= 0)
        libc::real.syscall(SYS_close, fd);
}

} // namespace vma::stats
