// SPDX-License-Identifier: BSD-2-Clause
#define _GNU_SOURCE
#include "contrib/bench/fabric_side.h"

#include <errno.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { kOperations = 2048, kName = 512 };

struct operation {
    struct fi_context2 space; // the provider's, and what a completion names
    struct operation *next;   // if free
    size_t size;              // of what is to be received
    enum kind kind;
};

struct shared *g_shared;
const char *g_provider = "vma";
const struct work *g_work;
size_t g_size;
enum side g_side;
int g_channel;
char *g_out, *g_in;
long g_pending[kKinds];
double g_began;

static struct fi_info *g_info;
static struct fid_fabric *g_fabric;
static struct fid_domain *g_domain;
static struct fid_cq *g_queue;
static struct fid_av *g_addresses;
static struct fid_mr *g_region;
static struct fid_ep *g_endpoint;
static fi_addr_t g_peer;
static void *g_descriptor;
static char *g_note; // behind g_out and g_in, which are one piece of memory: an answer to send, and one that comes
static struct {
    uint64_t out, in, key;
} g_remote;
static struct operation g_operations[kOperations], *g_free;

// ---- ends and checks ------------------------------------------------------------------------------------------------

_Noreturn void stop(enum ending how, const char *what, const char *why)
{
    snprintf(g_shared->side[g_side].said, sizeof g_shared->side[g_side].said, "%s: %s", what, why);
    exit((int)how);
}

void check(const char *what, long result)
{
    if (result < 0)
        stop(kFailed, what, fi_strerror((int)-result));
}

void now_doing(const char *what)
{
    g_shared->side[g_side].doing = what;
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// ---- operations -----------------------------------------------------------------------------------------------------

static _Noreturn void fail_operation(void)
{
    struct fi_cq_err_entry error = {0};
    char why[120];
    fi_cq_readerr(g_queue, &error, 0);
    snprintf(why, sizeof why, "%s (%s)", fi_strerror(error.err),
             fi_cq_strerror(g_queue, error.prov_errno, error.err_data, NULL, 0));
    stop(kFailed, "an operation", why);
}

void progress(void)
{
    enum { kAtATime = 16 };
    struct fi_cq_tagged_entry entries[kAtATime];
    const ssize_t got = fi_cq_read(g_queue, entries, kAtATime);
    if (got == -FI_EAGAIN)
        return;
    if (got == -FI_EAVAIL)
        fail_operation();
    check("fi_cq_read", got);
    for (ssize_t i = 0; i < got; ++i) {
        struct operation *done = entries[i].op_context;
        if (done->kind != kSent && entries[i].len != done->size)
            stop(kFailed, "a message", "its length is wrong");
        --g_pending[done->kind];
        done->next = g_free;
        g_free = done;
    }
}

// Of a provider that has no room reading the queue makes some.
#define INSIST(what, call)                                                                                             \
    do {                                                                                                               \
        ssize_t said_;                                                                                                 \
        while ((said_ = (call)) == -FI_EAGAIN)                                                                         \
            progress();                                                                                                \
        check(what, said_);                                                                                            \
    } while (0)

void wait_for(enum kind kind)
{
    while (g_pending[kind] > 0)
        progress();
}

static struct operation *begin(enum kind kind, size_t size)
{
    while (!g_free)
        progress();
    struct operation *operation = g_free;
    g_free = operation->next;
    operation->kind = kind;
    operation->size = size;
    ++g_pending[kind];
    return operation;
}

void post_receive(enum kind kind, uint64_t tag, char *into, size_t size)
{
    struct operation *operation = begin(kind, size);
    if (g_work->untagged)
        INSIST("fi_recv", fi_recv(g_endpoint, into, size, g_descriptor, FI_ADDR_UNSPEC, operation));
    else
        INSIST("fi_trecv", fi_trecv(g_endpoint, into, size, g_descriptor, FI_ADDR_UNSPEC, tag, 0, operation));
}

void post_send(uint64_t tag, const char *from, size_t size)
{
    struct operation *operation = begin(kSent, size);
    if (g_work->untagged)
        INSIST("fi_send", fi_send(g_endpoint, from, size, g_descriptor, g_peer, operation));
    else
        INSIST("fi_tsend", fi_tsend(g_endpoint, from, size, g_descriptor, g_peer, tag, operation));
}

void inject(uint64_t tag, const char *from, size_t size)
{
    if (g_work->untagged)
        INSIST("fi_inject", fi_inject(g_endpoint, from, size, g_peer));
    else
        INSIST("fi_tinject", fi_tinject(g_endpoint, from, size, g_peer, tag));
}

// As a program would that waits for the answer: without a completion where the message is short enough for that.
void pass(uint64_t tag, const char *from, size_t size)
{
    if (size <= g_info->tx_attr->inject_size)
        inject(tag, from, size);
    else
        post_send(tag, from, size);
}

void post_answer(void)
{
    post_receive(kAnswer, kTagAnswer, g_note + kNote, kNote);
}

void pass_answer(void)
{
    pass(kTagAnswer, g_note, kNote);
}

void post_write(size_t size)
{
    struct operation *operation = begin(kSent, size);
    INSIST("fi_write", fi_write(g_endpoint, g_out, size, g_descriptor, g_peer, g_remote.in, g_remote.key, operation));
}

void post_read(size_t size)
{
    struct operation *operation = begin(kSent, size);
    INSIST("fi_read", fi_read(g_endpoint, g_in, size, g_descriptor, g_peer, g_remote.out, g_remote.key, operation));
}

void post_fetch_add(void)
{
    struct operation *operation = begin(kSent, sizeof(uint64_t));
    INSIST("fi_fetch_atomic", fi_fetch_atomic(g_endpoint, g_out, 1, g_descriptor, g_in, g_descriptor, g_peer,
                                              g_remote.in, g_remote.key, FI_UINT64, FI_SUM, operation));
}

// ---- the channel beside ---------------------------------------------------------------------------------------------

void tell(const void *data, size_t size)
{
    if (send(g_channel, data, size, MSG_NOSIGNAL) != (ssize_t)size)
        exit(kAlone);
}

// Goes on reading the queue, which the other side may need before it can answer; rarely looks at the channel meanwhile,
// as a target has to be quick.
void hear(void *data, size_t size)
{
    char *place = data;
    while (size > 0) {
        const ssize_t got = recv(g_channel, place, size, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            exit(kAlone);
        if (got > 0) {
            place += got;
            size -= (size_t)got;
            continue;
        }
        for (int i = 0; g_endpoint && i < 1024; ++i)
            progress();
    }
}

void barrier(void)
{
    char byte = 1;
    tell(&byte, 1);
    hear(&byte, 1);
}

// Each has posted what it will receive first. The client's clock runs from here.
void start(void)
{
    char byte = 1;
    if (g_side == kServer) {
        tell(&byte, 1);
    } else {
        hear(&byte, 1);
        g_began = now();
    }
}

// ---- opening --------------------------------------------------------------------------------------------------------

static bool is_loopback(const struct fi_info *info)
{
    const struct sockaddr_in *address = info->src_addr;
    return address && info->src_addrlen >= sizeof *address && address->sin_family == AF_INET &&
           address->sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

// What is asked for is what Open MPI asks for in a program of one thread: no provider has to lock, or to have a thread.
static struct fi_info *find(void)
{
    struct fi_info *hints = fi_allocinfo(), *found = NULL, *best = NULL;
    hints->caps = FI_MSG | FI_TAGGED | g_work->caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    // No order of memory accesses: shm copies at once only where that isn't asked for.
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(g_provider);
    const int result = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
    if (result != 0)
        stop(kNotOffered, "fi_getinfo", fi_strerror(-result));
    for (struct fi_info *info = found; info; info = info->next)
        if (strcmp(info->fabric_attr->prov_name, g_provider) == 0 &&
            (!best || (is_loopback(info) && !is_loopback(best))))
            best = info;
    if (!best)
        stop(kNotOffered, "fi_getinfo", "only layered over others, or under another name");
    best = fi_dupinfo(best);
    fi_freeinfo(found);
    fi_freeinfo(hints);
    if (g_size > best->ep_attr->max_msg_size)
        stop(kNotOffered, "max_msg_size", "so long a message");
    if (g_work->injected && g_size > best->tx_attr->inject_size)
        stop(kNotOffered, "inject_size", "so long a message");
    return best;
}

static void register_memory(uint64_t *key)
{
    const size_t size = 2 * (size_t)kMost + 2 * kNote;
    const bool accessed = (g_work->caps & (FI_RMA | FI_ATOMIC)) != 0;
    g_out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!g_out)
        check("aligned_alloc", -FI_ENOMEM);
    memset(g_out, 0, size);
    g_in = g_out + kMost;
    g_note = g_in + kMost;
    if (!accessed && !(g_info->domain_attr->mr_mode & FI_MR_LOCAL))
        return;
    const uint64_t access = FI_SEND | FI_RECV | (accessed ? FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE : 0);
    check("fi_mr_reg", fi_mr_reg(g_domain, g_out, size, access, 0, 1, 0, &g_region, NULL));
    g_descriptor = fi_mr_desc(g_region);
    *key = fi_mr_key(g_region);
}

static void open_endpoint(void)
{
    struct fi_cq_attr queue = {.size = 512, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr addresses = {.type = g_info->domain_attr->av_type ? g_info->domain_attr->av_type : FI_AV_TABLE};
    size_t count = 0;
    check("fi_cq_open", fi_cq_open(g_domain, &queue, &g_queue, NULL));
    check("fi_av_open", fi_av_open(g_domain, &addresses, &g_addresses, NULL));
    check("fi_endpoint", fi_endpoint(g_domain, g_info, &g_endpoint, NULL));
    check("fi_ep_bind", fi_ep_bind(g_endpoint, &g_queue->fid, FI_TRANSMIT | FI_RECV));
    check("fi_ep_bind", fi_ep_bind(g_endpoint, &g_addresses->fid, 0));
    check("fi_enable", fi_enable(g_endpoint));
    if (g_work->caps & FI_ATOMIC && fi_fetch_atomicvalid(g_endpoint, FI_UINT64, FI_SUM, &count) != 0)
        stop(kNotOffered, "fi_fetch_atomicvalid", "no FI_SUM of FI_UINT64");
    for (int i = kOperations - 1; i >= 0; --i) {
        g_operations[i].next = g_free;
        g_free = &g_operations[i];
    }
}

void open_all(void)
{
    struct {
        uint64_t out, in, key;
        size_t length;
        char name[kName];
    } mine = {.length = kName}, other;
    now_doing("opening");
    g_info = find();
    check("fi_fabric", fi_fabric(g_info->fabric_attr, &g_fabric, NULL));
    check("fi_domain", fi_domain(g_fabric, g_info, &g_domain, NULL));
    register_memory(&mine.key);
    open_endpoint();
    check("fi_getname", fi_getname(&g_endpoint->fid, mine.name, &mine.length));
    mine.out = g_info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)g_out : 0;
    mine.in = mine.out + kMost;
    now_doing("exchanging names");
    tell(&mine, sizeof mine);
    hear(&other, sizeof other);
    if (fi_av_insert(g_addresses, other.name, 1, &g_peer, 0, NULL) != 1)
        stop(kFailed, "fi_av_insert", "the name was not taken");
    g_remote.out = other.out;
    g_remote.in = other.in;
    g_remote.key = other.key;
    barrier();
}

void close_all(void)
{
    now_doing("closing");
    check("fi_close of the endpoint", fi_close(&g_endpoint->fid));
    if (g_region)
        check("fi_close of the memory region", fi_close(&g_region->fid));
    check("fi_close of the address vector", fi_close(&g_addresses->fid));
    check("fi_close of the completion queue", fi_close(&g_queue->fid));
    check("fi_close of the domain", fi_close(&g_domain->fid));
    check("fi_close of the fabric", fi_close(&g_fabric->fid));
}
