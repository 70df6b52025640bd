// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/group.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/kernel.hpp"
#include "core/log.hpp"
#include "ether/xdp/flows.hpp"
#include "ether/xdp/group_link.hpp"

namespace vma::ether {
namespace {

constexpr unsigned kMostQueues = 64;
constexpr std::size_t kMostSockets = 256; // queues times places: each process has a descriptor of each
constexpr std::size_t kMostAsking = 16;
constexpr int kPatience = 1000;        // milliseconds that who joins waits for an answer
constexpr int kRounds = 5;             // of finding nobody, and then not being the first
constexpr unsigned kServesALook = 128; // some tenths of a second of a process that polls
constexpr int kKicks = 64;             // to send what a process that died has told the kernel to send

// Of a process, in clock ticks since the machine was started (proc(5), stat): two of one number differ by it. 0: none.
std::uint64_t start_time(pid_t process) noexcept
{
    char path[32];
    char text[1024];
    std::snprintf(path, sizeof path, "/proc/%d/stat", process);
    const core::UniqueFd file =
        core::make_fd([&] { return core::kernel::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC); });
    const ssize_t length = file ? core::kernel::read(file.get(), text, sizeof text - 1) : -1;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *at = std::strrchr(text, ')'); // behind the name, which may hold anything, is the third field
    for (int field = 2; at != nullptr && field < 22; ++field)
        at = std::strchr(at + 1, ' ');
    return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

std::uint64_t pid_namespace() noexcept
{
    struct stat status {
    };
    return core::kernel::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

} // namespace

struct XdpGroup::Member {
    std::atomic<State> state;
    std::atomic<std::uint32_t> has_life_line;
    std::atomic<pid_t> process;
    std::atomic<std::uint64_t> started;
};

// In memory that all have. Numbers that don't change after begin(), and who is there.
struct XdpGroup::Control {
    std::uint64_t pid_namespace;
    std::uint32_t places;
    std::uint32_t queues;
    QueueFacts facts[kMostQueues];
    XdpProgram::Facts program;
    GroupMutex mutex;
    std::atomic<std::uint32_t> changes;
    Member members[kMostPlaces];

    static constexpr std::size_t kSize = 16384; // where the pools begin
};

int XdpGroup::open(unsigned interface, std::unique_ptr<XdpGroup> &opened, uid_t &holder) noexcept
{
    static_assert(sizeof(Control) <= Control::kSize);
    std::unique_ptr<XdpGroup> made(new (std::nothrow) XdpGroup);
    if (!made)
        return -ENOMEM;
    int status = 0;
    // Between two looks the last one may have gone, or another one have come.
    for (int round = 0; round < kRounds; ++round) {
        status = made->found(interface);
        if (status == -EADDRINUSE)
            status = made->join(interface, holder);
        if (status != -ECONNREFUSED && status != -ECONNRESET)
            break;
        const timespec pause{0, 2'000'000};
        core::kernel::nanosleep(&pause, nullptr);
    }
    if (status == 0)
        opened = std::move(made);
    return status;
}

XdpGroup::~XdpGroup() = default;

int XdpGroup::found(unsigned interface) noexcept
{
    listener_ = listen_for_members(interface);
    founded_ = static_cast<bool>(listener_);
    return founded_ ? 0 : -errno;
}

unsigned XdpGroup::places() const noexcept
{
    return control_->places;
}

GroupMutex *XdpGroup::mutex() noexcept
{
    return &control_->mutex;
}

// ---- who is the first -----------------------------------------------------------------------------------------------

int XdpGroup::make(unsigned interface, std::span<const unsigned> queues, const XdpSocketOptions &options) noexcept
{
    XdpSocketOptions wanted = options;
    wanted.places = static_cast<unsigned>(std::min<std::size_t>(options.places, kMostSockets / queues.size()));
    if (queues.size() > kMostQueues || wanted.places < 2)
        return -E2BIG;
    std::size_t bytes = Control::kSize;
    queues_.resize(queues.size());
    for (std::size_t i = 0; i < queues.size(); ++i) {
        if (const int status = plan_queue(queues[i], wanted, queues_[i].facts); status != 0)
            return status;
        bytes += FramePool::bytes(queues_[i].facts.size);
        wanted.send_frames = kFewSendFrames; // frames are sent by the first
    }
    control_fd_ = core::make_memory("vma-nic", bytes);
    if (!control_fd_)
        return -errno;
    if (const int status = map_control(bytes); status != 0)
        return status;
    if (!control_->mutex.init())
        return -EOPNOTSUPP;
    control_->queues = static_cast<std::uint32_t>(queues.size());
    control_->places = wanted.places;
    for (std::size_t i = 0; i < queues.size(); ++i)
        control_->facts[i] = queues_[i].facts;
    point_at_pools();
    for (std::size_t i = 0; i < queues.size(); ++i) {
        if (const int status = make_queue(interface, wanted, queues_[i]); status != 0)
            return status;
        control_->facts[i] = queues_[i].facts;
    }
    for (unsigned place = 0; place < wanted.places; ++place) {
        bells_.push_back(core::make_fd([] { return core::kernel::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
        if (!bells_.back())
            return -errno;
    }
    control_->pid_namespace = pid_namespace();
    return take_place();
}

int XdpGroup::map_control(std::size_t bytes) noexcept
{
    control_memory_ = {::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control_fd_.get(), 0), bytes};
    if (!control_memory_)
        return -errno;
    ::madvise(control_memory_.data(), bytes, MADV_DONTFORK);
    control_ = reinterpret_cast<Control *>(control_memory_.data());
    return 0;
}

void XdpGroup::point_at_pools() noexcept
{
    std::uint8_t *at = control_memory_.data() + Control::kSize;
    for (QueueParts &queue : queues_) {
        queue.pool = at;
        at += FramePool::bytes(queue.facts.size);
    }
}

void XdpGroup::begin(const XdpProgram &program) noexcept
{
    control_->program = program.facts();
    program_fds_ = program.descriptors();
}

// The order in which take_parts() finds them.
std::vector<int> XdpGroup::descriptors() const noexcept
{
    std::vector<int> all{control_fd_.get(), listener_.get()};
    all.insert(all.end(), program_fds_.begin(), program_fds_.end());
    const auto add = [&all](const core::UniqueFd &fd) { all.push_back(fd.get()); };
    std::ranges::for_each(bells_, add);
    for (const QueueParts &queue : queues_) {
        add(queue.memory);
        std::ranges::for_each(queue.sockets, add);
    }
    return all;
}

// ---- who comes later ------------------------------------------------------------------------------------------------

int XdpGroup::join(unsigned interface, uid_t &holder) noexcept
{
    const core::UniqueFd connection = ask_member(interface, holder);
    if (!connection)
        return -errno;
    std::vector<core::UniqueFd> given;
    int status = receive_answer(connection.get(), kPatience, given);
    if (status == 0)
        status = take_parts(given);
    return status;
}

int XdpGroup::take_parts(std::vector<core::UniqueFd> &given) noexcept
{
    std::size_t next = 0;
    const auto take = [&](core::UniqueFd &to) {
        if (next < given.size())
            to = std::move(given[next]);
        ++next;
    };
    take(control_fd_);
    take(listener_);
    for (core::UniqueFd &fd : program_)
        take(fd);
    struct stat status {
    };
    if (!control_fd_ || core::kernel::fstat(control_fd_.get(), &status) != 0 ||
        static_cast<std::size_t>(status.st_size) < Control::kSize)
        return -EPROTO;
    if (const int error = map_control(static_cast<std::size_t>(status.st_size)); error != 0)
        return error;
    if (control_->queues > kMostQueues || control_->places > kMostPlaces)
        return -EPROTO;
    if (control_->pid_namespace != pid_namespace())
        return -EXDEV; // it could not be seen whether the others live
    bells_.resize(control_->places);
    std::ranges::for_each(bells_, take);
    queues_.resize(control_->queues);
    std::size_t bytes = Control::kSize;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
        queues_[i].facts = control_->facts[i];
        bytes += FramePool::bytes(queues_[i].facts.size);
        take(queues_[i].memory);
        queues_[i].sockets.resize(control_->places);
        std::ranges::for_each(queues_[i].sockets, take);
    }
    if (next != given.size() || bytes > static_cast<std::size_t>(status.st_size))
        return -EPROTO;
    point_at_pools();
    std::ranges::transform(program_, program_fds_.begin(), &core::UniqueFd::get);
    return take_place();
}

XdpProgram XdpGroup::take_program() noexcept
{
    return XdpProgram::adopt(std::move(program_), control_->program);
}

// ---- all ------------------------------------------------------------------------------------------------------------

int XdpGroup::take_place() noexcept
{
    watched_.resize(places());
    if (const int status = open_wait_set(); status != 0)
        return status;
    const GroupTurn turn(mutex());
    if (!turn)
        return -ETIMEDOUT;
    for (unsigned place = 0; place < places(); ++place) {
        Member &member = control_->members[place];
        if (member.state.load() != State::kFree)
            continue;
        member.process.store(::getpid());
        member.started.store(start_time(::getpid()));
        member.has_life_line.store(hold_life_line(place) ? 1 : 0);
        member.state.store(State::kUsed);
        place_ = place;
        has_place_ = true;
        tell_others();
        return core::watch_fd(wait_set_.get(), bells_[place].get()) ? 0 : -errno;
    }
    return -EUSERS;
}

namespace {

// Of one byte of the control file: the place's.
struct flock lock_of(unsigned place) noexcept
{
    struct flock lock {
    };
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = place;
    lock.l_len = 1;
    return lock;
}

} // namespace

bool XdpGroup::hold_life_line(unsigned place) noexcept
{
    char path[32];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", control_fd_.get());
    life_line_ = core::make_fd([&] { return core::kernel::openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC); });
    struct flock lock = lock_of(place);
    return life_line_ && core::kernel::call(SYS_fcntl, life_line_.get(), F_OFD_SETLK, &lock) == 0;
}

bool XdpGroup::has_life_line(unsigned place) const noexcept
{
    struct flock lock = lock_of(place);
    return core::kernel::call(SYS_fcntl, control_fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int XdpGroup::open_wait_set() noexcept
{
    wait_set_ = core::make_fd([] { return core::kernel::epoll_create1(EPOLL_CLOEXEC); });
    return wait_set_ && core::watch_fd(wait_set_.get(), listener_.get()) ? 0 : -errno;
}

void XdpGroup::tell_others() noexcept
{
    control_->changes.fetch_add(1);
    for (unsigned place = 0; place < places(); ++place) {
        constexpr std::uint64_t kOne = 1;
        if (place != place_ && control_->members[place].state.load() == State::kUsed)
            (void)core::kernel::write(bells_[place].get(), &kOne, sizeof kOne);
    }
}

void XdpGroup::serve(XdpProgram &program) noexcept
{
    if (!is_there())
        return;
    epoll_event events[8];
    const int count = core::kernel::epoll_wait(wait_set_.get(), events, std::size(events), 0);
    if (count <= 0 && control_->changes.load(std::memory_order_relaxed) == seen_ && ++serves_ % kServesALook != 0)
        return;
    std::uint64_t rung = 0;
    (void)core::kernel::read(bells_[place_].get(), &rung, sizeof rung);
    let_in();
    look_around(program);
}

void XdpGroup::let_in() noexcept
{
    while (true) {
        core::UniqueFd connection = core::make_fd(
            [this] { return core::kernel::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (!connection)
            break;
        if (asking_.size() >= kMostAsking)
            asking_.erase(asking_.begin());
        if (core::watch_fd(wait_set_.get(), connection.get()))
            asking_.push_back(std::move(connection));
    }
    std::erase_if(asking_, [this](core::UniqueFd &connection) {
        const Asked asked = read_question(connection.get());
        if (asked == Asked::kRight)
            answer(std::move(connection));
        return asked != Asked::kNothingYet;
    });
}

// Which place it takes is its own affair.
void XdpGroup::answer(core::UniqueFd connection) noexcept
{
    const bool full = std::ranges::none_of(std::span(control_->members).first(places()),
                                           [](const Member &member) { return member.state.load() == State::kFree; });
    const std::vector<int> all = full ? std::vector<int>{} : descriptors();
    (void)send_answer(connection.get(), full ? -EUSERS : 0, all);
}

bool XdpGroup::is_gone(unsigned place) const noexcept
{
    const Member &member = control_->members[place];
    const pid_t process = member.process.load();
    if (member.state.load() == State::kFree || process == ::getpid())
        return false;
    if (member.has_life_line.load() != 0 && !has_life_line(place))
        return true; // it has become another program, or closed all that it had
    const core::UniqueFd &pidfd = watched_[place].pidfd;
    if (pidfd && watched_[place].started == member.started.load()) {
        pollfd wanted{pidfd.get(), POLLIN, 0};
        return core::kernel::poll(&wanted, 1, 0) == 1;
    }
    const std::uint64_t started = start_time(process);
    return core::kernel::call(SYS_kill, process, 0) != 0 ? errno == ESRCH
                                                         : started != 0 && started != member.started.load();
}

// Readable when it ends. Where the system has none of these, it is asked for at each change.
void XdpGroup::watch(unsigned place) noexcept
{
    const Member &member = control_->members[place];
    watched_[place] = {core::make_fd([&] { return core::kernel::call(SYS_pidfd_open, member.process.load(), 0); }),
                       member.started.load()};
    if (watched_[place].pidfd && start_time(member.process.load()) != member.started.load())
        watched_[place].pidfd.reset(); // another process of that number
    if (watched_[place].pidfd)
        (void)core::watch_fd(wait_set_.get(), watched_[place].pidfd.get());
}

void XdpGroup::look_around(XdpProgram &program) noexcept
{
    seen_ = control_->changes.load();
    for (unsigned place = 0; place < places(); ++place) {
        const Member &member = control_->members[place];
        if (place == place_)
            continue;
        if (member.state.load() == State::kFree) {
            watched_[place] = {};
            continue;
        }
        if (watched_[place].started != member.started.load())
            watch(place);
        if (is_gone(place) && clear_away(place, program))
            watched_[place] = {};
    }
}

bool XdpGroup::clear_away(unsigned place, XdpProgram &program) noexcept
{
    const GroupTurn turn(mutex());
    if (!turn || !is_gone(place)) // or another one has done it
        return false;
    for (const QueueParts &queue : queues_)
        program.remove_socket(queue.facts.queue, place);
    XdpFlows::forget(program.flows_map(), program.addresses_map(), place);
    std::uint32_t dead = 0;
    for (unsigned other = 0; other < places(); ++other)
        dead |= is_gone(other) ? 1U << other : 0;
    if (!recover_frames(place, dead))
        return false;
    Member &member = control_->members[place];
    VMA_DEBUG(domain, "process %d, which shared the interface, has ended: its flows are the kernel's",
              member.process.load());
    member.has_life_line.store(0);
    member.state.store(State::kFree);
    tell_others();
    return true;
}

bool XdpGroup::recover_frames(unsigned place, std::uint32_t dead) noexcept
{
    bool all = true;
    for (QueueParts &queue : queues_) {
        PlaceRings rings;
        SharedRings shared;
        if (map_place(queue, place, rings) != 0 || map_shared(queue, shared) != 0)
            return false;
        FramePool pool(queue.pool, queue.facts.size, place_);
        pool.use(shared.fill, shared.completed);
        all = pool.recover({place, &rings.received, &rings.queued}, dead) && all;
        for (int i = 0; i < kKicks && rings.queued.level() != 0; ++i)
            (void)core::kernel::send(queue.sockets[place].get(), nullptr, 0, MSG_DONTWAIT);
    }
    return all;
}

bool XdpGroup::is_there() const noexcept
{
    return generation_ == core::fork_generation() && control_ != nullptr && has_place_;
}

void XdpGroup::withdraw(XdpProgram &program) noexcept
{
    if (!is_there())
        return;
    for (const QueueParts &queue : queues_)
        program.remove_socket(queue.facts.queue, place_);
}

void XdpGroup::leave(XdpProgram &program, bool holds_frames) noexcept
{
    if (!is_there())
        return;
    const GroupTurn turn(mutex());
    XdpFlows::forget(program.flows_map(), program.addresses_map(), place_);
    Member &member = control_->members[place_];
    member.has_life_line.store(0);
    member.state.store(holds_frames ? State::kLeft : State::kFree);
    tell_others();
}

} // namespace vma::ether
