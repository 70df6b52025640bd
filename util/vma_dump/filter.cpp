// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma_dump/filter.hpp"

#include <pcap/pcap.h>

#include <new>

namespace vma_dump {

namespace {

void free_program(bpf_program *program)
{
    pcap_freecode(program);
    delete program;
}

} // namespace

bool Filter::compile(const std::string &expression, std::uint32_t snap, std::string &error)
{
    if (expression.empty())
        return true;
    pcap_t *const nobody = pcap_open_dead(DLT_EN10MB, static_cast<int>(snap));
    auto *const program = new (std::nothrow) bpf_program{};
    const bool compiled = nobody != nullptr && program != nullptr &&
                          pcap_compile(nobody, program, expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) == 0;
    if (compiled)
        program_ = {program, free_program};
    else {
        error = nobody != nullptr ? pcap_geterr(nobody) : "no memory";
        delete program;
    }
    if (nobody != nullptr)
        pcap_close(nobody);
    return compiled;
}

bool Filter::passes(const Frame &frame, std::uint64_t time_ns) const
{
    if (program_ == nullptr)
        return true;
    pcap_pkthdr header = {};
    header.ts.tv_sec = static_cast<time_t>(time_ns / 1000000000);
    header.caplen = frame.captured;
    header.len = frame.length;
    return pcap_offline_filter(program_.get(), &header, frame.bytes) != 0;
}

} // namespace vma_dump
