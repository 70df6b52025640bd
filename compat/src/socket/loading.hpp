// SPDX-License-Identifier: BSD-2-Clause
// When the provider is loaded: once, when a socket first wants it. dlopen() waits for whoever is in one, and for constructors of the
// libraries that it opens. Such a constructor may close a socket, which takes our locks, or talk to the very thread that wants the provider.
// So a thread that does nothing else loads it, with no lock of ours held; who wants it waits for that, but not for long, and goes on by the
// kernel meanwhile. Private to compat/src/socket.
#pragma once

namespace vma::sock {

// Any thread, with any locks. False: not yet, or it is being loaded; it is wanted from now on.
bool provider_is_tried();

// By who has come to no provider for that, when the lift lock is given back; a lock of one socket may be held. True: it was loaded just now,
// or found not to be there: he may try again. One load where nobody wants it. Keeps errno.
bool load_wanted_provider();

// Before a fork: what is half loaded is in the child for ever. Waits, but not for long.
void wait_for_load();
void loading_after_fork_in_child(); // a load that was not over has failed

} // namespace vma::sock
