// SPDX-License-Identifier: BSD-2-Clause
// A filter in the language of tcpdump (pcap-filter(7)): libpcap compiles it, and runs it over the frames that are made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "util/vma_dump/frame.hpp"

struct bpf_program;

namespace vma_dump {

class Filter
{
public:
    // Once. An empty expression lets everything through. False: `error` says why not.
    bool compile(const std::string &expression, std::uint32_t snap, std::string &error);
    bool passes(const Frame &frame, std::uint64_t time_ns) const;

private:
    std::unique_ptr<bpf_program, void (*)(bpf_program *)> program_{nullptr, nullptr}; // with what frees it
};

} // namespace vma_dump
