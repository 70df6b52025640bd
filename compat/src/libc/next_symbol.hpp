// SPDX-License-Identifier: BSD-2-Clause
// What dlsym(RTLD_NEXT, ...) finds, for many names when a program starts: with hashes that the compiler has made, and
// without the locks and the error handling of a call each. Those calls were a third of what the library cost a program
// that has no socket.
#pragma once

#include <cstddef>
#include <cstdint>

struct link_map;

namespace vma::libc {

// Of DT_GNU_HASH: Bernstein's, 32 bits.
constexpr std::uint32_t symbol_hash(const char *name)
{
    std::uint32_t hash = 5381;
    for (; *name != '\0'; ++name)
        hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
}

// The objects behind this library, in the order in which they were loaded, which for those of a program's start is the
// order of the search. Good while nobody loads or unloads: at start. One thread's.
class NextSymbols
{
public:
    NextSymbols();

    // nullptr: not found here, which says nothing: dlsym() has to be asked.
    void *find(const char *name, std::uint32_t hash) const;

private:
    friend bool is_of_an_allocator(const void *code);
    static constexpr std::size_t kMost = 64; // a program with more asks dlsym()
    struct Object {
        std::uintptr_t base;
        const std::uint32_t *hashes; // the table's header
        const char *names;
        const void *symbols;
        const std::uint16_t *versions;

        bool read(const link_map &map);
        void *find(const char *name, std::uint32_t hash, bool &there) const;
    };

    Object objects_[kMost];
    std::size_t count_ = 0;
};

// Whether the object that has this code is a library, not libc, with a malloc() of its own. Takes no lock: the loader's
// is held while a constructor runs, which may wait for the thread that asks here.
bool is_of_an_allocator(const void *code);

} // namespace vma::libc
