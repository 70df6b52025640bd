// SPDX-License-Identifier: BSD-2-Clause
// EPOLL_CTL by an io_uring: what is refused, an entry that is handed over again, and batches of all kinds.
#pragma once

namespace fabtest {

void errors();
void again();
void batches();

} // namespace fabtest
