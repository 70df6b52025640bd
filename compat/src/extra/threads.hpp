// SPDX-License-Identifier: BSD-2-Clause
// What thread_offload() says. A thread's rule stays when the thread ends, and is the next one's that gets its
// pthread_t, as in libvma.
#pragma once

#include <pthread.h>

#include "compat/src/base/lock.hpp"

namespace vma::extra {

bool set_thread_rule(bool offload, pthread_t thread); // false: there are 1024 already
sock::Mutex &state_lock();

} // namespace vma::extra
