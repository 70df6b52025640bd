// SPDX-License-Identifier: BSD-2-Clause
// What sockets tell the extra API, and ask it.
#include "compat/src/table/observers.hpp"

#include "compat/src/extra/extra.hpp"

namespace vma::sock {

constinit const ExtraApi kExtraApi = {
    .set_option = extra::set_option,
    .get_option = extra::get_option,
    .ask_ring_logic = extra::ask_ring_logic,
    .receive_screened = extra::receive_screened,
    .screen = extra::screen,
    .has_ready = extra::has_ready,
    .bytes_ready = extra::bytes_ready,
    .end = extra::end,
    .after_fork_in_child = extra::after_fork_in_child,
};

} // namespace vma::sock
