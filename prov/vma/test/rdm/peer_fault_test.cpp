// SPDX-License-Identifier: BSD-2-Clause
// Reliable datagrams as the peer of an owner, where somebody is gone or something can't be had: each entry ends once,
// and what is refused is so when it is opened or bound.
#include "prov/vma/test/rdm/owner.hpp"

#include <csignal>

using namespace vma;
using namespace vma::test;

namespace {

constexpr std::uint64_t kTag = 7;
using Age = Age23;

// A child that sends messages without end to whom it is told, until it is killed.
struct Sender {
    pid_t pid = -1;
    int socket = -1;

    Sender(const sockaddr_in &to, std::size_t length, bool single_copy)
    {
        int pair[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        pid = child([&] {
            Rdm me({.single_copy = single_copy});
            const fi_addr_t place = me.insert(to);
            const std::vector<std::byte> bytes = pattern(length, 1);
            const auto call = [&] { return fi_tsend(me.ep, bytes.data(), length, nullptr, place, kTag, nullptr); };
            REQUIRE(again(call, {me.cq}) == 0);
            REQUIRE(write(pair[1], "x", 1) == 1);
            for (;;)
                pause();
        });
        close(pair[1]);
        socket = pair[0];
    }
    Sender(const Sender &) = delete;
    Sender &operator=(const Sender &) = delete;
    ~Sender() { close(socket); }

    template <typename Peer> void wait_until_sent(Peer &receiver) const
    {
        char word = 0;
        while (recv(socket, &word, 1, MSG_DONTWAIT) != 1) {
            REQUIRE(errno == EAGAIN);
            receiver.progress();
        }
        receiver.wait_for_unexpected(1);
    }
    void kill_it() const
    {
        REQUIRE(kill(pid, SIGKILL) == 0);
        REQUIRE(waitpid(pid, nullptr, 0) == pid);
    }
};

// Its long message is half here, or was offered, and waits with the owner or has its receive already.
void killed_sender(void **)
{
    for (const bool single_copy : {true, false}) {
        for (const bool received_before : {true, false}) {
            if (single_copy && received_before)
                continue; // it would be whole
            OwnDirectory directory;
            PeerRdm<Age> b({.single_copy = single_copy});
            const Sender sender(b.name, 4 << 20, single_copy);
            sender.wait_until_sent(b);
            std::vector<std::byte> got(4 << 20);
            const auto receive = [&] {
                b.owner.receive(true, {{got.data(), got.size()}}, FI_ADDR_UNSPEC, kTag, 0, &got);
            };
            if (received_before)
                receive();
            sender.kill_it();
            if (!received_before) {
                for (int i = 0; i < 10000; ++i) // that many, and the end has been seen
                    b.progress();
                REQUIRE(b.owner.unexpected.size() == 1);
                receive();
            }
            const Entry end = b.next();
            REQUIRE(end.error.err == FI_ECONNRESET && end.error.op_context == &got && end.error.tag == kTag);
            REQUIRE(b.owner.live == 0);
        }
    }
}

void killed_sender_of_what_is_discarded(void **)
{
    for (const bool single_copy : {true, false}) {
        OwnDirectory directory;
        PeerRdm<Age> b({.single_copy = single_copy});
        const Sender sender(b.name, 4 << 20, single_copy);
        sender.wait_until_sent(b);
        sender.kill_it();
        for (int i = 0; i < 10000; ++i)
            b.progress();
        b.owner.discard();
        REQUIRE(b.owner.live == 0 && b.nothing());
    }
}

// What was whole is received though its sender is gone.
void message_of_one_that_is_gone(void **)
{
    OwnDirectory directory;
    PeerRdm<Age> b;
    const std::size_t length = 5000;
    const Sender sender(b.name, length, true);
    sender.wait_until_sent(b);
    sender.kill_it();
    for (int i = 0; i < 10000; ++i)
        b.progress();
    std::vector<std::byte> got(length);
    b.owner.receive(true, {{got.data(), length}}, FI_ADDR_UNSPEC, kTag, 0, &got);
    REQUIRE(b.next().error.err == 0 && got == pattern(length, 1));
}

// The owner hears of sends that fail.
void killed_receiver(void **)
{
    OwnDirectory directory;
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    sockaddr_in name{};
    const pid_t pid = child([&] {
        Rdm me;
        REQUIRE(write(pair[1], &me.name, sizeof me.name) == sizeof me.name);
        for (;;) // it answers greetings, and receives nothing
            REQUIRE(fi_cq_read(me.cq, nullptr, 0) <= 0);
    });
    REQUIRE(read(pair[0], &name, sizeof name) == sizeof name);
    PeerRdm<Age> a;
    const fi_addr_t to = a.insert(name, 1);
    const std::vector<std::byte> bytes = pattern(1 << 20, 1);
    const auto call = [&] { return fi_tsend(a.ep, bytes.data(), bytes.size(), nullptr, to, kTag, &a); };
    REQUIRE(again(call, {a.cq}) == 0);
    REQUIRE(a.nothing());
    REQUIRE(kill(pid, SIGKILL) == 0 && waitpid(pid, nullptr, 0) == pid);
    const Entry end = a.next();
    REQUIRE(end.error.err == FI_ECONNRESET && end.error.op_context == &a);
    close(pair[0]);
    close(pair[1]);
}

// Whatever waits, or is half here in its receive, goes back to the owner when the endpoint is closed: ~Owner() counts.
void closed_with_messages(void **)
{
    OwnDirectory directory;
    Rdm a({.single_copy = false});
    std::vector<std::byte> got(4 << 20);
    {
        PeerRdm<Age> b({.single_copy = false});
        const fi_addr_t to_b = a.insert(b.name);
        const auto call = [&] { return fi_tsend(a.ep, got.data(), got.size(), nullptr, to_b, kTag, nullptr); };
        REQUIRE(fi_tinject(a.ep, "x", 1, to_b, 1) == 0);
        REQUIRE(again(call, {a.cq, b.cq}) == 0);
        b.wait_for_unexpected(2);
        std::vector<std::byte> into(got.size());
        b.owner.receive(true, {{into.data(), into.size()}}, FI_ADDR_UNSPEC, kTag, 0, nullptr);
        REQUIRE(b.owner.live == 2 && b.owner.unexpected.size() == 1);
    }
}

// Its entries go to the owner's queue.
void refuses_reads(fid_cq *cq)
{
    fi_cq_tagged_entry entry{};
    fi_cq_err_entry error{};
    REQUIRE(fi_cq_readfrom(cq, &entry, 1, nullptr) == -FI_ENOSYS);
    REQUIRE(fi_cq_readerr(cq, &error, 0) == -FI_ENOSYS && fi_cq_sread(cq, &entry, 1, nullptr, 0) == -FI_ENOSYS);
}

void refuses_receives(fid_ep *ep, fid_ep *srx, char *into)
{
    REQUIRE(fi_recv(ep, into, 1, nullptr, FI_ADDR_UNSPEC, into) == -FI_ENOSYS);
    REQUIRE(fi_trecv(ep, into, 1, nullptr, FI_ADDR_UNSPEC, 1, 0, into) == -FI_ENOSYS);
    REQUIRE(fi_cancel(&ep->fid, into) == -FI_ENOSYS && fi_recv(srx, into, 1, nullptr, 0, into) == -FI_ENOSYS);
}

// Receives of ours, completions of the owner's; and receives where the owner matches, with a queue of ours.
void one_of_the_two(void **)
{
    OwnDirectory directory;
    const ofi::InfoPtr hints = ofi::make_info(ofi::kRdmOffer);
    hints->caps |= FI_PEER;
    for (const bool owners_queue : {true, false}) {
        Owner<Age17> owner; // by fi_srx_context(), of the libfabric that we are made with
        const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, hints.get());
        fid_fabric *fabric = nullptr;
        fid_domain *domain = nullptr;
        fid_cq *cq = nullptr;
        fid_av *av = nullptr;
        fid_ep *srx = nullptr;
        fid_ep *ep = nullptr;
        REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
        REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        attr.flags = owners_queue ? FI_PEER : 0;
        ofi::peer::CqContext queue_context{sizeof queue_context, &owner.queue.cq};
        REQUIRE(fi_cq_open(domain, &attr, &cq, &queue_context) == 0);
        fi_av_attr av_attr{};
        REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0 && fi_endpoint(domain, info.get(), &ep, nullptr) == 0);
        REQUIRE(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &av->fid, 0) == 0);
        fi_rx_attr rx_attr{};
        rx_attr.op_flags = FI_PEER;
        ofi::peer::SrxContext context{sizeof context, reinterpret_cast<ofi::peer::Srx *>(&owner.srx)};
        REQUIRE(fi_srx_context(domain, &rx_attr, &srx, &context) == 0);
        if (!owners_queue)
            REQUIRE(fi_ep_bind(ep, &srx->fid, 0) == 0 && fi_ep_bind(ep, &srx->fid, 0) == -FI_EINVAL);
        REQUIRE(fi_enable(ep) == 0 && fi_enable(srx) == 0);
        REQUIRE(fi_ep_bind(ep, &srx->fid, 0) == -FI_EOPBADSTATE);
        sockaddr_in name{};
        std::size_t length = sizeof name;
        REQUIRE(fi_getname(&ep->fid, &name, &length) == 0);
        {
            Rdm a;
            const fi_addr_t to = a.insert(name);
            char got[4] = {};
            if (owners_queue)
                REQUIRE(fi_trecv(ep, got, sizeof got, nullptr, FI_ADDR_UNSPEC, kTag, 0, got) == 0);
            else
                owner.receive(true, {{got, sizeof got}}, FI_ADDR_UNSPEC, kTag, 0, got);
            REQUIRE(fi_tinject(a.ep, "abc", 3, to, kTag) == 0);
            Entry end;
            while (owners_queue ? !owner.queue.take(end) : !read_entry(cq, end))
                REQUIRE(fi_cq_read(cq, nullptr, 0) <= 0);
            REQUIRE(end.told.op_context == got && end.told.tag == kTag && std::memcmp(got, "abc", 3) == 0);
            if (owners_queue) {
                refuses_reads(cq);
                REQUIRE(fi_recv(ep, got, 1, nullptr, FI_ADDR_UNSPEC, got) == 0 && fi_cancel(&ep->fid, got) == 0);
                REQUIRE(owner.queue.take(end) && end.error.err == FI_ECANCELED);
            } else {
                refuses_receives(ep, srx, got);
            }
        }
        for (fid *one : {&ep->fid, &srx->fid, &av->fid, &cq->fid, &domain->fid, &fabric->fid})
            REQUIRE(fi_close(one) == 0);
    }
}

struct Counts {
    ofi::peer::Cntr cntr{};
    ofi::peer::CntrOwnerOps ops{
        sizeof ops,
        [](ofi::peer::Cntr *one) { ++static_cast<Counts *>(one->id.context)->value; },
        [](ofi::peer::Cntr *one) { ++static_cast<Counts *>(one->id.context)->errors; },
    };
    int value = 0;
    int errors = 0;
};

void counters_of_the_owner(void **)
{
    OwnDirectory directory;
    Rdm a; // whose endpoint is of no use here
    const ofi::InfoPtr hints = ofi::make_info(ofi::kRdmOffer);
    hints->domain_attr->caps |= FI_PEER; // where it may stand too
    const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, hints.get());
    REQUIRE((info->caps & FI_PEER) != 0 && (info->domain_attr->caps & FI_PEER) != 0);
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_cntr *cntr = nullptr;
    fid_av *av = nullptr;
    fid_ep *ep = nullptr;
    REQUIRE(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr) == 0);
    REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
    Counts counts;
    counts.cntr.id.context = &counts;
    counts.cntr.owner_ops = &counts.ops;
    ofi::peer::CntrContext context{sizeof context, &counts.cntr};
    fi_cntr_attr attr{};
    attr.flags = FI_PEER;
    REQUIRE(fi_cntr_open(domain, &attr, &cntr, nullptr) == -FI_EINVAL);
    REQUIRE(fi_cntr_open(domain, &attr, &cntr, &context) == 0);
    fi_av_attr av_attr{};
    REQUIRE(fi_av_open(domain, &av_attr, &av, nullptr) == 0 && fi_endpoint(domain, info.get(), &ep, nullptr) == 0);
    REQUIRE(fi_ep_bind(ep, &cntr->fid, FI_SEND | FI_RECV) == 0 && fi_ep_bind(ep, &av->fid, 0) == 0);
    REQUIRE(fi_enable(ep) == 0);
    sockaddr_in name{};
    std::size_t length = sizeof name;
    REQUIRE(fi_getname(&ep->fid, &name, &length) == 0);
    const fi_addr_t to = a.insert(name);
    char got[4] = {};
    for (int i = 1; i <= 3; ++i) {
        REQUIRE(fi_recv(ep, got, i == 3 ? 1 : sizeof got, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(fi_inject(a.ep, "abc", 3, to) == 0);
        while (counts.value + counts.errors != i)
            REQUIRE(fi_cntr_read(cntr) == 0);
    }
    REQUIRE(counts.value == 2 && counts.errors == 1);
    REQUIRE(fi_cntr_set(cntr, 1) == -FI_ENOSYS && fi_cntr_wait(cntr, 1, 0) == -FI_ENOSYS);
    for (fid *one : {&ep->fid, &cntr->fid, &av->fid, &domain->fid, &fabric->fid})
        REQUIRE(fi_close(one) == 0);
}

// In a domain that was not asked for it, or without what an owner gives.
void what_is_refused(void **)
{
    OwnDirectory directory;
    Rdm plain;
    PeerRdm<Age> b;
    fid_cq *cq = nullptr;
    fid_cntr *cntr = nullptr;
    fid_ep *srx = nullptr;
    fid_av *av = nullptr;
    fid_eq *eq = nullptr;
    fi_cq_attr cq_attr{};
    cq_attr.flags = FI_PEER;
    fi_rx_attr rx_attr{};
    rx_attr.op_flags = FI_PEER;
    fi_cntr_attr cntr_attr{};
    cntr_attr.flags = FI_PEER;
    fi_av_attr av_attr{};
    av_attr.flags = FI_PEER;
    fi_eq_attr eq_attr{};
    eq_attr.flags = FI_PEER;
    ofi::peer::CqContext queue_context{sizeof queue_context, &b.owner.queue.cq};
    ofi::peer::SrxContext context{sizeof context, reinterpret_cast<ofi::peer::Srx *>(&b.owner.srx)};
    REQUIRE(fi_cq_open(plain.domain, &cq_attr, &cq, &queue_context) == -FI_EINVAL);
    REQUIRE(fi_srx_context(plain.domain, &rx_attr, &srx, &context) == -FI_EINVAL);
    REQUIRE(fi_cntr_open(plain.domain, &cntr_attr, &cntr, &queue_context) == -FI_EINVAL);
    REQUIRE(fi_cq_open(b.domain, &cq_attr, &cq, nullptr) == -FI_EINVAL);
    REQUIRE(fi_srx_context(b.domain, &rx_attr, &srx, nullptr) == -FI_EINVAL);
    REQUIRE(fi_av_open(b.domain, &av_attr, &av, nullptr) == -FI_EINVAL);
    REQUIRE(fi_eq_open(b.fabric, &eq_attr, &eq, nullptr) == -FI_EINVAL);
    queue_context.size = 8;
    context.size = 8;
    REQUIRE(fi_cq_open(b.domain, &cq_attr, &cq, &queue_context) == -FI_EINVAL);
    REQUIRE(fi_srx_context(b.domain, &rx_attr, &srx, &context) == -FI_EINVAL);
    // Connections and datagrams know no owner.
    for (const ofi::Offer *offer : {&ofi::kMsgOffer, &ofi::kDgramOffer}) {
        const ofi::InfoPtr hints = ofi::make_info(*offer);
        const ofi::InfoPtr info = ask("127.0.0.1", "0", FI_SOURCE, hints.get());
        fid_ep *ep = nullptr;
        REQUIRE(fi_endpoint(b.domain, info.get(), &ep, nullptr) == 0);
        REQUIRE(fi_ep_bind(ep, &b.cq->fid, FI_TRANSMIT) == -FI_EINVAL);
        REQUIRE(fi_ep_bind(ep, &b.srx->fid, 0) == -FI_EINVAL);
        REQUIRE(fi_close(&ep->fid) == 0);
        hints->caps |= FI_PEER;
        int error = 0;
        ask(nullptr, nullptr, 0, hints.get(), &error);
        REQUIRE(error == -FI_ENODATA);
    }
}

// FI_AV_USER_ID of a vector as a whole: numbers are told one by one.
void numbers_of_a_vector(void **)
{
    struct Ops { // of libfabric 1.20 and later
        std::size_t size;
        void *others[9];
        int (*set_user_id)(fid_av *, fi_addr_t, fi_addr_t, std::uint64_t);
    };
    OwnDirectory directory;
    PeerRdm<Age> b;
    fi_av_attr attr{};
    attr.flags = FI_AV_USER_ID;
    fid_av *av = nullptr;
    REQUIRE(fi_av_open(b.domain, &attr, &av, nullptr) == 0);
    const ofi::Av &vector = *reinterpret_cast<ofi::Av *>(av);
    ofi::Address address;
    REQUIRE(address.assign(&b.name, sizeof b.name));
    fi_addr_t place = 9;
    REQUIRE(fi_av_insert(av, &b.name, 1, &place, FI_AV_USER_ID, nullptr) == -FI_EINVAL);
    REQUIRE(fi_av_insert(av, &b.name, 1, &place, 0, nullptr) == 1);
    REQUIRE(vector.place_of(address) == FI_ADDR_NOTAVAIL);
    const auto *const ops = reinterpret_cast<const Ops *>(av->ops);
    REQUIRE(ops->size >= sizeof(Ops));
    REQUIRE(ops->set_user_id(av, place, 4711, 0) == 0 && vector.place_of(address) == 4711);
    REQUIRE(ops->set_user_id(av, place + 1, 4711, 0) == -FI_EINVAL);
    REQUIRE(ops->set_user_id(b.av, 0, 4711, 0) == -FI_EINVAL);
    REQUIRE(fi_av_insert(b.av, &b.name, 1, nullptr, FI_AV_USER_ID, nullptr) == -FI_EINVAL);
    REQUIRE(fi_close(&av->fid) == 0);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(killed_sender),
        cmocka_unit_test(killed_sender_of_what_is_discarded),
        cmocka_unit_test(message_of_one_that_is_gone),
        cmocka_unit_test(killed_receiver),
        cmocka_unit_test(closed_with_messages),
        cmocka_unit_test(one_of_the_two),
        cmocka_unit_test(counters_of_the_owner),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(numbers_of_a_vector),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
