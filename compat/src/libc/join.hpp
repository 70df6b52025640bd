// SPDX-License-Identifier: BSD-2-Clause
// Texts in a row, for what each program does at start: printf() would cost it pages that it else does not touch.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace vma::libc {

// As snprintf(): cut to `size`, which is not 0, with a NUL; the length that all have.
std::size_t join(char *out, std::size_t size, std::initializer_list<std::string_view> texts);

} // namespace vma::libc
