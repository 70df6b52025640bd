// SPDX-License-Identifier: BSD-2-Clause
// A connection (FI_EP_MSG) with FI_OPT_VMA_KEEPALIVE_TIMEOUT or FI_OPT_VMA_SEND_TIMEOUT, for a test that takes the link
// between its two hosts away. The client says when it works, what it hears of the end, and in which completion.
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fabtests/fabric/programs/must.hpp"
#include "fabtests/patience.hpp"
#include "rdma/fi_ext_vma.h"

namespace {

using namespace fabtest;

const int kPatience = patience::milliseconds(); // for what must come
constexpr int kGlance = 100;                    // ms
constexpr const char *kPort = "7471";

void say(const std::string &line)
{
    std::puts(line.c_str());
    std::fflush(stdout);
}

fi_info *find(const char *domain, const char *address, bool server)
{
    fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL;
    hints->domain_attr->name = ::strdup(domain);
    hints->fabric_attr->prov_name = ::strdup("vma");
    fi_info *info = nullptr;
    fi_must(fi_getinfo(FI_VERSION(1, 17), address, kPort, server ? FI_SOURCE : 0, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    return info;
}

struct Side {
    fi_info *info;
    fid_fabric *fabric = nullptr;
    fid_domain *domain = nullptr;
    fid_eq *eq = nullptr;
    fid_cq *cq = nullptr;
    fid_mr *mr = nullptr;
    fid_ep *ep = nullptr;
    char bytes[64] = {};

    explicit Side(fi_info *found) : info(found)
    {
        fi_must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        fi_eq_attr events{};
        events.wait_obj = FI_WAIT_UNSPEC;
        fi_must(fi_eq_open(fabric, &events, &eq, nullptr), "fi_eq_open");
        fi_must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        fi_cq_attr completions{};
        completions.format = FI_CQ_FORMAT_DATA;
        completions.wait_obj = FI_WAIT_UNSPEC;
        fi_must(fi_cq_open(domain, &completions, &cq, nullptr), "fi_cq_open");
        fi_must(fi_mr_reg(domain, bytes, sizeof bytes, FI_SEND | FI_RECV, 0, 0, 0, &mr, nullptr), "fi_mr_reg");
    }

    void open(fi_info *with)
    {
        fi_must(fi_endpoint(domain, with, &ep, nullptr), "fi_endpoint");
        fi_must(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind(eq)");
        fi_must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind(cq)");
        fi_must(fi_enable(ep), "fi_enable");
    }

    fi_eq_cm_entry wait_event(std::uint32_t wanted) const
    {
        fi_eq_cm_entry entry{};
        std::uint32_t kind = 0;
        fi_must(fi_eq_sread(eq, &kind, &entry, sizeof entry, kPatience, 0), "fi_eq_sread");
        if (kind != wanted)
            die("event %u instead of %u", kind, wanted);
        return entry;
    }

    void post_receive() { fi_must(fi_recv(ep, bytes, sizeof bytes, fi_mr_desc(mr), 0, nullptr), "fi_recv"); }
};

// Takes what comes until it hears of the end.
void serve(const char *domain, const char *address)
{
    Side side(find(domain, address, true));
    fid_pep *pep = nullptr;
    fi_must(fi_passive_ep(side.fabric, side.info, &pep, nullptr), "fi_passive_ep");
    fi_must(fi_pep_bind(pep, &side.eq->fid, 0), "fi_pep_bind");
    fi_must(fi_listen(pep), "fi_listen");
    fi_info *request = side.wait_event(FI_CONNREQ).info;
    side.open(request);
    for (int i = 0; i < 16; ++i)
        side.post_receive();
    fi_must(fi_accept(side.ep, nullptr, 0), "fi_accept");
    side.wait_event(FI_CONNECTED);
    for (;;) {
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_sread(side.cq, &entry, 1, nullptr, kGlance);
        std::uint32_t kind = 0;
        fi_eq_cm_entry event{};
        if (got == 1)
            side.post_receive();
        else if (got != -FI_EAGAIN || fi_eq_read(side.eq, &kind, &event, sizeof event, 0) > 0)
            return;
    }
}

void send_until_it_fails(Side &side)
{
    for (unsigned long complete = 0;; ++complete) {
        if (complete == 1)
            say("working");
        fi_must(fi_send(side.ep, side.bytes, sizeof side.bytes, fi_mr_desc(side.mr), 0, nullptr), "fi_send");
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_sread(side.cq, &entry, 1, nullptr, kPatience);
        if (got == -FI_EAVAIL)
            break;
        fi_must(got, "fi_cq_sread");
    }
    fi_cq_err_entry error{};
    fi_must(fi_cq_readerr(side.cq, &error, 0), "fi_cq_readerr");
    say(std::string("the send failed: ") + fi_strerror(error.err));
}

void ask(const char *domain, const char *address, bool sends, std::uint64_t us)
{
    Side side(find(domain, address, false));
    side.open(side.info);
    const int name = static_cast<int>(sends ? FI_OPT_VMA_SEND_TIMEOUT : FI_OPT_VMA_KEEPALIVE_TIMEOUT);
    fi_must(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, name, &us, sizeof us), "fi_setopt");
    fi_must(fi_connect(side.ep, side.info->dest_addr, nullptr, 0), "fi_connect");
    side.wait_event(FI_CONNECTED);
    if (sends)
        send_until_it_fails(side);
    else
        say("working");
    side.wait_event(FI_SHUTDOWN);
    say("FI_SHUTDOWN");
}

} // namespace

// timeouts DOMAIN ADDRESS server|keepalive|send [MICROSECONDS]
int main(int argc, char **argv)
{
    const std::string what = argc > 3 ? argv[3] : "";
    if (what == "server")
        serve(argv[1], argv[2]);
    else if (argc == 5 && (what == "keepalive" || what == "send"))
        ask(argv[1], argv[2], what == "send", std::strtoull(argv[4], nullptr, 10));
    else
        die("usage: %s DOMAIN ADDRESS server | keepalive MICROSECONDS | send MICROSECONDS", argv[0]);
}
