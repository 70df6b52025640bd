// SPDX-License-Identifier: BSD-2-Clause
#include "ether/xdp/bpf.hpp"

#include <algorithm>
#include <cstring>
#include <linux/btf.h>
#include <new>
#include <vector>

#include "core/log.hpp"
#include "core/made_once.hpp"

namespace vma::ether::bpf {
namespace {

constexpr std::size_t kVerifierLog = 64 << 10;
constexpr std::size_t kVerifierTail = 400; // the reason stands at the end

Table load_table()
{
    const core::Library library("libbpf.so.1", "no frame can be steered to a program");
    Table table;
    const bool is_whole = true VMA_BPF_FUNCTIONS(VMA_LIBRARY_FIND);
    return is_whole ? table : Table{};
}

constinit core::MadeOnce<Table> g_table;

} // namespace

const Table &table() noexcept
{
    return g_table.get([](void *place) { return new (place) Table(load_table()); });
}

core::UniqueFd create_map(const char *name, bpf_map_type type, std::uint32_t key_size, std::uint32_t value_size,
                          std::uint32_t entries) noexcept
{
    const Table &libbpf = table(); // opened before fork() is kept out
    return core::make_fd([&] { return libbpf.create_map(type, name, key_size, value_size, entries, nullptr); });
}

core::UniqueFd load_xdp(const char *name, std::span<const bpf_insn> code, const XdpLoad &how) noexcept
{
    // No helper that the program calls is for programs under the GPL only. Functions of the kernel itself are: whoever
    // loads a program that calls one has it under both, as the 2-clause licence lets him.
    const char *const license = how.calls_the_kernel ? "Dual BSD/GPL" : "BSD-2-Clause";
    std::vector<char> text(kVerifierLog); // written when the program is refused
    bpf_prog_load_opts options{};
    options.sz = sizeof options;
    options.expected_attach_type = BPF_XDP;
    options.prog_flags = how.flags;
    options.prog_ifindex = how.interface;
    options.log_buf = text.data();
    options.log_size = static_cast<std::uint32_t>(text.size());
    core::UniqueFd program = core::make_fd(
        [&] { return table().load(BPF_PROG_TYPE_XDP, name, license, code.data(), code.size(), &options); });
    const std::size_t length = strnlen(text.data(), text.size());
    if (!program && length > 0)
        VMA_WARN(domain, "the kernel refuses the XDP program: ...%s",
                 text.data() + length - std::min(length, kVerifierTail));
    return program;
}

int kernel_function(const char *name) noexcept
{
    btf *const known = table().load_btf();
    if (known == nullptr)
        return errno != 0 ? -errno : -ENOENT;
    const int id = table().find_btf(known, name, BTF_KIND_FUNC);
    table().free_btf(known);
    return id;
}

core::UniqueFd attach_xdp(int program, unsigned interface, std::uint32_t flags) noexcept
{
    bpf_link_create_opts options{};
    options.sz = sizeof options;
    options.flags = flags;
    return core::make_fd([&] { return table().create_link(program, static_cast<int>(interface), BPF_XDP, &options); });
}

bool has_xdp(unsigned interface) noexcept
{
    const Table &libbpf = table(); // opened before fork() is kept out
    std::uint32_t program = 0;
    const core::ForkGuard guard;
    return libbpf.query_xdp(static_cast<int>(interface), 0, &program) == 0 && program != 0;
}

} // namespace vma::ether::bpf
