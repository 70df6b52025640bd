// SPDX-License-Identifier: BSD-2-Clause
// Where the bytes go: standard output, one file, or a ring of files.
#pragma once

#include <cstdint>
#include <string>

#include "util/vma_dump/options.hpp"

namespace vma_dump {

class Output
{
public:
    explicit Output(const Options &options) : options_(options) {}
    ~Output();
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    // The first file. False: said why not.
    bool open();
    std::string &buffer() { return buffer_; } // what is added to it is written at some time
    // Between two packets. False: nothing can be written any more, said why.
    bool write_some(); // if there is much
    bool write_all();
    // Whether the next packet belongs in another file, and begins that. False as above.
    bool is_full() const;
    bool begin_next();
    bool has_ended() const { return ended_; } // whoever read it has gone, which is no fault

private:
    bool open_file();
    bool fail(const char *what);

    const Options &options_;
    std::string buffer_;
    std::string path_;
    std::uint64_t written_ = 0; // to this file
    std::uint64_t files_ = 0;   // before it
    int fd_ = -1;
    bool ended_ = false;
};

} // namespace vma_dump
