// SPDX-License-Identifier: BSD-2-Clause
// io_uring_setup(), io_uring_enter() and io_uring_register() by syscall().
#pragma once

namespace vma::intercept {

// The result, with errno.
long set_up_uring(const long (&arguments)[6], const void *caller);
long enter_uring(const long (&arguments)[6]);
long register_with_uring(const long (&arguments)[6]);

} // namespace vma::intercept
