// SPDX-License-Identifier: BSD-2-Clause
#include "util/vma/elf.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "util/vma/files.hpp"

namespace vma::command {

namespace {

constexpr std::uint32_t kGoBuildId = 4; // the type of the note that Go's linker writes, whose owner is "Go"

// Numbers of either order, from places that are checked: 0 where there is nothing.
class Bytes
{
public:
    Bytes(std::string_view all, bool big_endian) : all_(all), big_endian_(big_endian) {}

    std::uint64_t number(std::uint64_t at, std::size_t size) const
    {
        if (!has(at, size))
            return 0;
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t place = big_endian_ ? i : size - 1 - i;
            value = (value << 8) | static_cast<unsigned char>(all_[at + place]);
        }
        return value;
    }
    std::string_view part(std::uint64_t at, std::uint64_t size) const
    {
        return has(at, size) ? all_.substr(at, size) : std::string_view();
    }

private:
    bool has(std::uint64_t at, std::uint64_t size) const { return at <= all_.size() && size <= all_.size() - at; }

    std::string_view all_;
    bool big_endian_;
};

struct Segment {
    std::uint64_t type;
    std::uint64_t offset;
    std::uint64_t size;
};

Segment segment_at(const Bytes &b, std::uint64_t at, bool wide)
{
    if (wide)
        return {b.number(at, 4), b.number(at + offsetof(Elf64_Phdr, p_offset), 8),
                b.number(at + offsetof(Elf64_Phdr, p_filesz), 8)};
    return {b.number(at, 4), b.number(at + offsetof(Elf32_Phdr, p_offset), 4),
            b.number(at + offsetof(Elf32_Phdr, p_filesz), 4)};
}

constexpr std::uint64_t aligned(std::uint64_t size)
{
    return (size + 3) & ~std::uint64_t{3};
}

bool has_go_note(const Bytes &b, const Segment &s)
{
    constexpr std::uint64_t kHeader = 12; // three words: sizes of owner and contents, type
    for (std::uint64_t at = s.offset; at + kHeader <= s.offset + s.size && !b.part(at, kHeader).empty();) {
        const std::uint64_t owner = b.number(at, 4);
        const std::string_view name = b.part(at + kHeader, owner);
        if (b.number(at + 8, 4) == kGoBuildId && name.substr(0, name.find('\0')) == "Go")
            return true;
        at += kHeader + aligned(owner) + aligned(b.number(at + 4, 4));
    }
    return false;
}

void read_segments(const Bytes &b, Image &image)
{
    const bool wide = image.bits == 64;
    const std::uint64_t first =
        wide ? b.number(offsetof(Elf64_Ehdr, e_phoff), 8) : b.number(offsetof(Elf32_Ehdr, e_phoff), 4);
    const std::uint64_t count =
        wide ? b.number(offsetof(Elf64_Ehdr, e_phnum), 2) : b.number(offsetof(Elf32_Ehdr, e_phnum), 2);
    const std::uint64_t each = wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
    image.is_static = true;
    for (std::uint64_t i = 0; i < count && first < kHeadSize; ++i) {
        const Segment s = segment_at(b, first + i * each, wide);
        if (s.type == PT_INTERP) {
            image.is_static = false;
            const std::string_view name = b.part(s.offset, s.size);
            image.loader = name.substr(0, name.find('\0'));
        }
        if (s.type == PT_NOTE && has_go_note(b, s))
            image.is_go = true;
    }
}

void read_script(std::string_view head, Image &image)
{
    const std::string_view line = trim(head.substr(2, head.find('\n') - 2).substr(0, 4096));
    const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    image.interpreter = line.substr(0, end);
    image.interpreted = trim(line.substr(end));
}

} // namespace

Image read_image(std::string_view head)
{
    Image image;
    if (head.starts_with("#!")) {
        read_script(head, image);
        return image;
    }
    if (!head.starts_with(ELFMAG) || head.size() < sizeof(Elf32_Ehdr))
        return image;
    image.is_elf = true;
    image.bits = head[EI_CLASS] == ELFCLASS64 ? 64 : 32;
    image.big_endian = head[EI_DATA] == ELFDATA2MSB;
    const Bytes bytes(head, image.big_endian);
    image.machine = static_cast<unsigned>(bytes.number(offsetof(Elf64_Ehdr, e_machine), 2));
    read_segments(bytes, image);
    return image;
}

} // namespace vma::command
