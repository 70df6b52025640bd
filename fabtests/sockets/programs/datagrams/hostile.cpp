// SPDX-License-Identifier: BSD-2-Clause
// A process of the same user that means ill: it reads the names of UDP sockets in the user's directory, sends them
// datagrams of its own making through the provider, and garbles names and the words that say that names have changed.
// It takes back what it made, so that whoever still talks can find each other again.
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_vma.h>
#include <sched.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "fabtests/fabric/programs/must.hpp"
#include "fabtests/sockets/programs/pattern.hpp"
#include "fabtests/sockets/programs/peer.hpp"

namespace {

using namespace fabtest;

constexpr std::size_t kLongest = 65507;
constexpr unsigned kPerTrick = 100; // datagrams while a name is garbled

// ---- the provider --------------------------------------------------------------------------------------------------

class Endpoint
{
public:
    Endpoint()
    {
        fi_info *hints = fi_allocinfo();
        hints->ep_attr->type = FI_EP_DGRAM;
        hints->caps = FI_MSG;
        hints->addr_format = FI_SOCKADDR_IN;
        hints->fabric_attr->prov_name = strdup("vma");
        fi_must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "0", FI_SOURCE, hints, &info_), "fi_getinfo");
        fi_freeinfo(hints);
        fi_must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        fi_must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
        fi_cq_attr cq{};
        cq.format = FI_CQ_FORMAT_DATA;
        fi_must(fi_cq_open(domain_, &cq, &cq_, nullptr), "fi_cq_open");
        fi_av_attr av{};
        av.type = FI_AV_TABLE;
        fi_must(fi_av_open(domain_, &av, &av_, nullptr), "fi_av_open");
        fi_must(fi_endpoint(domain_, info_, &ep_, nullptr), "fi_endpoint");
        fi_must(fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION), "fi_ep_bind");
        fi_must(fi_ep_bind(ep_, &av_->fid, 0), "fi_ep_bind");
        fi_must(fi_enable(ep_), "fi_enable");
    }
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;
    ~Endpoint()
    {
        for (fid *f : {&ep_->fid, &av_->fid, &cq_->fid, &domain_->fid, &fabric_->fid})
            fi_must(fi_close(f), "fi_close");
        fi_freeinfo(info_);
    }

    std::uint16_t port() const
    {
        sockaddr_in name{};
        std::size_t length = sizeof name;
        fi_must(fi_getname(&ep_->fid, &name, &length), "fi_getname");
        return ntohs(name.sin_port);
    }
    fi_addr_t insert(std::uint16_t port)
    {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port = htons(port);
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        if (fi_av_insert(av_, &name, 1, &place, 0, nullptr) != 1)
            die("fi_av_insert");
        return place;
    }
    // Again until there is room, which another processor makes. False: nobody has that port any more.
    bool send(fi_addr_t to, const std::string &bytes, bool with_data, std::uint64_t data)
    {
        iovec part = {const_cast<char *>(bytes.data()), bytes.size()};
        fi_msg message{};
        message.msg_iov = &part;
        message.iov_count = 1;
        message.addr = to;
        message.data = data;
        for (;;) {
            const ssize_t n = fi_sendmsg(ep_, &message, FI_VMA_TELL_DROP | (with_data ? FI_REMOTE_CQ_DATA : 0));
            if (n != -FI_EAGAIN)
                return n == 0;
            fi_cq_read(cq_, nullptr, 0);
            ::sched_yield();
        }
    }

private:
    fi_info *info_ = nullptr;
    fid_fabric *fabric_ = nullptr;
    fid_domain *domain_ = nullptr;
    fid_cq *cq_ = nullptr;
    fid_av *av_ = nullptr;
    fid_ep *ep_ = nullptr;
};

// ---- whom it finds -------------------------------------------------------------------------------------------------

struct Target {
    std::string name; // in the directory
    std::string text; // what it says
    unsigned port = 0;
    std::uint32_t index = 0;
    std::uint32_t cookie = 0;
    fi_addr_t endpoint = FI_ADDR_NOTAVAIL;
};

std::string read_link(const std::string &path)
{
    char text[256];
    const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
    return std::string(text, length > 0 ? static_cast<std::size_t>(length) : 0);
}

std::uint64_t own_space() // of process numbers
{
    struct stat st = {};
    return ::stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

std::vector<Target> find_targets(const std::string &directory, Endpoint &endpoint)
{
    std::vector<Target> found;
    for (const auto &entry : std::filesystem::directory_iterator(directory)) {
        Target t;
        t.name = entry.path().filename();
        t.text = read_link(entry.path());
        int process = 0;
        std::uint64_t space = 0;
        if (t.name.starts_with("u-") && std::sscanf(t.text.c_str(), "2.%d@%" SCNx64 ".%u.%" SCNu32 ".%" SCNx32,
                                                    &process, &space, &t.port, &t.index, &t.cookie) == 5) {
            t.endpoint = endpoint.insert(static_cast<std::uint16_t>(t.port));
            found.push_back(t);
        }
    }
    return found;
}

// ---- what it does --------------------------------------------------------------------------------------------------

class Enemy
{
public:
    Enemy(const char *directory, std::uint64_t seed)
        : directory_(directory), random_(seed), targets_(find_targets(directory, endpoint_))
    {
        if (targets_.size() < 2)
            die("%zu names of sockets in %s: none to attack", targets_.size(), directory);
        attach_words();
    }

    void attack(unsigned datagrams)
    {
        for (unsigned i = 0; i < datagrams; ++i) {
            if (i % kPerTrick == 0) {
                take_back();
                do_trick();
            }
            scribble_words();
            send_one(targets_[random_.below(targets_.size())]);
        }
        take_back();
        std::printf("attacked %zu, sent %u, nobody there %u, tricks %u\n", targets_.size(), datagrams, nobody_,
                    tricks_);
    }

private:
    void attach_words();
    void scribble_words();
    void do_trick();
    void put_link(const std::string &name, const std::string &text);
    void take_back();
    void send_one(const Target &target);
    std::uint64_t make_data(const Target &target);
    std::string make_bytes(bool v6);
    std::string random_text(std::size_t length);

    std::string directory_;
    Random random_;
    Endpoint endpoint_;
    std::vector<Target> targets_;
    std::vector<std::string> made_;
    std::uint32_t *words_ = nullptr; // that change with the names
    std::size_t word_count_ = 0;
    unsigned nobody_ = 0, tricks_ = 0;
};

// The page behind "generation-NAMESPACE.NUMBER": 16 bytes say that it is the right one, the rest changes.
void Enemy::attach_words()
{
    int id = -1;
    shmid_ds about{};
    for (const auto &entry : std::filesystem::directory_iterator(directory_)) {
        if (entry.path().filename().string().starts_with("generation-"))
            std::sscanf(read_link(entry.path().string()).c_str(), "shm.%d.", &id);
    }
    if (id < 0 || ::shmctl(id, IPC_STAT, &about) != 0)
        die("no words to scribble on in %s", directory_.c_str());
    void *const memory = ::shmat(id, nullptr, 0);
    if (memory == reinterpret_cast<void *>(-1))
        die("shmat");
    words_ = static_cast<std::uint32_t *>(memory) + 4;
    word_count_ = about.shm_segsz / sizeof *words_ - 4;
}

void Enemy::scribble_words()
{
    if (random_.below(16) == 0)
        __atomic_store_n(&words_[random_.below(word_count_)], static_cast<std::uint32_t>(random_.next()),
                         __ATOMIC_RELAXED);
}

std::string Enemy::random_text(std::size_t length)
{
    std::string text(length, 'x');
    for (char &c : text)
        c = static_cast<char>(1 + random_.below(255));
    return text;
}

void Enemy::put_link(const std::string &name, const std::string &text)
{
    const std::string path = directory_ + "/" + name;
    ::unlink(path.c_str());
    if (::symlink(text.c_str(), path.c_str()) == 0)
        made_.push_back(path);
}

// Each lasts until the next.
void Enemy::do_trick()
{
    const Target &target = targets_[random_.below(targets_.size())];
    const std::string wish = "w" + target.name.substr(1);
    char text[128];
    ++tricks_;
    switch (random_.below(8)) {
    case 0:
        return put_link(target.name, random_text(1 + random_.below(1000)));
    case 1: // to this process
        std::snprintf(text, sizeof text, "2.%d@%" PRIx64 ".%u.0.1", ::getpid(), own_space(), endpoint_.port());
        return put_link(target.name, text);
    case 2: // numbers that are none of a socket
        std::snprintf(text, sizeof text, "2.%llu@%" PRIx64 ".%llu.%llu.%llx",
                      random_.next() >> random_.below(64) | 0ULL, own_space(),
                      random_.next() >> random_.below(64) | 0ULL, random_.next() >> random_.below(64) | 0ULL,
                      random_.next() | 0ULL);
        return put_link(target.name, text);
    case 3: // another process than the right one
        std::snprintf(text, sizeof text, "2.%d@%" PRIx64 ".%u.%u.%x", ::getpid(), own_space(), target.port,
                      target.index, target.cookie);
        return put_link(target.name, text);
    case 4:
        return put_link(wish, random_text(1 + random_.below(1000)));
    case 5: { // that can't be unlinked
        const std::string path = directory_ + "/" + wish;
        ::unlink(path.c_str());
        if (::mkdir(path.c_str(), 0700) == 0)
            made_.push_back(path);
        return;
    }
    case 6: // names as long as a directory takes
        for (const char *kind : {"u-", "w-", "o-"})
            put_link(kind + std::string(random_.below(253), 'f'), random_text(1 + random_.below(1000)));
        return;
    default: // names of nobody
        for (unsigned i = 0; i < 10; ++i) {
            std::snprintf(text, sizeof text, "%c-%llx-%x", i % 2 == 0 ? 'u' : 'w', random_.next() | 0ULL, i);
            put_link(text, target.text);
        }
    }
}

// And every name is again what it was.
void Enemy::take_back()
{
    for (const std::string &path : made_)
        std::filesystem::remove(path);
    made_.clear();
    for (const Target &target : targets_)
        [[maybe_unused]] const int result = ::symlink(target.text.c_str(), (directory_ + "/" + target.name).c_str());
}

// Index and cookie of a socket, and flags above; most of them right.
std::uint64_t Enemy::make_data(const Target &target)
{
    const std::uint64_t right = target.cookie | static_cast<std::uint64_t>(target.index) << 32;
    switch (random_.below(8)) {
    case 0:
        return random_.next();
    case 1:
        return right ^ std::uint64_t{1} << random_.below(52);
    case 2:
        return (right | UINT64_C(0xfff00) << 32) | std::uint64_t{random_.below(4096)} << 52;
    default:
        return right | std::uint64_t{random_.below(8)} << 52;
    }
}

std::string Enemy::make_bytes(bool v6)
{
    const std::size_t limits[] = {60, 100, 2000, kLongest};
    std::string bytes(random_.below(limits[random_.below(std::size(limits))] + 1), '\0');
    for (std::size_t i = 0; i < bytes.size() && i < 64; ++i)
        bytes[i] = static_cast<char>(random_.next());
    // Half of the headers make sense but for something: port, TOS, TTL, interface, losses, and two addresses.
    const std::uint8_t head[12] = {0x12, 0x34, 0, 64, 1, 0, 0, 0, 0, 0, 0, 0};
    if (random_.below(2) == 0 && bytes.size() >= 44) {
        std::memcpy(bytes.data(), head, sizeof head);
        const std::uint8_t addresses[8] = {127, 0, 0, 1, 127, 0, 0, 1};
        if (!v6)
            std::memcpy(bytes.data() + sizeof head, addresses, sizeof addresses);
        if (random_.below(4) == 0)
            std::memset(bytes.data() + 8, 0xff, 4);
        bytes[random_.below(44)] = static_cast<char>(random_.next());
    }
    return bytes;
}

void Enemy::send_one(const Target &target)
{
    const std::uint64_t data = make_data(target);
    if (!endpoint_.send(target.endpoint, make_bytes((data >> 52 & 1) != 0), random_.below(32) != 0, data))
        ++nobody_;
}

} // namespace

// hostile DIRECTORY SEED DATAGRAMS
int main(int argc, char **argv)
{
    if (argc != 4)
        die("directory, seed, datagrams");
    Enemy(argv[1], std::strtoull(argv[2], nullptr, 0)).attack(static_cast<unsigned>(std::atoi(argv[3])));
    return 0;
}
