// SPDX-License-Identifier: BSD-2-Clause
// The works of fabric_bench: what both sides do `count` times. The client's clock runs from start() to its return.
#include "contrib/bench/fabric_side.h"

#include <stdio.h>
#include <string.h>

enum { kByServer = 1 << kServer, kByClient = 1 << kClient };

static void latency(size_t size, long count)
{
    post_receive(kData, kTagData, g_in, size);
    start();
    for (long i = 0; i < count; ++i) {
        if (g_side == kClient)
            pass(kTagData, g_out, size);
        wait_for(kData);
        if (i + 1 < count)
            post_receive(kData, kTagData, g_in, size);
        if (g_side == kServer)
            pass(kTagData, g_out, size);
    }
    wait_for(kSent);
}

static void post_window(size_t size)
{
    for (int i = 0; i < kWindow; ++i)
        post_receive(kData, kTagData, g_in, size);
}

static void send_window(size_t size)
{
    for (int i = 0; i < kWindow; ++i) {
        if (g_work->injected)
            inject(kTagData, g_out, size);
        else
            post_send(kTagData, g_out, size);
    }
}

// The server answers each window, and has posted the next one by then.
static void one_way(size_t size, long count)
{
    if (g_side == kServer)
        post_window(size);
    else
        post_answer();
    start();
    for (long i = 0; i < count; ++i) {
        if (g_side == kClient) {
            send_window(size);
            wait_for(kSent);
            wait_for(kAnswer);
            if (i + 1 < count)
                post_answer();
        } else {
            wait_for(kData);
            if (i + 1 < count)
                post_window(size);
            pass_answer();
        }
    }
    wait_for(kSent);
}

static void both_ways(size_t size, long count)
{
    post_window(size);
    post_answer();
    start();
    for (long i = 0; i < count; ++i) {
        send_window(size);
        wait_for(kData);
        wait_for(kSent);
        if (i + 1 < count)
            post_window(size);
        pass_answer();
        wait_for(kAnswer);
        if (i + 1 < count)
            post_answer();
    }
    wait_for(kSent);
}

// Seen by who looks at the last byte: when a write is complete is another thing with each provider.
static void write_latency(size_t size, long count)
{
    const volatile char *signal = g_in + size - 1;
    char next = *signal == 1 ? 2 : 1; // both have got the same number of writes, and so agree
    start();
    for (long i = 0; i < count; ++i, next = next == 1 ? 2 : 1) {
        for (int turn = 0; turn < 2; ++turn) {
            if (turn == (g_side == kServer)) {
                wait_for(kSent);
                g_out[size - 1] = next;
                post_write(size);
            } else {
                while (*signal != next)
                    progress();
            }
        }
    }
    wait_for(kSent);
}

static void write_bandwidth(size_t size, long count)
{
    post_answer();
    start();
    for (long i = 0; g_side == kClient && i < count * kWindow; ++i) {
        post_write(size);
        while (g_pending[kSent] >= kWindow)
            progress();
    }
    wait_for(kSent);
    if (g_side == kClient)
        pass_answer();
    wait_for(kAnswer);
    if (g_side == kServer)
        pass_answer();
    wait_for(kSent);
}

static void read_some(size_t size, long count, int window)
{
    start();
    for (long i = 0; g_side == kClient && i < count; ++i) {
        post_read(size);
        while (g_pending[kSent] >= window)
            progress();
    }
    wait_for(kSent);
}

static void read_latency(size_t size, long count)
{
    read_some(size, count, 1);
}

static void read_bandwidth(size_t size, long count)
{
    read_some(size, count * kWindow, kWindow);
}

static void fetch_add(size_t size, long count)
{
    static uint64_t added;
    (void)size;
    const uint64_t one = 1;
    uint64_t fetched = 0;
    memcpy(g_out, &one, sizeof one);
    start();
    if (g_side == kServer)
        return;
    for (long i = 0; i < count; ++i) {
        post_fetch_add();
        wait_for(kSent);
    }
    added += (uint64_t)count;
    memcpy(&fetched, g_in, sizeof fetched);
    if (fetched != added - 1)
        stop(kFailed, "wrong data", "what was fetched is not the number of additions before");
}

static const struct work kWorks[] = {
    {"latency", latency, 0, kByServer | kByClient, 2, 0, kMost, 0, false, false},
    {"untagged", latency, 0, kByServer | kByClient, 2, 0, kMost, 0, true, false},
    {"bandwidth", one_way, 0, kByServer, kWindow, 0, kMost, 0, false, false},
    {"rate", one_way, 0, kByServer, kWindow, 0, kMost, 0, false, false},
    {"inject-rate", one_way, 0, kByServer, kWindow, 0, kMost, 0, false, true},
    {"bidirectional", both_ways, 0, kByServer | kByClient, 2 * kWindow, 0, kMost, 0, false, false},
    {"write-latency", write_latency, FI_RMA, kByServer | kByClient, 2, 2, kMost, 1, false, false},
    {"write-bandwidth", write_bandwidth, FI_RMA, kByServer, kWindow, 1, kMost, 0, false, false},
    {"read-latency", read_latency, FI_RMA, kByClient, 1, 1, kMost, 0, false, false},
    {"read-bandwidth", read_bandwidth, FI_RMA, kByClient, kWindow, 1, kMost, 0, false, false},
    {"fetch-add", fetch_add, FI_ATOMIC, 0, 1, sizeof(uint64_t), sizeof(uint64_t), 0, false, false},
};

const struct work *find_work(const char *name)
{
    for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; ++i)
        if (strcmp(kWorks[i].name, name) == 0)
            return &kWorks[i];
    return NULL;
}

void print_works(void)
{
    for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; ++i)
        fprintf(stderr, " %s", kWorks[i].name);
}
