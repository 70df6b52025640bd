// SPDX-License-Identifier: BSD-2-Clause
// A program that ends while a thread of the library opens libvma-fi.so: what is opened comes on when exit() waits for
// it, or for nobody any more.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fabtests/sockets/programs/ends.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

constinit std::atomic<bool> g_opens{false};
constinit std::atomic<bool> g_ends{false};

} // namespace

extern "C" [[gnu::visibility("default")]] void *dlopen(const char *path, int mode) noexcept
{
    static const auto next = reinterpret_cast<decltype(&::dlopen)>(::dlsym(RTLD_NEXT, "dlopen"));
    if (path != nullptr && std::strstr(path, "libvma-fi") != nullptr) {
        g_opens.store(true);
        g_ends.wait(false);
        fabtest::await_waiting(::getpid());
    }
    return next(path, mode);
}

int main()
{
    const fabtest::Ends ends = fabtest::connected();
    while (!g_opens.load() && fabtest::offload_expected())
        fabtest::talk(ends, 1);
    // The last one is the first to be called.
    fabtest::must(std::atexit([] {
                      std::puts(g_opens.load() ? "ends while the provider is being opened" : "ends");
                      g_ends.store(true);
                      g_ends.notify_all();
                  }),
                  "atexit");
    return 0;
}
