// SPDX-License-Identifier: BSD-2-Clause
// The format: glibc's elf/dl-lookup.c is its description, and binutils' of --hash-style=gnu. Which of several versions
// of a name is meant: the one that is not hidden, the default (the LSB's "Symbol Versioning").
#include "compat/src/libc/next_symbol.hpp"

#include <dlfcn.h>

#include <cstring>

#include "compat/src/libc/loaded.hpp"
#include "compat/src/libc/real.hpp"
#include "compat/src/libc/sections.hpp"

namespace vma::libc {

namespace {

constexpr const char *kKernels = "linux-vdso"; // in the list, not in the search
constexpr std::uint16_t kHiddenVersion = 0x8000;
constexpr unsigned kWordBits = sizeof(ElfW(Addr)) * 8;

// The header of DT_GNU_HASH; behind it the filter's words, then the buckets, then a word a symbol.
struct Header {
    std::uint32_t buckets;
    std::uint32_t first_symbol;
    std::uint32_t filter_words;
    std::uint32_t filter_shift;
};

const link_map *object_of(const void *first_byte)
{
    const auto base = reinterpret_cast<ElfW(Addr)>(first_byte);
    const link_map *map = _r_debug.r_map;
    while (map != nullptr && map->l_addr != base)
        map = map->l_next;
    return map;
}

bool is_ordinary(const ElfW(Sym) & symbol)
{
    return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
           ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
}

} // namespace

[[VMA_AT_STARTUP]] bool NextSymbols::Object::read(const link_map &map)
{
    base = map.l_addr;
    for (const ElfW(Dyn) *entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
        const ElfW(Addr) value = address_in(map, entry->d_un.d_ptr);
        if (entry->d_tag == DT_GNU_HASH)
            hashes = reinterpret_cast<const std::uint32_t *>(value);
        else if (entry->d_tag == DT_STRTAB)
            names = reinterpret_cast<const char *>(value);
        else if (entry->d_tag == DT_SYMTAB)
            symbols = reinterpret_cast<const void *>(value);
        else if (entry->d_tag == DT_VERSYM)
            versions = reinterpret_cast<const std::uint16_t *>(value);
    }
    return hashes != nullptr && names != nullptr && symbols != nullptr;
}

// `there`: it has one of that name, whatever it is.
[[VMA_AT_STARTUP]] void *NextSymbols::Object::find(const char *name, std::uint32_t hash, bool &there) const
{
    Header header;
    std::memcpy(&header, hashes, sizeof header);
    const auto *const filter = reinterpret_cast<const ElfW(Addr) *>(hashes + sizeof header / sizeof *hashes);
    const ElfW(Addr) word = filter[(hash / kWordBits) & (header.filter_words - 1)];
    if (((word >> (hash % kWordBits)) & (word >> ((hash >> header.filter_shift) % kWordBits)) & 1) == 0 ||
        header.buckets == 0)
        return nullptr;
    const auto *const buckets = reinterpret_cast<const std::uint32_t *>(filter + header.filter_words);
    const std::uint32_t *const chains = buckets + header.buckets;
    std::uint32_t index = buckets[hash % header.buckets];
    if (index < header.first_symbol)
        return nullptr;
    for (;; ++index) {
        const std::uint32_t other = chains[index - header.first_symbol];
        const auto &symbol = static_cast<const ElfW(Sym) *>(symbols)[index];
        if ((other | 1) == (hash | 1) && std::strcmp(names + symbol.st_name, name) == 0 &&
            (versions == nullptr || (versions[index] & kHiddenVersion) == 0) && symbol.st_shndx != SHN_UNDEF) {
            there = true;
            return is_ordinary(symbol) ? reinterpret_cast<void *>(base + symbol.st_value) : nullptr;
        }
        if ((other & 1) != 0)
            return nullptr;
    }
}

[[VMA_AT_STARTUP]] NextSymbols::NextSymbols()
{
    const link_map *map = object_of(__ehdr_start);
    if (map == nullptr)
        return;
    for (map = map->l_next; map != nullptr; map = map->l_next) {
        if (std::strncmp(map->l_name, kKernels, std::strlen(kKernels)) == 0)
            continue;
        Object object = {};
        if (count_ == kMost || !object.read(*map)) { // what can't be read may have any name
            count_ = 0;
            return;
        }
        objects_[count_++] = object;
    }
}

[[VMA_AT_STARTUP]] void *NextSymbols::find(const char *name, std::uint32_t hash) const
{
    for (std::size_t i = 0; i < count_; ++i) {
        bool there = false;
        void *const found = objects_[i].find(name, hash, there);
        if (there)
            return found;
    }
    return nullptr;
}

[[VMA_AT_STARTUP]] bool is_of_an_allocator(const void *code)
{
    const auto contains = [](const dl_find_object &object, const void *address) {
        return address >= object.dlfo_map_start && address < object.dlfo_map_end;
    };
    dl_find_object found = {};
    if (real._dl_find_object(const_cast<void *>(code), &found) != 0 || found.dlfo_link_map->l_name[0] == '\0' ||
        contains(found, reinterpret_cast<const void *>(real.__register_atfork)))
        return false;
    NextSymbols::Object object = {};
    bool there = false;
    return object.read(*found.dlfo_link_map) && object.find("malloc", symbol_hash("malloc"), there) != nullptr;
}

} // namespace vma::libc
