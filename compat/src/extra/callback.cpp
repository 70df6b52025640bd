// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/extra/calls.hpp"

namespace vma::extra {

int register_recv_callback(int, vma_recv_callback_t, void *)
{
    static constinit std::atomic<bool> said{false};
    return unsupported(said, "register_recv_callback", "not yet");
}

} // namespace vma::extra
