// SPDX-License-Identifier: BSD-2-Clause
// The processes of one user that share a NIC: who came first makes the sockets of all places and gives each of the
// others descriptors of everything, so that none of them is needed by the others. Who ends, however that comes, is
// cleared away by the next of them that looks: doc/shared-port.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/types.h>
#include <vector>

#include "core/fd.hpp"
#include "ether/nic/memory_map.hpp"
#include "ether/xdp/group_mutex.hpp"
#include "ether/xdp/program.hpp"
#include "ether/xdp/queue_parts.hpp"

namespace vma::ether {

// Not thread-safe. A forked child can do nothing with its parent's but forget it.
class XdpGroup
{
public:
    // Joins those who have the interface, or is the first: founded() then, and make() and begin() follow. 0 or negative
    // errno: -EUSERS, all places are taken; -ETIMEDOUT, -ECONNRESET, who has the interface doesn't answer; -EACCES,
    // another user, `holder`, has the name; -ECONNREFUSED, -EAGAIN, somebody has it, and lets nobody ask; -EXDEV,
    // another pid namespace; -EMFILE, -EPERM.
    [[nodiscard]] static int open(unsigned interface, std::unique_ptr<XdpGroup> &opened, uid_t &holder) noexcept;
    ~XdpGroup();

    bool founded() const noexcept { return founded_; }
    // The founder's: sockets for `options.places` processes on each queue, of which it has place 0. As make_queue().
    [[nodiscard]] int make(unsigned interface, std::span<const unsigned> queues,
                           const XdpSocketOptions &options) noexcept;
    // From here on others join: the program is attached.
    void begin(const XdpProgram &program) noexcept;
    // Another's: its program, once.
    XdpProgram take_program() noexcept;

    unsigned place() const noexcept { return place_; }
    unsigned places() const noexcept;
    std::vector<QueueParts> &queues() noexcept { return queues_; }
    GroupMutex *mutex() noexcept;
    int wait_fd() const noexcept { return wait_set_.get(); } // readable: serve() has something to do

    // Lets others in, and clears away who has ended. A system call; -EAGAIN is all there mostly is.
    void serve(XdpProgram &program) noexcept;
    // Frames of its flows go to the kernel from here on.
    void withdraw(XdpProgram &program) noexcept;
    // The place is free; `holds_frames`: the program has some on loan, so only once this process has ended. The sockets
    // at the place are closed.
    void leave(XdpProgram &program, bool holds_frames) noexcept;

private:
    struct Control;
    struct Member;
    enum class State : std::uint32_t { kFree, kUsed, kLeft };

    XdpGroup() noexcept = default;
    int found(unsigned interface) noexcept;
    int join(unsigned interface, uid_t &holder) noexcept;
    int take_parts(std::vector<core::UniqueFd> &given) noexcept;
    int map_control(std::size_t bytes) noexcept;
    int take_place() noexcept;
    bool hold_life_line(unsigned place) noexcept;
    bool has_life_line(unsigned place) const noexcept;
    int open_wait_set() noexcept;
    void point_at_pools() noexcept;
    std::vector<int> descriptors() const noexcept;
    void let_in() noexcept;
    void answer(core::UniqueFd connection) noexcept;
    void look_around(XdpProgram &program) noexcept;
    void watch(unsigned place) noexcept;
    bool is_gone(unsigned place) const noexcept;
    bool clear_away(unsigned place, XdpProgram &program) noexcept;
    bool recover_frames(unsigned place, std::uint32_t dead) noexcept;
    void tell_others() noexcept;
    bool is_there() const noexcept; // has a place, and is not a parent's

    bool founded_ = false;
    bool has_place_ = false;
    unsigned place_ = 0;
    std::uint32_t generation_ = core::fork_generation();
    std::uint32_t seen_ = 0; // changes of the places that were looked at
    unsigned serves_ = 0;
    core::UniqueFd listener_;
    core::UniqueFd control_fd_;
    core::UniqueFd life_line_; // the same file, opened for us alone: with a lock that ends with it, at exec(2) too
    MemoryMap control_memory_;
    Control *control_ = nullptr;
    std::vector<QueueParts> queues_;
    XdpProgram::Descriptors program_; // until take_program()
    std::array<int, XdpProgram::kDescriptors> program_fds_{};
    std::vector<core::UniqueFd> bells_;  // by place: an eventfd, rung when places change
    std::vector<core::UniqueFd> asking_; // connections that have not asked yet
    struct Watched {
        core::UniqueFd pidfd;
        std::uint64_t started = 0;
    };
    std::vector<Watched> watched_; // by place
    core::UniqueFd wait_set_;      // epoll
};

} // namespace vma::ether
