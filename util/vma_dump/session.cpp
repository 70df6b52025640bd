// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/session.hpp"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "compat/src/stats/capture_layout.hpp"

namespace vma_dump {

namespace {

constexpr int kAtOnce = 4096; // records

bool exists(pid_t pid)
{
    return ::kill(pid, 0) == 0 || errno != ESRCH;
}

bool is_of_our_pid_space(const vma_stats::Snapshot &s)
{
    struct stat space = {};
    return s.header.pid_space == 0 || ::stat("/proc/self/ns/pid", &space) != 0 || s.header.pid_space == space.st_ino;
}

// The frame has more than the payload, so a little more than is shown is asked for.
std::uint32_t payload_of(std::uint32_t snap)
{
    return std::min(snap, vma::stats::kMostPayload);
}

} // namespace

// Its file, that is.
bool Session::is_known(pid_t pid, const std::string &path) const
{
    struct stat file = {};
    if (::lstat(path.c_str(), &file) != 0)
        return false;
    const auto is_it = [&](const std::unique_ptr<Listener> &one) {
        return one->pid() == pid && one->inode() == file.st_ino;
    };
    return std::any_of(listeners_.begin(), listeners_.end(), is_it) || std::any_of(over_.begin(), over_.end(), is_it);
}

// Without a word about what can't be read: it may be another user's, or about to be written.
void Session::find(pid_t pid, const std::string &path)
{
    vma_stats::Snapshot s;
    std::string error;
    if (is_known(pid, path) || !vma_stats::read_snapshot(path, s, error) || static_cast<pid_t>(s.header.pid) != pid ||
        !is_of_our_pid_space(s) || !vma_stats::lives(s))
        return;
    auto fresh = std::make_unique<Listener>(vma_stats::Found{pid, path}, std::move(s));
    fresh->ask(options_.ring, payload_of(options_.snap));
    listeners_.push_back(std::move(fresh));
}

// A process that was named and can't be listened to now. True: nor later.
bool Session::explain(pid_t pid) const
{
    const std::string path = vma_stats::path_of(options_.folder, pid);
    vma_stats::Snapshot s;
    std::string error;
    if (!exists(pid)) {
        fprintf(stderr, "vma_dump: there is no process %d\n", pid);
        return true;
    }
    errno = 0;
    if (vma_stats::read_when_written(path, s, error)) { // a program that has just begun is no error
        if (!is_of_our_pid_space(s))
            fprintf(stderr, "vma_dump: process %d: %s is of another pid namespace: run vma_dump there\n", pid,
                    path.c_str());
        return !is_of_our_pid_space(s);
    }
    const bool waits = errno == ENOENT;
    fprintf(stderr, "vma_dump: process %d: %s: %s (expected the file of a program that runs with libvma.so%s)\n", pid,
            path.c_str(), error.c_str(), waits ? " and has a socket: it is waited for" : ", and is your own");
    return !waits;
}

void Session::look_around()
{
    if (options_.pids.empty())
        for (const vma_stats::Found &one : vma_stats::list_files(options_.folder))
            find(one.pid, one.path);
    for (const pid_t pid : options_.pids)
        find(pid, vma_stats::path_of(options_.folder, pid));
    for (const std::unique_ptr<Listener> &one : listeners_) {
        one->look();
        has_heard_ |= one->stage() == Stage::kListening;
    }
    drop_over();
    if (std::exchange(has_looked_, true))
        return;
    for (const pid_t pid : options_.pids)
        if (std::none_of(listeners_.begin(), listeners_.end(),
                         [pid](const std::unique_ptr<Listener> &one) { return one->pid() == pid; }) &&
            explain(pid))
            given_up_.push_back(pid);
}

// Those that are over and were heard out.
void Session::drop_over()
{
    std::erase_if(over_, [](const std::unique_ptr<Listener> &one) { return !exists(one->pid()); });
    for (std::unique_ptr<Listener> &one : listeners_) {
        recorder_.note_dropped(*one);
        if (one->stage() != Stage::kOver || (one->ring().is_open() && one->ring().front() != nullptr))
            continue;
        recorder_.forget(*one);
        one->ring().close();
        over_.push_back(std::move(one));
    }
    std::erase(listeners_, nullptr);
}

Listener *Session::oldest_seen()
{
    Listener *first = nullptr;
    std::uint64_t time = 0;
    for (const std::unique_ptr<Listener> &one : listeners_) {
        const vma::stats::CaptureRecord *const head = one->ring().is_open() ? one->ring().front() : nullptr;
        if (head == nullptr || (first != nullptr && head->time_ns >= time))
            continue;
        first = one.get();
        time = head->time_ns;
    }
    return first;
}

// What a message was the answer to was written before it, but perhaps to a ring that was looked at just before that:
// the second look finds it.
Listener *Session::oldest()
{
    Listener *const first = oldest_seen();
    return first != nullptr && listeners_.size() > 1 ? oldest_seen() : first;
}

// False: nothing can be written any more.
bool Session::take_one(Listener &from)
{
    if (!from.ring().read(message_)) {
        from.end("its ring is damaged");
        from.ring().close();
        return true;
    }
    const bool written = recorder_.take(from, message_);
    from.ring().pop();
    return written;
}

int Session::fetch()
{
    int count = 0;
    while (count < kAtOnce && !recorder_.is_done()) {
        Listener *const from = oldest();
        if (from == nullptr)
            break;
        if (!take_one(*from))
            return -1;
        ++count;
    }
    for (const std::unique_ptr<Listener> &one : listeners_) {
        one->ring().tell();
        recorder_.note_dropped(*one);
    }
    return count;
}

bool Session::is_waiting() const
{
    return std::any_of(listeners_.begin(), listeners_.end(),
                       [](const std::unique_ptr<Listener> &one) { return one->stage() == Stage::kAsked; });
}

bool Session::is_over() const
{
    const auto is_past = [this](pid_t pid) {
        return !exists(pid) || std::find(given_up_.begin(), given_up_.end(), pid) != given_up_.end() ||
               std::any_of(over_.begin(), over_.end(),
                           [pid](const std::unique_ptr<Listener> &one) { return one->pid() == pid; });
    };
    return has_looked_ && !options_.pids.empty() && listeners_.empty() &&
           std::all_of(options_.pids.begin(), options_.pids.end(), is_past);
}

void Session::finish()
{
    for (const std::unique_ptr<Listener> &one : listeners_) {
        recorder_.note_dropped(*one);
        recorder_.forget(*one);
        one->ring().close();
    }
}

} // namespace vma_dump
