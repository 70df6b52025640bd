// SPDX-License-Identifier: BSD-2-Clause
// System V segments that go with the last process that has them, however that ends: they are marked for removal as soon
// as one is attached. The kernel has no call that makes such a one at once, so a process can be killed before it has
// marked its own. Until then a segment has a key that all processes of the directory know, so that the next of them
// finds it, and there is never more than one of a directory.
#pragma once

#include <cstddef>

namespace vma::sock {

// Zeros, attached. `id` is what others attach by, while somebody is. nullptr: errno says why.
void *make_fleeting(const char *directory, std::size_t size, int &id);

// What a process has left that was killed while it made one. A living one that is just making its own makes another.
void remove_half_made(const char *directory);

} // namespace vma::sock
