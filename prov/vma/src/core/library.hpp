// SPDX-License-Identifier: BSD-2-Clause
// A library that is opened when the first of its functions is needed: the provider loads on a machine without it, and a
// program that doesn't need it never pays for it. Its functions stand in a table, which a list of them makes:
//     #define VMA_FOO_FUNCTIONS(X) X(member, symbol) ...
//     struct FooTable { VMA_FOO_FUNCTIONS(VMA_LIBRARY_MEMBER) };
//     const core::Library library("libfoo.so.1", "no foo");
//     FooTable table{};
//     const bool is_whole = true VMA_FOO_FUNCTIONS(VMA_LIBRARY_FIND);
#pragma once

#define VMA_LIBRARY_MEMBER(member, symbol) decltype(&::symbol) member;
#define VMA_LIBRARY_FIND(member, symbol) &&library.find(#symbol, table.member)

namespace vma::core {

class Library
{
public:
    // Opens it. Where it is not installed or too old there is one line in the log, which begins with `loss`: what that
    // means. It is never closed: what a library leaves in a program's threads and exit handlers must not lose its code.
    Library(const char *name, const char *loss) noexcept;

    // False, and the function as it was, where there is none.
    template <typename Function> bool find(const char *symbol, Function &function) const noexcept
    {
        void *const found = address(symbol);
        if (found != nullptr)
            function = reinterpret_cast<Function>(found);
        return found != nullptr;
    }

private:
    void *address(const char *symbol) const noexcept;

    const char *name_;
    const char *loss_;
    void *handle_;
};

} // namespace vma::core
