// SPDX-License-Identifier: BSD-2-Clause
// Two libfabric programs over one FI_EP_MSG connection of the vma provider: connection data, reject, messages, RMA,
// errors, overload, the peer's end. One scenario a run; every deviation ends it with a message.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "fabtests/fabric/programs/fabric.hpp"
#include "fabtests/patience.hpp"
#include "fabtests/sockets/programs/pattern.hpp"

namespace {

using namespace fabtest;

constexpr std::size_t kLargest = 1 << 20;

std::string some_data(std::size_t len, std::uint64_t seed)
{
    std::string data(len, '\0');
    Pattern(seed).fill(0, data.data(), len);
    return data;
}

void expect(bool good, const char *what)
{
    if (!good)
        die("not so: %s", what);
}

void connection_data(Peer &peer, Waiting)
{
    for (const std::size_t len : {std::size_t{0}, std::size_t{1}, std::size_t{56}, std::size_t{256}}) {
        Fabric f(peer);
        const std::string said = f.connect(some_data(len, peer.server));
        expect(said == some_data(len, !peer.server), "the other side's connection data");
        peer.step();
    }
}

void reject(Peer &peer, Waiting)
{
    Fabric f(peer);
    alignas(fi_eq_cm_entry) unsigned char room[sizeof(fi_eq_cm_entry) + 256];
    auto *entry = reinterpret_cast<fi_eq_cm_entry *>(room);
    if (peer.server) {
        expect(f.next_event(entry, sizeof room) == FI_CONNREQ, "FI_CONNREQ");
        fi_must(fi_reject(f.pep, entry->info->handle, "no", 2), "fi_reject");
        fi_freeinfo(entry->info);
        peer.step();
        return;
    }
    f.open_endpoint(f.info);
    fi_must(fi_connect(f.ep, f.info->dest_addr, nullptr, 0), "fi_connect");
    std::uint32_t event = 0;
    expect(fi_eq_sread(f.eq, &event, entry, sizeof room, patience::milliseconds(), 0) == -FI_EAVAIL, "an error event");
    fi_eq_err_entry error{};
    char said[64] = {};
    error.err_data = said;
    error.err_data_size = sizeof said;
    fi_must(fi_eq_readerr(f.eq, &error, 0), "fi_eq_readerr");
    expect(error.err == FI_ECONNREFUSED, "FI_ECONNREFUSED");
    expect(error.fid == &f.ep->fid, "the endpoint's own event");
    expect(error.err_data_size == 2 && std::memcmp(said, "no", 2) == 0, "the reason given");
    peer.step();
}

void nobody_listens(Peer &peer, Waiting)
{
    {
        Fabric f(peer);
        if (peer.server) {
            fi_must(fi_close(&f.pep->fid), "fi_close");
            f.pep = nullptr;
        }
        peer.step();
        if (!peer.server) {
            f.open_endpoint(f.info);
            const int result = fi_connect(f.ep, f.info->dest_addr, nullptr, 0);
            if (result == 0) {
                fi_eq_cm_entry entry{};
                std::uint32_t event = 0;
                expect(fi_eq_sread(f.eq, &event, &entry, sizeof entry, patience::milliseconds(), 0) == -FI_EAVAIL,
                       "an error event");
                fi_eq_err_entry error{};
                fi_must(fi_eq_readerr(f.eq, &error, 0), "fi_eq_readerr");
                expect(error.err == FI_ECONNREFUSED, "FI_ECONNREFUSED");
            } else {
                expect(result == -FI_ECONNREFUSED, "-FI_ECONNREFUSED");
            }
        }
        peer.step();
    }
}

// One of five forms, in turn. `silent`: there will be no completion.
ssize_t send_in_form(Fabric &f, unsigned number, std::string &buf, std::size_t len, void *context, bool &silent)
{
    iovec parts[2] = {{buf.data(), len / 3}, {buf.data() + len / 3, len - len / 3}};
    switch (number % 5) {
    case 0:
        return fi_sendv(f.ep, parts, nullptr, 2, 0, context);
    case 1:
        return fi_senddata(f.ep, buf.data(), len, nullptr, number, 0, context);
    case 2: {
        silent = len <= f.info->tx_attr->inject_size;
        if (!silent)
            return fi_send(f.ep, buf.data(), len, nullptr, 0, context);
        const ssize_t n = fi_inject(f.ep, buf.data(), len, 0);
        if (n == 0)
            std::memset(buf.data(), 0xee, len); // ours again
        return n;
    }
    case 3: {
        fi_msg msg{};
        msg.msg_iov = parts;
        msg.iov_count = 2;
        msg.context = context;
        return fi_sendmsg(f.ep, &msg, FI_COMPLETION);
    }
    default:
        return fi_send(f.ep, buf.data(), len, nullptr, 0, context);
    }
}

// A window of receives and sends of random sizes and forms, both ways at once.
void messages(Peer &peer, Waiting waiting)
{
    constexpr unsigned kCount = 2000, kWindow = 16;
    Fabric f(peer, waiting);
    f.connect("");
    Random out_sizes(100 + peer.server), in_sizes(100 + !peer.server);
    const Pattern out(200 + peer.server), in(200 + !peer.server);
    std::vector<std::string> out_room(kWindow, std::string(kLargest, '\0')), in_room = out_room;
    bool busy[kWindow] = {}; // buffers of sends that are not complete
    unsigned sent = 0, send_done = 0, posted = 0, received = 0;
    const auto tag = [](bool send, unsigned index) {
        return reinterpret_cast<void *>(static_cast<std::uintptr_t>(index * 2 + send + 4));
    };
    while (received < kCount || send_done < kCount) {
        for (; posted < kCount && posted < received + kWindow; ++posted) {
            const ssize_t n = fi_recv(f.ep, in_room[posted % kWindow].data(), kLargest, nullptr, 0, tag(false, posted));
            if (n == -FI_EAGAIN)
                break;
            fi_must(n, "fi_recv");
        }
        for (; sent < kCount && !busy[sent % kWindow]; ++sent) {
            Random at = out_sizes;
            const std::size_t len = at.below(20) == 0 ? 0 : std::min(at.size(21), kLargest);
            std::string &buf = out_room[sent % kWindow];
            out.fill(sent * kLargest, buf.data(), len);
            bool silent = false;
            const ssize_t n = send_in_form(f, sent, buf, len, tag(true, sent), silent);
            if (n == -FI_EAGAIN)
                break;
            fi_must(n, "sending");
            out_sizes = at;
            send_done += silent;
            busy[sent % kWindow] = !silent;
        }
        if (received == kCount && send_done == kCount)
            break;
        const fi_cq_data_entry entry = f.completion();
        const auto value = reinterpret_cast<std::uintptr_t>(entry.op_context) - 4;
        if (value % 2 == 1) {
            expect((entry.flags & FI_SEND) != 0, "a send's completion");
            busy[value / 2 % kWindow] = false;
            ++send_done;
            continue;
        }
        expect((entry.flags & FI_RECV) != 0 && value / 2 == received, "messages come in order");
        const std::size_t len = in_sizes.below(20) == 0 ? 0 : std::min(in_sizes.size(21), kLargest);
        expect(entry.len == len, "the length");
        expect(in.check(received * kLargest, in_room[received % kWindow].data(), len) == len, "the data");
        const bool with_data = received % 5 == 1;
        expect(((entry.flags & FI_REMOTE_CQ_DATA) != 0) == with_data, "the flag of CQ data");
        expect(!with_data || entry.data == received, "the CQ data");
        ++received;
    }
    peer.step();
}

std::uint64_t sum_of(const std::string &bytes)
{
    std::uint64_t sum = 0;
    for (const char c : bytes)
        sum = sum * 31 + static_cast<unsigned char>(c);
    return sum;
}

// Every fourth access reads, every fourth brings `data`. `silent`: there will be no completion.
ssize_t access_in_form(Fabric &f, unsigned number, std::string &buf, std::size_t len, std::uint64_t to,
                       std::uint64_t key, std::uint64_t data, bool &silent)
{
    iovec parts[2] = {{buf.data(), len / 2}, {buf.data() + len / 2, len - len / 2}};
    switch (number % 4) {
    case 0:
        return fi_writedata(f.ep, buf.data(), len, nullptr, data, 0, to, key, &f);
    case 1:
        return fi_writev(f.ep, parts, nullptr, 2, 0, to, key, &f);
    case 2:
        silent = len <= f.info->tx_attr->inject_size;
        return silent ? fi_inject_write(f.ep, buf.data(), len, 0, to, key)
                      : fi_write(f.ep, buf.data(), len, nullptr, 0, to, key, &f);
    default:
        return fi_read(f.ep, buf.data(), len, nullptr, 0, to, key, &f);
    }
}

// The client writes and reads the server's memory at random, keeps its own copy, and both compare at the end.
void remote_memory(Peer &peer, Waiting waiting)
{
    constexpr std::size_t kRegion = 4 << 20;
    constexpr unsigned kCount = 1500;
    Fabric f(peer, waiting);
    f.connect("");
    std::string memory(kRegion, 'm');
    fid_mr *mr = nullptr;
    fi_must(fi_mr_reg(f.domain, memory.data(), kRegion, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0, 77, 0,
                      &mr, nullptr),
            "fi_mr_reg");
    const bool by_address = (f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    if (peer.server) {
        peer.tell(by_address ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0);
        peer.tell(fi_mr_key(mr));
        unsigned with_data = 0;
        const std::uint64_t wanted = f.progress_until_told([&](const fi_cq_data_entry &entry) {
            expect((entry.flags & FI_REMOTE_CQ_DATA) != 0 && entry.data == 1000 + with_data++,
                   "writedata's data, in order");
        });
        expect(with_data == wanted, "as many as there were");
        peer.tell(sum_of(memory));
    } else {
        const std::uint64_t base = peer.hear(), key = peer.hear();
        Random random(5);
        std::string copy(kRegion, 'm'), buf(kLargest, '\0');
        unsigned with_data = 0;
        for (unsigned i = 0; i < kCount; ++i) {
            const std::size_t len = std::min(random.size(21), kLargest), at = random.below(kRegion - len + 1);
            const bool reads = i % 4 == 3;
            ssize_t n;
            bool silent = false;
            if (!reads) {
                Pattern(i).fill(0, buf.data(), len);
                std::memcpy(copy.data() + at, buf.data(), len);
            }
            do
                n = access_in_form(f, i, buf, len, base + at, key, 1000 + with_data, silent);
            while (n == -FI_EAGAIN);
            fi_must(n, "RMA");
            with_data += !reads && i % 4 == 0;
            if (!silent)
                expect((f.completion().flags & (reads ? FI_READ : FI_WRITE)) != 0, "the completion's flags");
            if (reads)
                expect(std::memcmp(buf.data(), copy.data() + at, len) == 0, "what was read is what was written");
        }
        fi_must(fi_read(f.ep, buf.data(), 1, nullptr, 0, base, key, &f), "fi_read"); // behind all writes
        f.completion();
        peer.tell(with_data);
        expect(peer.hear() == sum_of(copy), "the server's memory at the end");
    }
    fi_must(fi_close(&mr->fid), "fi_close(mr)");
    peer.step();
}

// Accesses outside of what was granted fail at the initiator and change nothing.
void forbidden_memory(Peer &peer, Waiting)
{
    std::string memory(8192, 'm'), read_only(4096, 'r');
    for (unsigned kind = 0; kind < 5; ++kind) {
        Fabric f(peer);
        f.connect("");
        fid_mr *mr = nullptr, *reads = nullptr;
        fi_must(
            fi_mr_reg(f.domain, memory.data() + 2048, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr),
            "fi_mr_reg");
        fi_must(fi_mr_reg(f.domain, read_only.data(), 4096, FI_REMOTE_READ, 0, 2, 0, &reads, nullptr), "fi_mr_reg");
        const bool by_address = (f.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
        if (peer.server) {
            peer.tell(by_address ? reinterpret_cast<std::uintptr_t>(memory.data() + 2048) : 0);
            peer.tell(fi_mr_key(mr));
            peer.tell(fi_mr_key(reads));
            peer.tell(by_address ? reinterpret_cast<std::uintptr_t>(read_only.data()) : 0);
            f.progress_until_told([](const fi_cq_data_entry &) {});
        } else {
            const std::uint64_t base = peer.hear(), key = peer.hear(), read_key = peer.hear(), read_base = peer.hear();
            char buf[8192];
            std::memset(buf, 'x', sizeof buf);
            ssize_t n = 0;
            switch (kind) {
            case 0:
                n = fi_write(f.ep, buf, 16, nullptr, 0, base, key + 1000, &f); // no such key
                break;
            case 1:
                n = fi_write(f.ep, buf, 4097, nullptr, 0, base, key, &f); // too long
                break;
            case 2:
                n = fi_read(f.ep, buf, 16, nullptr, 0, base + 4090, key, &f); // over the end
                break;
            case 3:
                n = fi_write(f.ep, buf, 16, nullptr, 0, base - 8, key, &f); // before the start
                break;
            default:
                n = fi_write(f.ep, buf, 16, nullptr, 0, read_base, read_key, &f); // not granted
            }
            if (n == 0)
                expect(f.error_completion().err != 0, "an error");
            peer.tell(0);
        }
        expect(memory == std::string(8192, 'm') && read_only == std::string(4096, 'r'), "nothing was changed");
        fi_must(fi_close(&mr->fid), "fi_close(mr)");
        fi_must(fi_close(&reads->fid), "fi_close(mr)");
        peer.step();
    }
}

// A receive that is too small is an error at the receiver; the connection goes on or ends, but nothing is overwritten.
void short_receive(Peer &peer, Waiting)
{
    Fabric f(peer);
    f.connect("");
    char buf[256];
    std::memset(buf, 'x', sizeof buf);
    if (peer.server) {
        fi_must(fi_recv(f.ep, buf, 16, nullptr, 0, buf), "fi_recv");
        peer.step();
        const fi_cq_err_entry error = f.error_completion();
        expect(error.err == FI_ETRUNC, "FI_ETRUNC");
        expect(error.op_context == buf, "the receive's context");
        expect(std::all_of(buf + 16, buf + sizeof buf, [](char c) { return c == 'x'; }), "nothing behind the buffer");
        peer.step();
    } else {
        peer.step();
        fi_must(fi_send(f.ep, buf, 200, nullptr, 0, buf), "fi_send");
        peer.step();
    }
}

// More sends than the peer receives: -FI_EAGAIN, then all come, in order.
void overload(Peer &peer, Waiting waiting)
{
    Fabric f(peer, waiting);
    f.connect("");
    constexpr unsigned kCount = 3000;
    if (peer.server) {
        peer.step(); // the client has met its bound
        for (unsigned i = 0; i < kCount; ++i) {
            std::uint32_t value = ~0U;
            fi_must(fi_recv(f.ep, &value, sizeof value, nullptr, 0, &value), "fi_recv");
            expect(f.completion().op_context == &value && value == i, "in order");
        }
    } else {
        static std::uint32_t values[kCount];
        unsigned done = 0, sent = 0;
        bool full = false;
        for (; done < kCount;) {
            ssize_t n = -FI_EAGAIN;
            if (sent < kCount) {
                values[sent] = sent;
                n = fi_send(f.ep, &values[sent], sizeof values[sent], nullptr, 0, &values[sent]);
            }
            if (n == 0) {
                ++sent;
                continue;
            }
            expect(n == -FI_EAGAIN, "-FI_EAGAIN when full");
            if (!full) {
                full = true;
                peer.step();
            }
            f.completion();
            ++done;
        }
        expect(full, "a bound was met");
    }
    peer.step();
}

// The peer closes: FI_SHUTDOWN, and what was posted comes back cancelled.
void peer_ends(Peer &peer, Waiting)
{
    Fabric f(peer);
    f.connect("");
    if (!peer.server) {
        peer.step();
        fi_must(fi_shutdown(f.ep, 0), "fi_shutdown");
        peer.step();
        return;
    }
    char buf[16];
    fi_must(fi_recv(f.ep, buf, sizeof buf, nullptr, 0, buf), "fi_recv");
    peer.step();
    fi_eq_cm_entry entry{};
    expect(f.next_event(&entry, sizeof entry) == FI_SHUTDOWN, "FI_SHUTDOWN");
    expect(entry.fid == &f.ep->fid, "of this endpoint");
    expect(f.error_completion().err == FI_ECANCELED, "FI_ECANCELED");
    expect(fi_send(f.ep, buf, 1, nullptr, 0, nullptr) != 0 || f.error_completion().err != 0, "no more sends");
    peer.step();
}

// The harness kills the client: as peer_ends, and not a word that was not sent.
void peer_is_killed(Peer &peer, Waiting waiting)
{
    Fabric f(peer, waiting);
    f.connect("");
    static char buf[65536];
    if (!peer.server) {
        std::printf("streaming\n");
        std::fflush(stdout);
        for (;;) {
            const ssize_t n = fi_send(f.ep, buf, sizeof buf, nullptr, 0, nullptr);
            if (n == -FI_EAGAIN)
                f.completion();
            else
                fi_must(n, "fi_send");
        }
    }
    bool ended = false;
    unsigned long got = 0;
    while (!ended) {
        fi_must(fi_recv(f.ep, buf, sizeof buf, nullptr, 0, buf), "fi_recv");
        fi_cq_data_entry entry{};
        ssize_t n;
        while ((n = fi_cq_read(f.cq, &entry, 1)) == -FI_EAGAIN) {
            std::uint32_t event = 0;
            fi_eq_cm_entry cm{};
            if (fi_eq_read(f.eq, &event, &cm, sizeof cm, 0) > 0 && event == FI_SHUTDOWN) {
                // Cancelled, or an I/O error when the message was half way.
                expect(f.error_completion().err != 0, "an error");
                ended = true;
                break;
            }
        }
        if (n == 1)
            expect(entry.len == sizeof buf, "whole messages");
        else if (n == -FI_EAVAIL)
            ended = f.error_completion().err != 0;
        got += n == 1;
    }
    std::printf("%lu messages, then the end\n", got);
}

struct Scenario {
    const char *name;
    void (*run)(Peer &, Waiting);
};

constexpr Scenario kScenarios[] = {
    {"connection_data", connection_data},
    {"reject", reject},
    {"nobody_listens", nobody_listens},
    {"messages", messages},
    {"remote_memory", remote_memory},
    {"forbidden_memory", forbidden_memory},
    {"short_receive", short_receive},
    {"overload", overload},
    {"peer_ends", peer_ends},
    {"peer_is_killed", peer_is_killed},
};

} // namespace

// msg_endpoint server|client --control FD SCENARIO spin|sread|fd
int main(int argc, char **argv)
{
    Peer peer = parse_peer(&argc, argv);
    const std::string wanted = argc == 3 ? argv[1] : "", how = argc == 3 ? argv[2] : "";
    for (const Scenario &s : kScenarios) {
        if (wanted == s.name) {
            s.run(peer, how == "sread" ? Waiting::kSread : how == "fd" ? Waiting::kFd : Waiting::kSpin);
            std::printf("done\n");
            return 0;
        }
    }
    die("usage: msg_endpoint server|client --control FD SCENARIO spin|sread|fd");
}
