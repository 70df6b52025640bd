// SPDX-License-Identifier: BSD-2-Clause
// All that are listened to: finds them, fetches what they have written, the oldest first, and hands it to the recorder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "util/vma_dump/listener.hpp"
#include "util/vma_dump/recorder.hpp"

namespace vma_dump {

class Session
{
public:
    Session(const Options &options, Recorder &recorder) : options_(options), recorder_(recorder) {}

    // Some times a second: who has come, answered and gone.
    void look_around();
    // What is there by now, but no more than some thousands. How many; -1: nothing can be written any more.
    int fetch();
    bool is_waiting() const;                      // for a process to answer
    bool is_over() const;                         // all the processes that were named have ended
    bool has_heard() const { return has_heard_; } // any of them, ever
    void finish();

private:
    void find(pid_t pid, const std::string &path);
    bool explain(pid_t pid) const;
    bool is_known(pid_t pid, const std::string &path) const;
    Listener *oldest_seen(); // by one look at each ring
    Listener *oldest();
    bool take_one(Listener &from);
    void drop_over();

    const Options &options_;
    Recorder &recorder_;
    std::vector<std::unique_ptr<Listener>> listeners_;
    std::vector<std::unique_ptr<Listener>> over_; // not asked again
    Message message_;
    std::vector<pid_t> given_up_;
    bool has_looked_ = false;
    bool has_heard_ = false;
};

} // namespace vma_dump
