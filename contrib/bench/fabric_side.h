// SPDX-License-Identifier: BSD-2-Clause
// One side of fabric_bench: its endpoint and memory, what it sends, receives and accesses, and a channel to the other
// side beside libfabric. Whatever goes wrong ends the process, with a line in what it shares with its parent.
#pragma once

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { kWindow = 64, kMost = 4 << 20, kNote = 8 }; // operations under way; bytes of a message, and of an answer
enum side { kServer, kClient };
enum ending { kFine, kFailed, kNotOffered, kAlone }; // exit status of a side; kAlone: the other one has gone
enum kind { kSent, kData, kAnswer, kKinds };         // of an operation under way; kSent: whatever isn't received
enum { kTagData = 1, kTagAnswer = 2, kTagKept = 1 << 16 };

struct work {
    const char *name;
    void (*run)(size_t size, long count); // both sides do, and call start() in it
    uint64_t caps;                        // beside messages
    int checks;                           // who has data to check: bits of the sides
    int counts;                           // what the time of one is divided by
    size_t least, most;                   // bytes
    size_t signal;                        // at the end of a message, not to be checked
    bool untagged, injected;
};

const struct work *find_work(const char *name); // or NULL
void print_works(void);                         // their names, to standard error

// What the sides and their parent share. `doing` is text of the program, which lies at the same place in all.
struct shared {
    struct {
        const char *doing;
        char said[200];
    } side[2];
    double us;
};

extern struct shared *g_shared;
extern const char *g_provider;
extern const struct work *g_work;
extern size_t g_size;
extern enum side g_side;
extern int g_channel;
extern char *g_out, *g_in;     // to send from and to receive into, or what the other side reads and writes
extern long g_pending[kKinds]; // operations
extern double g_began;         // by now()

_Noreturn void stop(enum ending how, const char *what, const char *why);
void check(const char *what, long result); // stops if it is an error
void now_doing(const char *what);
double now(void); // seconds

void open_all(void);
void close_all(void);

void progress(void); // reads the queue
void wait_for(enum kind kind);
void post_receive(enum kind kind, uint64_t tag, char *into, size_t size);
void post_send(uint64_t tag, const char *from, size_t size);
void inject(uint64_t tag, const char *from, size_t size); // copied: no completion
void pass(uint64_t tag, const char *from, size_t size);   // injected if it is short enough for that
void post_answer(void);                                   // a receive, of kAnswer
void pass_answer(void);
void post_write(size_t size); // from our g_out to the other's g_in
void post_read(size_t size);  // from the other's g_out to our g_in
void post_fetch_add(void);    // ours at g_out, what it was to g_in, to the other's g_in

void tell(const void *data, size_t size);
void hear(void *data, size_t size);
void barrier(void);
void start(void); // each has posted what it will receive first; the client's clock runs from here
