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

namespace step {

namespace {

constexpr int kTicksMost = 400; // 2 s
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLongest = 15;      // bytes of an instruction
constexpr std::uint32_t kTimesInFull = 8; // an instruction that comes again and again (a copy) counts less often then

// ptrace() takes numbers as pointers.
void *as_pointer(std::uintptr_t value)
{
    return reinterpret_cast<void *>(value); // NOLINT
}

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

bool Tracee::follow_new_thread()
{
    for (;;) {
        ::ptrace(PTRACE_CONT, thread_, nullptr, as_pointer(static_cast<std::uintptr_t>(signal_)));
        signal_ = 0;
        int status = 0;
        for (int ticks = 0; ::waitpid(thread_, &status, __WALL) < 0;)
            if (errno != EINTR || ++ticks > kTicksMost)
                return false;
        if (!WIFSTOPPED(status))
            return false;
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_CLONE << 8))
            break;
        if (status >> 16 == 0)
            signal_ = WSTOPSIG(status);
    }
    unsigned long started = 0;
    ::ptrace(PTRACE_GETEVENTMSG, thread_, nullptr, &started);
    ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    thread_ = static_cast<pid_t>(started);
    Step step;
    while ((step = wait_stop()) == Step::kWaits)
        ;
    look_at_maps();
    return step == Step::kStands;
}

void Tracee::detach()
{
    if (attached_ && !stands_) {
        ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
        for (int ticks = 0; attached_ && !stands_ && ticks < kTicksMost; ++ticks)
            wait_stop();
    }
    if (breaks_)
        set_debug_register(7, 0);
    breaks_ = false;
    if (attached_)
        ::ptrace(PTRACE_DETACH, thread_, nullptr, as_pointer(static_cast<std::uintptr_t>(signal_)));
    attached_ = false;
}

Tracee::Step Tracee::wait_stop()
{
    int status = 0;
    stands_ = false;
    const pid_t pid = ::waitpid(thread_, &status, __WALL);
    if (pid < 0 && errno == EINTR)
        return Step::kWaits;
    attached_ = attached_ && pid > 0;
    if (pid < 0)
        return Step::kGone;
    if (!WIFSTOPPED(status)) {
        attached_ = false;
        return Step::kGone;
    }
    stands_ = true;
    if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8))
        return Step::kExec;
    signal_ = status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
    return Step::kStands;
}

Tracee::Step Tracee::step()
{
    if (::ptrace(PTRACE_SINGLESTEP, thread_, nullptr, as_pointer(static_cast<std::uintptr_t>(signal_))) != 0 &&
        errno == ESRCH)
        return wait_stop();
    return go_on();
}

bool Tracee::set_debug_register(std::size_t number, std::uint64_t value)
{
    return ::ptrace(PTRACE_POKEUSER, thread_, as_pointer(offsetof(user, u_debugreg) + number * sizeof value),
                    as_pointer(value)) == 0;
}

bool Tracee::set_breakpoint(std::uint64_t place)
{
    breaks_ = set_debug_register(0, place) && set_debug_register(7, 1); // the first one, for execution
    return breaks_;
}

Tracee::Step Tracee::run()
{
    if (::ptrace(PTRACE_CONT, thread_, nullptr, as_pointer(static_cast<std::uintptr_t>(signal_))) != 0 &&
        errno == ESRCH)
        return wait_stop();
    return go_on();
}

Tracee::Step Tracee::run_to(std::uint64_t place)
{
    set_breakpoint(place);
    Step state = run();
    for (int ticks = 0; ticks < kTicksMost && (state == Step::kWaits || (state == Step::kStands && at() != place));
         ticks += state == Step::kWaits ? 1 : 0)
        state = state == Step::kWaits ? go_on() : run();
    set_debug_register(7, 0);
    return state;
}

std::uint64_t Tracee::at()
{
    place_ = static_cast<std::uint64_t>(
        ::ptrace(PTRACE_PEEKUSER, thread_, as_pointer(offsetof(user_regs_struct, rip)), nullptr));
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
