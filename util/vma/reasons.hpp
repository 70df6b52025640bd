// SPDX-License-Identifier: BSD-2-Clause
// What to do about a reason why a socket is on the kernel (WHAT STAYS ON THE KERNEL of libvma(7)).
#pragma once

#include <string_view>

namespace vma::command {

// An imperative or a remark; "" of a reason that is not known.
const char *what_to_do(std::string_view reason);

} // namespace vma::command
