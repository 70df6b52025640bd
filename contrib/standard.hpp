// SPDX-License-Identifier: BSD-2-Clause
// The standard headers that most sources include: builds with --enable-precompiled compile them once (Makefile.am).
// No source relies on it, as the build that is installed goes without.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
