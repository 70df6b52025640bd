// SPDX-License-Identifier: BSD-2-Clause
// Connections and datagrams in one domain, with one completion queue and one wait descriptor.
#include "prov/vma/test/local/dgram_pair.hpp"

#include <poll.h>

#include "prov/vma/test/fixture.hpp"

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::size_t kRegion = 4096;

// A fabric whose domain was opened for datagrams, and one endpoint of a connection in it.
struct Mixed : Net {
    fid_av *av = nullptr;
    fid_ep *stream = nullptr;
    ofi::InfoPtr dgram_info;

    Mixed()
    {
        const ofi::InfoPtr hints = ofi::make_info(ofi::kDgramOffer);
        dgram_info = ask("127.0.0.1", "0", FI_SOURCE, hints.get());
        REQUIRE(fi_domain(fabric, dgram_info.get(), &domain, nullptr) == 0);
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_DATA;
        attr.wait_obj = FI_WAIT_FD;
        REQUIRE(fi_cq_open(domain, &attr, &cq, nullptr) == 0);
        fi_av_attr av_attr{};
        REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0);
    }
    ~Mixed()
    {
        if (stream)
            REQUIRE(fi_close(&stream->fid) == 0);
        REQUIRE(fi_close(&av->fid) == 0);
    }
    fid_ep *open_stream(fi_info *model)
    {
        stream = endpoint(model, this);
        const std::size_t bytes = kRegion;
        REQUIRE(fi_setopt(&stream->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &bytes, sizeof bytes) ==
                0);
        return stream;
    }
    std::byte *region() const
    {
        fi_vma_region found{};
        std::size_t length = sizeof found;
        REQUIRE(fi_getopt(&stream->fid, FI_OPT_ENDPOINT, static_cast<int>(FI_OPT_VMA_REGION), &found, &length) == 0);
        return static_cast<std::byte *>(found.base);
    }
    fid_ep *open_datagrams(sockaddr_in &name) const
    {
        fid_ep *ep = nullptr;
        REQUIRE(fi_endpoint(domain, dgram_info.get(), &ep, nullptr) == 0);
        REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
        REQUIRE(fi_ep_bind(ep, &av->fid, 0) == 0);
        REQUIRE(fi_enable(ep) == 0);
        std::size_t length = sizeof name;
        REQUIRE(fi_getname(&ep->fid, &name, &length) == 0);
        return ep;
    }
    fi_addr_t insert(const sockaddr_in &address) const
    {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        REQUIRE(fi_av_insert(av, &address, 1, &place, 0, nullptr) == 1);
        return place;
    }
    // Sleeps on the descriptor until the queue has an entry.
    fi_cq_data_entry sleep_for_entry() const
    {
        int fd = -1;
        REQUIRE(fi_control(&cq->fid, FI_GETWAIT, &fd) == 0);
        fi_cq_data_entry entry{};
        fid *waits[] = {&cq->fid};
        for (;;) {
            const ssize_t got = fi_cq_read(cq, &entry, 1);
            if (got == 1)
                return entry;
            REQUIRE(got == -FI_EAGAIN);
            pollfd waiting{fd, POLLIN, 0};
            if (fi_trywait(fabric, waits, 1) == 0)
                REQUIRE(::poll(&waiting, 1, kPatience) == 1);
        }
    }
    // So that what comes next has to wake somebody.
    void arm() const
    {
        fid *waits[] = {&cq->fid};
        fi_cq_data_entry entry{};
        while (fi_trywait(fabric, waits, 1) != 0)
            REQUIRE(fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
    }
};

void connect_streams(Mixed &client, Mixed &server)
{
    ofi::Address address;
    fid_pep *pep = server.listen(address);
    REQUIRE(fi_connect(client.open_stream(nullptr), &address.v6, nullptr, 0) == 0);
    const Event request = server.wait();
    REQUIRE(request.event == FI_CONNREQ);
    REQUIRE(fi_accept(server.open_stream(request.info.get()), nullptr, 0) == 0);
    REQUIRE(server.wait().event == FI_CONNECTED && client.wait().event == FI_CONNECTED);
    REQUIRE(fi_close(&pep->fid) == 0);
}

void streams_work(Mixed &from, Mixed &to)
{
    to.arm();
    REQUIRE(fi_inject_writedata(from.stream, "region", 6, 77, 0, 100, FI_VMA_REGION_KEY) == 0);
    const fi_cq_data_entry written = to.sleep_for_entry();
    assert_ptr_equal(written.op_context, static_cast<Net *>(&to));
    assert_int_equal(written.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    assert_int_equal(written.data, 77);
    assert_memory_equal(to.region() + 100, "region", 6);
    std::vector<char> in(200'000);
    std::vector<char> out(in.size());
    Random(1).fill(out.data(), out.size());
    REQUIRE(fi_recv(to.stream, in.data(), in.size(), nullptr, 0, &in) == 0);
    to.arm();
    REQUIRE(fi_send(from.stream, out.data(), out.size(), nullptr, 0, &out) == 0);
    assert_ptr_equal(to.sleep_for_entry().op_context, &in);
    assert_memory_equal(in.data(), out.data(), in.size());
    assert_ptr_equal(from.sleep_for_entry().op_context, &out);
}

void datagrams_work(Mixed &to, fid_ep *ep, const sockaddr_in &name)
{
    Dgram stranger;
    const fi_addr_t there = stranger.insert(name);
    for (int i = 0; i < 3; ++i) {
        char got[8] = {};
        REQUIRE(fi_recv(ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, got) == 0);
        to.arm();
        REQUIRE(fi_inject(stranger.ep, "datagram", 8, there) == 0);
        while (to.sleep_for_entry().op_context != got) {
        }
        assert_memory_equal(got, "datagram", 8);
    }
}

// Datagrams are opened while the queue serves a connection, and both go on.
void both_in_one_queue(void **)
{
    OwnDirectory directory;
    Mixed a;
    Mixed b;
    connect_streams(a, b);
    streams_work(a, b);
    sockaddr_in name{};
    b.arm(); // somebody may be asleep by now
    fid_ep *const ep = b.open_datagrams(name);
    datagrams_work(b, ep, name);
    streams_work(a, b);
    streams_work(b, a);
    datagrams_work(b, ep, name);
    REQUIRE(fi_close(&ep->fid) == 0);
    streams_work(a, b);
}

// Both have something at once, many times: one read may return either, and in the end none is missing.
void both_at_once(void **)
{
    OwnDirectory directory;
    Mixed a;
    Mixed b;
    connect_streams(a, b);
    sockaddr_in name{};
    fid_ep *const ep = b.open_datagrams(name);
    sockaddr_in own{};
    fid_ep *const sender = a.open_datagrams(own);
    const fi_addr_t to = a.insert(name);
    std::uint64_t got[8] = {};
    for (std::uint64_t &place : got)
        REQUIRE(fi_recv(ep, &place, sizeof place, nullptr, FI_ADDR_UNSPEC, &place) == 0);
    std::uint64_t written = 0;
    std::uint64_t next = 0;
    constexpr std::uint64_t kRounds = 20000;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        REQUIRE(fi_inject(sender, &i, sizeof i, to) == 0);
        REQUIRE(fi_inject_writedata(a.stream, &i, sizeof i, i, 0, 0, FI_VMA_REGION_KEY) == 0);
        while (written <= i || next <= i) {
            fi_cq_data_entry entries[4] = {};
            const ssize_t count = fi_cq_read(b.cq, entries, 1 + i % 4);
            REQUIRE(count > 0 || count == -FI_EAGAIN);
            for (ssize_t at = 0; at < count; ++at) {
                if (entries[at].flags & FI_REMOTE_WRITE) {
                    REQUIRE(entries[at].data == written++);
                    continue;
                }
                auto *const place = static_cast<std::uint64_t *>(entries[at].op_context);
                REQUIRE(*place == next++ && fi_recv(ep, place, sizeof *place, nullptr, FI_ADDR_UNSPEC, place) == 0);
            }
        }
    }
    for (fid_ep *one : {ep, sender})
        REQUIRE(fi_close(&one->fid) == 0);
}

// The first read after a datagram to itself has it, and to another endpoint of the process.
void first_ones_come_with_the_next_read(void **)
{
    OwnDirectory directory;
    Mixed a;
    sockaddr_in names[2] = {};
    fid_ep *const eps[] = {a.open_datagrams(names[0]), a.open_datagrams(names[1])};
    char got[2][4] = {};
    for (int i = 0; i < 2; ++i) {
        REQUIRE(fi_recv(eps[i], got[i], sizeof got[i], nullptr, FI_ADDR_UNSPEC, got[i]) == 0);
        REQUIRE(fi_inject(eps[0], i ? "next" : "self", 4, a.insert(names[i])) == 0);
        fi_cq_data_entry entry{};
        assert_int_equal(fi_cq_read(a.cq, &entry, 1), 1);
        assert_ptr_equal(entry.op_context, got[i]);
        assert_memory_equal(got[i], i ? "next" : "self", 4);
    }
    for (fid_ep *ep : eps)
        REQUIRE(fi_close(&ep->fid) == 0);
}

// Endpoints for datagrams have taken the first bits of the doorbell, past what a queue has for connections at first.
void connections_after_many_datagram_endpoints(void **)
{
    OwnDirectory directory;
    Mixed a;
    Mixed b;
    std::vector<fid_ep *> eps(150);
    sockaddr_in name{};
    for (fid_ep *&ep : eps)
        ep = b.open_datagrams(name);
    connect_streams(a, b);
    streams_work(a, b);
    datagrams_work(b, eps.back(), name);
    streams_work(b, a);
    for (fid_ep *ep : eps)
        REQUIRE(fi_close(&ep->fid) == 0);
    streams_work(a, b);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(both_in_one_queue),
        cmocka_unit_test(both_at_once),
        cmocka_unit_test(first_ones_come_with_the_next_read),
        cmocka_unit_test(connections_after_many_datagram_endpoints),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
