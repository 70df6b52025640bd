// SPDX-License-Identifier: BSD-2-Clause
// See fabric.hpp.
#include "fabtests/fabric/programs/fabric.hpp"
#include "fabtests/patience.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace fabtest {

namespace {

const int kPatienceMs = patience::milliseconds();

std::int64_t now_ms()
{
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

} // namespace

Fabric::Fabric(const Peer &who, Waiting how, std::size_t queue) : peer(who), waiting(how)
{
    std::string service;
    if (!peer.server)
        service = std::to_string(port = static_cast<std::uint16_t>(peer.hear()));
    fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
    const char *provider = std::getenv("FABTEST_PROVIDER"); // another one, to prove the tests themselves
    hints->fabric_attr->prov_name = strdup(provider != nullptr ? provider : "vma");
    fi_must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", service.empty() ? nullptr : service.c_str(),
                       peer.server ? FI_SOURCE : 0, hints, &info),
            "fi_getinfo");
    fi_freeinfo(hints);
    fi_must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_UNSPEC;
    fi_must(fi_eq_open(fabric, &eq_attr, &eq, nullptr), "fi_eq_open");
    fi_must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_cq_attr cq_attr{};
    cq_attr.size = queue;
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = waiting == Waiting::kSpin ? FI_WAIT_NONE : waiting == Waiting::kFd ? FI_WAIT_FD : FI_WAIT_UNSPEC;
    fi_must(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
    if (!peer.server)
        return;
    fi_must(fi_passive_ep(fabric, info, &pep, nullptr), "fi_passive_ep");
    fi_must(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
    fi_must(fi_listen(pep), "fi_listen");
    sockaddr_in in{};
    std::size_t len = sizeof in;
    fi_must(fi_getname(&pep->fid, &in, &len), "fi_getname");
    peer.tell(port = ntohs(in.sin_port));
}

Fabric::~Fabric()
{
    const auto close = [](fid *f, const char *what) {
        if (f != nullptr)
            fi_must(fi_close(f), what);
    };
    close(ep != nullptr ? &ep->fid : nullptr, "fi_close(endpoint)");
    close(pep != nullptr ? &pep->fid : nullptr, "fi_close(passive endpoint)");
    close(&cq->fid, "fi_close(completion queue)");
    close(&domain->fid, "fi_close(domain)");
    close(&eq->fid, "fi_close(event queue)");
    close(&fabric->fid, "fi_close(fabric)");
    fi_freeinfo(info);
}

void Fabric::open_endpoint(fi_info *with)
{
    fi_must(fi_endpoint(domain, with, &ep, nullptr), "fi_endpoint");
    fi_must(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind(eq)");
    fi_must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind(cq)");
    fi_must(fi_enable(ep), "fi_enable");
}

std::uint32_t Fabric::next_event(fi_eq_cm_entry *entry, std::size_t len, ssize_t *got)
{
    std::uint32_t event = 0;
    const ssize_t n = fi_eq_sread(eq, &event, entry, len, kPatienceMs, 0);
    if (n == -FI_EAVAIL) {
        fi_eq_err_entry error{};
        fi_must(fi_eq_readerr(eq, &error, 0), "fi_eq_readerr");
        die("error event: %s", fi_strerror(error.err));
    }
    fi_must(n, "fi_eq_sread");
    if (got != nullptr)
        *got = n;
    return event;
}

std::string Fabric::connect(const std::string &data)
{
    alignas(fi_eq_cm_entry) unsigned char room[sizeof(fi_eq_cm_entry) + 256];
    auto *entry = reinterpret_cast<fi_eq_cm_entry *>(room);
    ssize_t len = 0;
    std::string said;
    if (peer.server) {
        if (next_event(entry, sizeof room, &len) != FI_CONNREQ)
            die("no FI_CONNREQ");
        said.assign(reinterpret_cast<char *>(entry->data), static_cast<std::size_t>(len) - sizeof *entry);
        fi_info *request = entry->info;
        open_endpoint(request);
        fi_must(fi_accept(ep, data.data(), data.size()), "fi_accept");
        fi_freeinfo(request);
    } else {
        open_endpoint(info);
        fi_must(fi_connect(ep, info->dest_addr, data.data(), data.size()), "fi_connect");
    }
    if (next_event(entry, sizeof room, &len) != FI_CONNECTED)
        die("no FI_CONNECTED");
    if (!peer.server)
        said.assign(reinterpret_cast<char *>(entry->data), static_cast<std::size_t>(len) - sizeof *entry);
    return said;
}

ssize_t Fabric::read_queue(fi_cq_data_entry &entry)
{
    const std::int64_t end = now_ms() + kPatienceMs;
    for (;;) {
        ssize_t n = fi_cq_read(cq, &entry, 1);
        if (n != -FI_EAGAIN)
            return n;
        if (now_ms() > end)
            die("no completion comes");
        if (waiting == Waiting::kSread) {
            n = fi_cq_sread(cq, &entry, 1, nullptr, kPatienceMs);
            if (n != -FI_EAGAIN)
                return n;
        } else if (waiting == Waiting::kFd) {
            fid *fids[] = {&cq->fid};
            if (fi_trywait(fabric, fids, 1) != 0)
                continue;
            int fd = -1;
            fi_must(fi_control(&cq->fid, FI_GETWAIT, &fd), "FI_GETWAIT");
            pollfd p{fd, POLLIN, 0};
            must(::poll(&p, 1, kPatienceMs), "poll");
        } else {
            ::sched_yield();
        }
    }
}

fi_cq_data_entry Fabric::completion()
{
    fi_cq_data_entry entry{};
    const ssize_t n = read_queue(entry);
    if (n == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_must(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
        die("error completion: %s", fi_strerror(error.err));
    }
    fi_must(n, "fi_cq_read");
    return entry;
}

fi_cq_err_entry Fabric::error_completion()
{
    fi_cq_data_entry entry{};
    const ssize_t n = read_queue(entry);
    if (n != -FI_EAVAIL)
        die("a completion instead of an error: %zd", n);
    fi_cq_err_entry error{};
    fi_must(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
    return error;
}

} // namespace fabtest
