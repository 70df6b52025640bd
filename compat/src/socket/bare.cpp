// SPDX-License-Identifier: BSD-2-Clause
// The open calls of a thread, innermost last. One that lies deeper in the stack than a call that begins now was left by a
// jump; those of a thread that ends were left by its cancellation.
#include "compat/src/socket/bare.hpp"

#include <errno.h>
#include <pthread.h>

#include <cstdint>

#include "compat/src/libc/signals.hpp"

namespace vma::sock {

namespace {

struct BareCall {
    Socket *socket;
    bool receives;
    std::uintptr_t stack;
};

constexpr unsigned kMostNested = 4; // calls in handlers of handlers; more are only counted in the socket

struct BareCalls {
    unsigned count;
    bool registered; // to be ended with the thread
    BareCall calls[kMostNested];
};

[[gnu::tls_model("initial-exec")]] thread_local constinit BareCalls t_calls = {};

void end_receive(Socket &s)
{
    s.bare_receivers.fetch_sub(1, std::memory_order_seq_cst);
    if (s.ready_due.load(std::memory_order_seq_cst)) {
        LockGuard guard(s.rx_lock);
        try_ready(s);
    }
}

void end_innermost()
{
    const BareCall call = t_calls.calls[--t_calls.count];
    if (call.receives)
        end_receive(*call.socket);
    else
        call.socket->bare_senders.fetch_sub(1, std::memory_order_seq_cst);
}

void end_thread(void *)
{
    while (t_calls.count != 0)
        end_innermost();
    t_calls.registered = false;
}

void end_with_thread()
{
    static const pthread_key_t key = [] {
        pthread_key_t made = 0;
        ::pthread_key_create(&made, end_thread);
        return made;
    }();
    t_calls.registered = true;
    ::pthread_setspecific(key, &t_calls);
}

[[gnu::noinline]] void begin(Socket &s, bool receives)
{
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (!t_calls.registered) [[unlikely]]
        end_with_thread();
    while (t_calls.count != 0 && t_calls.calls[t_calls.count - 1].stack <= here && !libc::on_alternate_stack())
        end_innermost();
    if (t_calls.count < kMostNested)
        t_calls.calls[t_calls.count++] = {&s, receives, here};
}

// Those further in were left by a jump that ended in a handler of ours' call: they go with it.
void end(const Socket &s, bool receives)
{
    for (unsigned i = t_calls.count; i-- > 0;)
        if (t_calls.calls[i].socket == &s && t_calls.calls[i].receives == receives) {
            while (t_calls.count > i + 1)
                end_innermost();
            t_calls.count = i;
            return;
        }
}

} // namespace

BareReceive::BareReceive(Socket &s) : s_(s)
{
    s.bare_receivers.fetch_add(1, std::memory_order_seq_cst);
    begin(s, true);
}

BareReceive::~BareReceive()
{
    const int saved = errno;
    end(s_, true);
    end_receive(s_);
    errno = saved;
}

BareSend::BareSend(Socket &s) : s_(s)
{
    s.bare_senders.fetch_add(1, std::memory_order_seq_cst);
    begin(s, false);
}

BareSend::~BareSend()
{
    end(s_, false);
    s_.bare_senders.fetch_sub(1, std::memory_order_seq_cst);
}

void recount_bare_calls()
{
    for (unsigned i = 0; i < t_calls.count; ++i) {
        Socket &s = *t_calls.calls[i].socket;
        (t_calls.calls[i].receives ? s.bare_receivers : s.bare_senders).fetch_add(1, std::memory_order_relaxed);
    }
}

} // namespace vma::sock
