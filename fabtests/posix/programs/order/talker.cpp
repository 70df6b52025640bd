// SPDX-License-Identifier: BSD-2-Clause
// A library whose constructor talks to another thread of the program that opens it.
extern "C" void talk_in_constructor(); // the program's

namespace {

[[gnu::constructor]] void talker_begins()
{
    talk_in_constructor();
}

} // namespace
