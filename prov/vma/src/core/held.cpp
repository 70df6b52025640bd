// SPDX-License-Identifier: BSD-2-Clause
#include "core/held.hpp"

namespace vma::core {

constinit HeldPlace g_held_place;

} // namespace vma::core
