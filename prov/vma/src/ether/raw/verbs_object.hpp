// SPDX-License-Identifier: BSD-2-Clause
// An object of libibverbs that goes with its owner; in a forked child it is the parent's, and nothing is done.
#pragma once

#include <cstdint>
#include <memory>

#include "core/fd.hpp"
#include "verbs/table.hpp"

namespace vma::ether {

template <typename Object> struct VerbsDeleter {
    int (*destroy)(Object *) = nullptr;
    std::uint32_t generation = core::fork_generation();

    void operator()(Object *object) const noexcept
    {
        if (generation == core::fork_generation())
            static_cast<void>(destroy(object));
    }
};

template <typename Object> using VerbsObject = std::unique_ptr<Object, VerbsDeleter<Object>>;

// What a function of the table gave, with the function that takes it back; nullptr makes it empty.
template <typename Object> VerbsObject<Object> own(Object *object, int (*destroy)(Object *)) noexcept
{
    return VerbsObject<Object>(object, {destroy});
}

} // namespace vma::ether
