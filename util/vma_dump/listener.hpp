// SPDX-License-Identifier: BSD-2-Clause
// One process that is listened to: the wish in its file of counters, the ring that it makes, and what stands in that.
// The process may be hostile: nothing of it is believed before it was copied and checked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "compat/src/stats/capture_layout.hpp"
#include "util/tool/fd.hpp"
#include "util/vma_dump/frame.hpp"
#include "util/vma_stats/processes.hpp"

namespace vma_dump {

// kMissing: no ring is there (any more), as the process waits for a listener for some time only.
enum class Opened { kYes, kMissing, kRefused };

// A ring that is mapped, from its reader's side.
class RingReader
{
public:
    RingReader() = default;
    ~RingReader();
    RingReader(const RingReader &) = delete;
    RingReader &operator=(const RingReader &) = delete;

    // The process's descriptor `fd`; takes the lock that says that somebody listens. Not kYes: `error` says why.
    Opened open(pid_t pid, int fd, std::string &error);
    void read_from(vma::stats::CaptureHeader &header, std::uint32_t size); // a ring that is mapped
    bool is_open() const { return header_ != nullptr; }
    void close();

    // The next record's head, nullptr: there is none yet. Stays until pop().
    const vma::stats::CaptureRecord *front();
    bool read(Message &message); // it, whole. False: the ring is damaged
    void pop();
    void tell();                   // the process of all that was taken
    std::uint64_t dropped() const; // by the process
    bool has_ended() const;

private:
    const vma::stats::CaptureRecord *at(std::uint64_t place) const;
    bool map(int file, std::uint32_t size, std::string &error);

    vma::stats::CaptureHeader *header_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint64_t taken_ = 0;
    std::uint64_t told_ = 0;
    vma::stats::CaptureRecord head_ = {};
    bool has_head_ = false;
    vma::tool::Fd file_;
};

enum class Stage {
    kAsked,     // and has not answered
    kListening, //
    kOver,      // it has ended, or it can't be listened to
};

class Listener
{
public:
    Listener(vma_stats::Found found, vma_stats::Snapshot snapshot);
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;

    bool ask(std::uint32_t ring, std::uint32_t most); // false: said why not
    // Some times a second: whether it has answered, and whether it still is there. Says on stderr what is new.
    void look();
    void end(const std::string &why); // says so

    Stage stage() const { return stage_; }
    pid_t pid() const { return found_.pid; }
    ino_t inode() const { return inode_; }
    bool is_same(const vma_stats::Snapshot &other) const; // process
    RingReader &ring() { return ring_; }
    std::uint64_t new_drops(); // since the last time
    std::uint64_t told_drops() const { return told_drops_; }
    const std::string &program() const { return program_; }
    // Of a record's ring; "" if it has no name.
    std::string device_of(const vma::stats::CaptureRecord &head);

private:
    void hear_answer();
    void open_ring(int fd); // the process's
    void ask_again(const std::string &error);
    bool is_gone() const;
    bool is_still_there() const;

    const vma_stats::Found found_;
    vma_stats::Snapshot known_; // of its devices
    std::string program_;
    RingReader ring_;
    Stage stage_ = Stage::kAsked;
    std::uint32_t number_ = 0; // of the wish
    std::uint32_t ring_size_ = 0;
    std::uint32_t most_ = 0;
    ino_t inode_ = 0;    // of its file
    unsigned looks_ = 0; // in vain
    unsigned again_ = 0; // times that it was asked once more
    std::uint64_t told_drops_ = 0;
    vma::tool::Fd process_; // pidfd
};

} // namespace vma_dump
