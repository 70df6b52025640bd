// SPDX-License-Identifier: BSD-2-Clause
// What is read out of a program's head: real ones of this machine, made ones, and damaged ones.
#include "fabtests/unit.hpp"

#include <elf.h>

#include <cstring>
#include <string>

#include "util/vma/elf.hpp"
#include "util/vma/files.hpp"

namespace {

using namespace vma::command;

struct Part {
    std::uint32_t type;
    std::string bytes;
};

std::string make(std::initializer_list<Part> parts)
{
    Elf64_Ehdr head = {};
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? ELFDATA2MSB : ELFDATA2LSB;
    head.e_machine = EM_X86_64;
    head.e_phoff = sizeof head;
    head.e_phnum = static_cast<Elf64_Half>(parts.size());
    std::string file(reinterpret_cast<const char *>(&head), sizeof head);
    std::uint64_t at = sizeof head + parts.size() * sizeof(Elf64_Phdr);
    for (const Part &part : parts) {
        Elf64_Phdr segment = {};
        segment.p_type = part.type;
        segment.p_offset = at;
        segment.p_filesz = part.bytes.size();
        at += part.bytes.size();
        file.append(reinterpret_cast<const char *>(&segment), sizeof segment);
    }
    for (const Part &part : parts)
        file += part.bytes;
    return file;
}

std::string note(const std::string &owner, std::uint32_t type, const std::string &contents)
{
    const std::uint32_t words[] = {static_cast<std::uint32_t>(owner.size() + 1),
                                   static_cast<std::uint32_t>(contents.size()), type};
    std::string all(reinterpret_cast<const char *>(words), sizeof words);
    all += owner + '\0';
    all.resize((all.size() + 3) & ~std::size_t{3});
    all += contents;
    all.resize((all.size() + 3) & ~std::size_t{3});
    return all;
}

const Part kLoader = {PT_INTERP, std::string("/lib64/ld-linux-x86-64.so.2") + '\0'};
const Part kLoad = {PT_LOAD, "x"};

void own_program(void **)
{
    const Image image = read_image(read_file("/proc/self/exe", kHeadSize).value_or(""));
    assert_true(image.is_elf && !image.is_static && !image.is_go && !image.is_musl());
    assert_int_equal(image.bits, 8 * sizeof(void *));
    assert_true(image.loader.starts_with('/'));
}

void made_programs(void **)
{
    const Image usual = read_image(make({kLoad, kLoader}));
    assert_true(usual.is_elf && !usual.is_static);
    assert_string_equal(usual.loader.c_str(), "/lib64/ld-linux-x86-64.so.2");
    assert_int_equal(usual.machine, EM_X86_64);
    assert_true(read_image(make({kLoad})).is_static);
    const Part musl = {PT_INTERP, std::string("/lib/ld-musl-x86_64.so.1") + '\0'};
    assert_true(read_image(make({musl})).is_musl());
}

void go_programs(void **)
{
    const Part go = {PT_NOTE, note("GNU", 3, "12345") + note("Go", 4, "an id")};
    assert_true(read_image(make({kLoad, go})).is_go);
    assert_true(read_image(make({go, kLoader})).is_go); // that uses C libraries
    const Part other = {PT_NOTE, note("GNU", 4, "an id") + note("Go", 3, "an id")};
    assert_false(read_image(make({other})).is_go);
}

void scripts(void **)
{
    const Image shell = read_image("#!/bin/sh\necho\n");
    assert_false(shell.is_elf);
    assert_string_equal(shell.interpreter.c_str(), "/bin/sh");
    const Image python = read_image("#! /usr/bin/env python3 -u \n");
    assert_string_equal(python.interpreter.c_str(), "/usr/bin/env");
    assert_string_equal(python.interpreted.c_str(), "python3 -u");
    assert_false(read_image("#!\n").is_known());
    assert_false(read_image("echo").is_known());
    assert_false(read_image("").is_known());
}

// Nothing is read past the end, whatever the numbers in it say; a sanitizer would tell.
void damaged_programs(void **)
{
    const std::string whole = make({kLoad, {PT_NOTE, note("GNU", 3, "12345") + note("Go", 4, "an id")}, kLoader});
    for (std::size_t size = 0; size < whole.size(); ++size)
        read_image(std::string(whole, 0, size));
    for (std::size_t at = SELFMAG; at < whole.size(); ++at)
        for (const char byte : {'\x00', '\x7f', '\xff'}) {
            std::string other = whole;
            other[at] = byte;
            read_image(other);
        }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(own_program), cmocka_unit_test(made_programs),    cmocka_unit_test(go_programs),
        cmocka_unit_test(scripts),     cmocka_unit_test(damaged_programs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
