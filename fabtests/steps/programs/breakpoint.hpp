// SPDX-License-Identifier: BSD-2-Clause
// A breakpoint for one thread of a process that has others: the instruction is replaced (int3) in the memory of all of
// them, so all are traced, and whoever else comes there is led past it. The processor's own breakpoints would be one
// thread's alone, but not every virtual machine has them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

namespace step {

class Breakpoint
{
public:
    explicit Breakpoint(pid_t process) : process_(process) {}
    ~Breakpoint() { clear(); }
    Breakpoint(const Breakpoint &) = delete;
    Breakpoint &operator=(const Breakpoint &) = delete;

    // For `thread`, which stands and is traced already; the process's other threads are traced from here to clear().
    // False: the process can't be traced.
    bool set(std::uint64_t place, pid_t thread);
    void clear();  // they go on by themselves
    void forget(); // the process is being killed, or has become another program: nothing of it is touched any more

    bool is_awaited() const { return place_ != 0 && !in_; } // nothing is mapped there yet
    void look_again() { put(); }

    // `thread`, which has just stopped, did so by the breakpoint: it stands before the instruction now.
    bool is_hit(pid_t thread);
    // `thread` stopped for another reason, and has yet to report a step or that it came there: `status` is of that
    // report then. Whoever is let go without it dies of it.
    void report(pid_t thread, int &status);
    // It executes the instruction, having stopped there, and stands behind it (a system call: in it). Returns what
    // waitpid() said of it last, which is no stop if it has ended; `signal` is what is to be delivered then.
    int pass(pid_t thread, int &signal);
    // What `thread` has started, if the status is that of such an event. It goes on without the breakpoint, or is one
    // more thread.
    void note(pid_t thread, int status);
    // Leads past it whoever else has come there.
    void serve();

    // Other threads and processes, with what waitpid() said of them.
    const std::map<pid_t, int> &ended() const { return ended_; }

private:
    void put();
    void take_out();
    void stopped(pid_t thread, int status);
    void take_in_threads();
    void let_go(pid_t thread);

    pid_t process_, thread_ = 0;
    std::uint64_t place_ = 0; // 0: there is none
    std::uint8_t code_[2] = {};
    bool in_ = false, leaves_ = false;
    // True: a process that shares the memory until it has become another program (vfork()).
    std::map<pid_t, bool> others_;
    std::map<pid_t, int> ended_;
};

} // namespace step
