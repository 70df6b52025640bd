// SPDX-License-Identifier: BSD-2-Clause
// What is undone of a call that is left without its destructors being run: by siglongjmp() out of a signal handler, or
// as its thread is cancelled. libc calls it before either goes past the call; the call's stack is still there then.
#pragma once

#include <pthread.h>

#include "compat/src/libc/this_thread.hpp"

extern "C" {
// Of libc's oldest cleanup handlers, which longjmp() runs as well. <pthread.h> declares their structure alone.
void _pthread_cleanup_push(_pthread_cleanup_buffer *buffer, void (*routine)(void *), void *argument);
void _pthread_cleanup_pop(_pthread_cleanup_buffer *buffer, int execute);
}

namespace vma::libc {

// Takes what lies on dead stack off libc's list, below the buffer that has just been put on it.
void cut_back(_pthread_cleanup_buffer &buffer);

// `undo` is called between any two instructions of the call that are in no critical stretch, also when the call has
// undone it already, and once more where a handler jumps out of it. Not where a stretch is open: that is a fault's
// handler, which waits for no lock's end.
//
// A jump that libc knows nothing of (a context switched in a handler, an unwinder of a runtime's own) leaves libc's
// list as it was, with what is on the dead stack. The next call of this thread cuts it back.
template <typename T, void (T::*undo)()> class WhenLeft
{
public:
    explicit WhenLeft(T &what) : what_(what)
    {
        ::_pthread_cleanup_push(&buffer_, run, this);
        if (t_libc.to_undo == nullptr) [[likely]]
            t_libc.to_undo = &buffer_;
        else
            cut_back(buffer_);
    }
    ~WhenLeft()
    {
        ::_pthread_cleanup_pop(&buffer_, 0);
        end();
    }
    WhenLeft(const WhenLeft &) = delete;
    WhenLeft &operator=(const WhenLeft &) = delete;

private:
    void end()
    {
        if (t_libc.to_undo == &buffer_)
            t_libc.to_undo = nullptr;
    }

    static void run(void *argument)
    {
        auto &self = *static_cast<WhenLeft *>(argument);
        self.end();
        if (t_libc.critical.depth == 0)
            (self.what_.*undo)();
    }

    T &what_;
    _pthread_cleanup_buffer buffer_;
};

// Around work of ours that opens files, reads and waits, in calls that are no cancellation points, or with a lock held:
// a thread that was cancelled in it would leave the lock taken, and half of the work undone. It is cancelled later.
class NotCancelled
{
public:
    NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
    NotCancelled(const NotCancelled &) = delete;
    NotCancelled &operator=(const NotCancelled &) = delete;

private:
    int before_ = 0;
};

} // namespace vma::libc
