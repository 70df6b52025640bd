// SPDX-License-Identifier: BSD-2-Clause
// What the head of a program's file says of how it is loaded, or that it is a script. A pure function of bytes, which
// are anybody's: each offset is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vma::command {

inline constexpr std::size_t kHeadSize = std::size_t{1} << 20; // of a file, more than its headers take

struct Image {
    bool is_elf = false;
    unsigned bits = 0;       // 32, 64
    bool big_endian = false; //
    unsigned machine = 0;    // EM_X86_64 and the like
    bool is_static = false;  // no loader is named
    bool is_go = false;      // made by the Go compiler: it calls the kernel itself
    std::string loader;      // "/lib64/ld-linux-x86-64.so.2"
    std::string interpreter; // of a script: the program behind "#!"
    std::string interpreted; // what stands behind that: one argument
    bool is_musl() const { return loader.find("/ld-musl-") != std::string::npos; }
    bool is_known() const { return is_elf || !interpreter.empty(); }
};

// `head`: the first kHeadSize bytes, or all there are.
Image read_image(std::string_view head);

} // namespace vma::command
