// SPDX-License-Identifier: BSD-2-Clause
// One thread of another process, stepped: see tracee.hpp.
#include "fabtests/steps/programs/tracee.hpp"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fabtests/steps/programs/traced.hpp"

namespace step {

namespace {

constexpr int kTicksMost = 400; // 2 s
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLongest = 15;      // bytes of an instruction
constexpr std::uint32_t kTimesInFull = 8; // an instruction that comes again and again (a copy) counts less often then

std::string file_of(const std::string &path)
{
    return path.substr(path.rfind('/') + 1);
}

bool changes_maps(std::uint64_t number)
{
    return number == SYS_mmap || number == SYS_munmap || number == SYS_mremap || number == SYS_shmat ||
           number == SYS_shmdt;
}

} // namespace

void start_ticking()
{
    struct sigaction action {
    };
    action.sa_handler = [](int) {}; // no SA_RESTART: waitpid() comes back
    ::sigaction(SIGALRM, &action, nullptr);
    ::sigaction(SIGCHLD, &action, nullptr);
    const itimerval tick{{0, 5000}, {0, 5000}};
    ::setitimer(ITIMER_REAL, &tick, nullptr);
}

bool Tracee::attach(bool to_follow)
{
    const std::uintptr_t options = to_follow ? PTRACE_O_TRACECLONE : PTRACE_O_TRACEEXEC;
    if (::ptrace(PTRACE_SEIZE, thread_, nullptr, as_pointer(options)) != 0)
        return false;
    attached_ = true;
    ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
    Step step;
    while ((step = wait_stop()) == Step::kWaits)
        ;
    look_at_maps();
    return step == Step::kStands;
}

bool Tracee::follow_new_thread(unsigned which)
{
    pid_t started = 0;
    while (which > 0) {
        resume(PTRACE_CONT, thread_, signal_);
        signal_ = 0;
        int status = 0;
        for (int ticks = 0; ::waitpid(thread_, &status, __WALL) < 0;)
            if (errno != EINTR || ++ticks > kTicksMost)
                return false;
        if (!WIFSTOPPED(status))
            return false;
        signal_ = signal_of(status);
        if (status >> 8 != (SIGTRAP | PTRACE_EVENT_CLONE << 8))
            continue;
        started = started_by(thread_);
        if (--which == 0)
            break;
        wait_for_stop(started);
        resume(PTRACE_DETACH, started, 0);
    }
    resume(PTRACE_DETACH, thread_, 0);
    thread_ = started;
    Step step;
    while ((step = wait_stop()) == Step::kWaits)
        ;
    look_at_maps();
    return step == Step::kStands;
}

void Tracee::detach(int signal)
{
    if (signal != 0)
        signal_ = signal;
    if (attached_ && !stands_) {
        ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
        for (int ticks = 0; attached_ && !stands_ && ticks < kTicksMost; ++ticks)
            wait_stop();
    }
    if (attached_ && stands_ && !there_) {
        int status = W_STOPCODE(signal_ != 0 ? signal_ : SIGTRAP);
        breakpoint_.report(thread_, status);
        signal_ = WIFSTOPPED(status) ? signal_of(status) : 0;
    }
    breakpoint_.clear();
    if (attached_)
        resume(PTRACE_DETACH, thread_, signal_);
    attached_ = false;
}

Tracee::Step Tracee::wait_stop()
{
    int status = 0;
    stands_ = false;
    const pid_t pid = ::waitpid(thread_, &status, __WALL);
    if (pid < 0 && errno == EINTR) {
        breakpoint_.serve();
        return Step::kWaits;
    }
    attached_ = attached_ && pid > 0;
    return pid < 0 ? Step::kGone : stopped(status);
}

Tracee::Step Tracee::stopped(int status)
{
    if (!WIFSTOPPED(status)) {
        attached_ = false;
        ended_[thread_] = status;
        return Step::kGone;
    }
    stands_ = true;
    if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
        breakpoint_.forget(); // another program
        return Step::kExec;
    }
    signal_ = signal_of(status);
    breakpoint_.note(thread_, status);
    there_ = breakpoint_.is_hit(thread_);
    if (there_)
        at();
    return Step::kStands;
}

void Tracee::forget()
{
    attached_ = false;
    breakpoint_.forget();
}

std::map<pid_t, int> Tracee::ended() const
{
    std::map<pid_t, int> all = breakpoint_.ended();
    all.insert(ended_.begin(), ended_.end());
    return all;
}

Tracee::Step Tracee::step()
{
    resume(PTRACE_SINGLESTEP, thread_, signal_);
    return go_on();
}

Tracee::Step Tracee::run()
{
    if (there_) {
        there_ = false;
        const Step passed = stopped(breakpoint_.pass(thread_, signal_));
        if (passed != Step::kStands || there_)
            return passed;
    }
    if (breakpoint_.is_awaited())
        breakpoint_.look_again();
    // What is not mapped yet will be by a system call.
    resume(breakpoint_.is_awaited() ? PTRACE_SYSCALL : PTRACE_CONT, thread_, signal_);
    return go_on();
}

Tracee::Step Tracee::run_to(std::uint64_t place)
{
    set_breakpoint(place);
    Step state = run();
    for (int ticks = 0; ticks < kTicksMost && (state == Step::kWaits || (state == Step::kStands && !there_));
         ticks += state == Step::kWaits ? 1 : 0)
        state = state == Step::kWaits ? go_on() : run();
    if (state == Step::kStands)
        breakpoint_.clear();
    there_ = false;
    return state;
}

std::uint64_t Tracee::at()
{
    place_ = instruction_of(thread_);
    return place_;
}

std::string Tracee::point()
{
    std::ostringstream text;
    text << where() << '@' << std::hex << place_ << std::dec << ':' << visits_[place_];
    return text.str();
}

std::uint64_t Tracee::find(const std::string &file, std::uint64_t offset) const
{
    for (const Range &range : code_)
        if (file_of(range.name) == file && offset >= range.offset && offset - range.offset < range.to - range.from)
            return range.from + offset - range.offset;
    return 0;
}

Tracee::Step Tracee::go_on()
{
    const Step result = wait_stop();
    if (result == Step::kStands && maps_change_)
        look_at_maps();
    return result;
}

const Operand &Tracee::operand_at(std::uint64_t place)
{
    const auto known = operands_.find(place);
    if (known != operands_.end())
        return known->second;
    std::uint8_t code[kLongest] = {};
    for (std::size_t i = 0; i < kLongest; ++i) {
        std::vector<std::uint8_t> &page = pages_[(place + i) / kPage];
        if (page.empty()) {
            page.resize(kPage);
            const iovec here{page.data(), kPage}, there{as_pointer((place + i) / kPage * kPage), kPage};
            ::process_vm_readv(process_, &here, 1, &there, 1, 0);
        }
        code[i] = page[(place + i) % kPage];
    }
    return operands_[place] = decode(code, kLongest);
}

bool Tracee::is_shared(std::uint64_t address) const
{
    return std::any_of(shared_.begin(), shared_.end(),
                       [address](const Range &range) { return address >= range.from && address < range.to; });
}

bool Tracee::counts(std::uint64_t place)
{
    const std::uint32_t times = ++times_[place];
    return times <= kTimesInFull || (times & (times - 1)) == 0;
}

bool Tracee::is_point(bool every)
{
    ++visits_[at()];
    const Operand &operand = operand_at(place_);
    if (operand.kind == Operand::kNothing)
        return every;
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, thread_, nullptr, &registers);
    if (operand.kind == Operand::kSystemCall) {
        maps_change_ = changes_maps(registers.rax);
        return every || counts(place_ << 12 | registers.rax);
    }
    std::uint64_t found[2] = {};
    const unsigned number = addresses(operand, registers, found);
    const bool seen = (number > 0 && is_shared(found[0])) || (number > 1 && is_shared(found[1]));
    return every || (seen && counts(place_));
}

void Tracee::look_at_maps()
{
    maps_change_ = false;
    shared_.clear();
    code_.clear();
    std::ifstream file("/proc/" + std::to_string(process_) + "/maps");
    for (std::string line; std::getline(file, line);) {
        Range range{};
        char rights[5] = {};
        int name = 0;
        unsigned long long from = 0, to = 0, offset = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx %4s %llx %*s %*s %n", &from, &to, rights, &offset, &name) < 4)
            continue;
        range = {from, to, line.substr(std::min(static_cast<std::size_t>(name), line.size())), offset};
        if (rights[3] == 's' && range.name.find("step-board") == std::string::npos)
            shared_.push_back(range);
        if (rights[2] == 'x')
            code_.push_back(range);
    }
}

std::string Tracee::where()
{
    for (const Range &range : code_)
        if (place_ >= range.from && place_ < range.to) {
            std::ostringstream text;
            text << file_of(range.name) << "+0x" << std::hex << place_ - range.from + range.offset;
            return text.str();
        }
    return "?";
}

} // namespace step
