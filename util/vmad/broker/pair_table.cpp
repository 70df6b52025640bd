// SPDX-License-Identifier: BSD-2-Clause
#include "pair_table.hpp"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "ether/xdp/bpf.hpp"

namespace vma::guard {

namespace {

namespace bpf = ether::bpf;

// Places for each connection. Cookies are given out by the thousand to each processor, so what is used at a time has
// gaps; two connections that meet at one place know less of each other's.
constexpr std::uint32_t kEndPlaces = 4;
constexpr std::uint32_t kMeetingPlaces = 2;
constexpr std::size_t kVerifierLog = 64 << 10;
constexpr std::size_t kVerifierTail = 400; // the reason stands at the end

std::string failure(const std::string &what)
{
    return what + ": " + std::strerror(errno);
}

// The first whole tree of version 2 that is mounted; empty: none is.
std::string mounted_tree()
{
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> mounts(std::fopen("/proc/self/mountinfo", "re"),
                                                                  std::fclose);
    char line[4096];
    while (mounts && std::fgets(line, sizeof line, mounts.get()) != nullptr) {
        char root[1024];
        char place[1024];
        const char *const type = std::strstr(line, " - ");
        if (type == nullptr || std::strncmp(type, " - cgroup2 ", 11) != 0)
            continue;
        if (std::sscanf(line, "%*s %*s %*s %1023s %1023s", root, place) == 2 && std::strcmp(root, "/") == 0)
            return place;
    }
    return "";
}

core::UniqueFd open_tree(const std::string &path)
{
    return core::UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

} // namespace

std::string PairTable::open(const std::string &cgroup, std::uint32_t connections)
{
    const std::string path = cgroup.empty() ? mounted_tree() : cgroup;
    if (path.empty())
        return "no tree of control groups of version 2 is mounted";
    const core::UniqueFd tree = open_tree(path);
    if (!tree)
        return failure(path);
    end_count_ = std::bit_ceil(kEndPlaces * connections);
    meeting_count_ = std::bit_ceil(kMeetingPlaces * connections);
    ends_ = bpf::create_map("vma_ends", BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(EndEntry), end_count_);
    meetings_ = bpf::create_map("vma_meetings", BPF_MAP_TYPE_ARRAY, sizeof(std::uint32_t), sizeof(MeetingEntry),
                                meeting_count_);
    if (!ends_ || !meetings_)
        return failure("BPF maps");
    if (std::string error = load(); !error.empty())
        return error;
    bpf_link_create_opts options{};
    options.sz = sizeof options;
    link_ = core::UniqueFd(bpf::table().create_link(program_.get(), tree.get(), BPF_CGROUP_SOCK_OPS, &options));
    return link_ ? "" : failure(path + ": the program can't be attached");
}

std::string PairTable::load()
{
    ether::Assembler code;
    write_pair_code(code, {ends_.get(), meetings_.get(), end_count_, meeting_count_});
    const auto instructions = code.finish();
    std::vector<char> text(kVerifierLog); // written when the program is refused
    bpf_prog_load_opts options{};
    options.sz = sizeof options;
    options.expected_attach_type = BPF_CGROUP_SOCK_OPS;
    options.log_buf = text.data();
    options.log_size = static_cast<std::uint32_t>(text.size());
    program_ = core::UniqueFd(bpf::table().load(BPF_PROG_TYPE_SOCK_OPS, "vma_pairs", "BSD-2-Clause",
                                                instructions.data(), instructions.size(), &options));
    if (program_)
        return "";
    const std::string error = failure("the kernel refuses the program");
    const std::size_t length = strnlen(text.data(), text.size());
    return length == 0 ? error : error + ": ..." + (text.data() + length - std::min(length, kVerifierTail));
}

bool PairTable::find(std::uint64_t cookie, PairedEnd &out) const
{
    EndEntry end;
    const std::uint32_t place = end_place(cookie, end_count_);
    if (bpf::table().look_up(ends_.get(), &place, &end) != 0 || end.cookie != cookie || !end.is_sound())
        return false;
    out.numbers = end.numbers;
    out.role = end.role;
    out.port = static_cast<std::uint16_t>(end.port);
    out.other = other_of(end);
    return true;
}

PairedEnd::Other PairTable::other_of(const EndEntry &end) const
{
    MeetingEntry meeting;
    const std::uint32_t place = meeting_place(end.numbers, meeting_count_);
    const PairNumbers connector = end.role == PairRole::kConnector ? end.numbers : exchanged(end.numbers);
    if (bpf::table().look_up(meetings_.get(), &place, &meeting) != 0 || meeting.connector != connector)
        return PairedEnd::Other::kUnknown;
    return meeting.ends == (kConnectorHere | kAcceptorHere) ? PairedEnd::Other::kHere : PairedEnd::Other::kNotHere;
}

} // namespace vma::guard
