// SPDX-License-Identifier: BSD-2-Clause
// What tests of fast connections share: their parameters, connections that are fast, and how one sees that they are.
#pragma once

#include "prov/vma/test/verbs/pair.hpp"

#include "verbs/endpoint.hpp"

namespace vma::test {

inline constexpr PairSetup kSpins = {.wait = FI_WAIT_NONE};

// Variables of the environment for one test.
class Fast
{
public:
    explicit Fast(const char *connections = "8", const char *depth = "8", const char *size = "240")
    {
        ::setenv("FI_VMA_FAST_CONNECTIONS", connections, 1);
        ::setenv("FI_VMA_FAST_DEPTH", depth, 1);
        ::setenv("FI_VMA_FAST_SIZE", size, 1);
    }
    ~Fast()
    {
        for (const char *name : {"FI_VMA_FAST_CONNECTIONS", "FI_VMA_FAST_DEPTH", "FI_VMA_FAST_SIZE"})
            ::unsetenv(name);
    }
    Fast(const Fast &) = delete;
    Fast &operator=(const Fast &) = delete;
};

inline verbs::Fast *fast_of(fid_ep *ep)
{
    return verbs::Endpoint::from(ep).fast.get();
}

inline bool uses_ring(fid_ep *ep)
{
    const verbs::Fast &fast = *fast_of(ep);
    return fast.phase == verbs::Fast::Phase::ring && fast.sent >= fast.from;
}

inline void *tag(std::uint64_t number)
{
    return reinterpret_cast<void *>(number);
}

// One message over, from `a` to `b`, as a program does that waits for each.
inline void pass(RdmaSide &a, RdmaSide &b, Memory &out, Memory &in, std::size_t length)
{
    static unsigned seed = 0;
    out.fill(++seed);
    assert_int_equal(fi_recv(b.ep, in.bytes.data(), in.bytes.size(), in.desc(), 0, tag(seed)), 0);
    assert_int_equal(fi_send(a.ep, out.bytes.data(), length, out.desc(), 0, tag(seed)), 0);
    const fi_cq_data_entry received = entry_of(b.cq());
    assert_ptr_equal(received.op_context, tag(seed));
    assert_int_equal(received.flags, FI_RECV | FI_MSG);
    assert_int_equal(received.len, length);
    assert_memory_equal(in.bytes.data(), out.bytes.data(), length);
    const fi_cq_data_entry sent = entry_of(a.cq());
    assert_ptr_equal(sent.op_context, tag(seed));
    assert_int_equal(sent.flags, FI_SEND | FI_MSG);
}

inline void warm_up(RdmaSide &a, RdmaSide &b)
{
    Memory out(a.domain(), 64);
    Memory in(b.domain(), 64);
    for (int i = 0; i < 200 && !uses_ring(a.ep); ++i)
        pass(a, b, out, in, 64);
    assert_true(uses_ring(a.ep));
}

} // namespace vma::test
