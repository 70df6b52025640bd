// SPDX-License-Identifier: BSD-2-Clause
// One thread of another process, stepped instruction by instruction (ptrace), and what of its instructions others can
// see: system calls, and what reaches into memory that it shares. Between two of these a process may be stopped or
// killed wherever one likes: it makes no difference to anybody else.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabtests/steps/programs/breakpoint.hpp"
#include "fabtests/steps/programs/operand.hpp"

namespace step {

// Waits come back from now on when somebody else has stopped or ended, and each 5 ms.
void start_ticking();

class Tracee
{
public:
    Tracee(pid_t process, pid_t thread) : process_(process), thread_(thread), breakpoint_(process) {}
    Tracee(const Tracee &) = delete;
    Tracee &operator=(const Tracee &) = delete;

    bool attach(bool to_follow); // it stands then. False: it has gone. `to_follow`: to what it starts
    // From the attached one, which goes on by itself, to the `which`th (from 1) that it starts, which stands then.
    bool follow_new_thread(unsigned which);
    void let_others_go() { breakpoint_.clear(); } // it stands; the other threads of its process do as they like
    void detach(int signal = 0);                  // it goes on by itself, and has got the signal

    enum class Step { kStands, kWaits, kGone, kExec }; // kWaits: it is still in a system call
    Step step();                                       // one instruction more
    Step go_on();                                      // after kWaits
    bool is_point(bool every);                         // what it is about to do is one
    std::string point(); // its name, for a later run: FILE+OFFSET@ADDRESS:which time it has come there
    std::uint64_t find(const std::string &file, std::uint64_t offset) const; // 0: it is not mapped

    // At full speed to `place`: as step(). Stands there, or for something else: see is_there().
    bool set_breakpoint(std::uint64_t place) { return breakpoint_.set(place, thread_); }
    Step run();
    bool is_there() const { return there_; }
    Step run_to(std::uint64_t place); // without stopping at anything in between
    std::uint64_t at();
    std::string where();                // for people
    void look_at_maps();                // what it shares
    void forget();                      // its process is being killed: it stays as it is
    std::map<pid_t, int> ended() const; // threads and processes that are no more, with what waitpid() said of them

private:
    struct Range {
        std::uint64_t from, to;
        std::string name;
        std::uint64_t offset;
    };

    Step wait_stop();
    const Operand &operand_at(std::uint64_t place);
    bool is_shared(std::uint64_t address) const;
    bool counts(std::uint64_t place);
    Step stopped(int status);

    pid_t process_, thread_;
    int signal_ = 0; // to be delivered with the next step
    bool attached_ = false, stands_ = false;
    std::uint64_t place_ = 0;
    bool maps_change_ = false;
    std::vector<Range> shared_, code_;
    std::unordered_map<std::uint64_t, Operand> operands_;
    std::unordered_map<std::uint64_t, std::vector<std::uint8_t>> pages_;
    std::unordered_map<std::uint64_t, std::uint32_t> times_;  // points of the same kind
    std::unordered_map<std::uint64_t, std::uint32_t> visits_; // of a place
    Breakpoint breakpoint_;
    bool there_ = false;
    std::map<pid_t, int> ended_;
};

} // namespace step
