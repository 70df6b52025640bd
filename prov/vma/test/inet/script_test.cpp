// SPDX-License-Identifier: BSD-2-Clause
// Every script of the folder `scripts` is a case. What the language says of a script that is wrong is tested
// first, as a runner that finds no fault proves nothing.
#include "fabtests/unit.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "prov/vma/test/inet/script.hpp"
#include "prov/vma/test/inet/transitions.hpp"

namespace {

using vma::inet::script::run_file;
using vma::inet::script::run_text;

// `make check` names the source folder; by hand the test is run from where it was compiled.
std::string folder()
{
    const char *const srcdir = std::getenv("srcdir");
    const std::string source = __FILE__;
    return (srcdir != nullptr ? std::string(srcdir) + "/prov/vma/test/inet" : source.substr(0, source.rfind('/'))) +
           "/scripts";
}

constexpr char kOpen[] = "set timestamps off, window_scaling off, sack off, receive_buffer 65535\n"
                         "+0 listen 5\n"
                         "+0 < S 0 win 1000 [mss 1000]\n"
                         "+0 > SA 0 ack 1 win 65535 [mss 1460]\n"
                         "+0.1 < A 1 ack 1 win 1000\n"
                         "+0 accept\n";

void says(const char *lines, const char *wanted)
{
    const std::string said = run_text("x.pkt", std::string(kOpen) + lines);
    if (said != wanted)
        print_error("said: %s\n", said.c_str());
    assert_string_equal(said.c_str(), wanted);
}

void faults_are_found(void **)
{
    says("+0 send 100\n+0 > A 1+100 ack 1 win 65535\n", "");
    says("+0 send 100\n+0 > A 1+101 ack 1\n", "x.pkt:8: expected\n    +0 > A 1+101 ack 1\n  came\n"
                                              "    +0 > PA 1+100 ack 1 win 65535 ecn none []");
    says("+0 send 100\n", "x.pkt:7: nothing was expected, but at 0.1 s came\n"
                          "    > PA 1+100 ack 1 win 65535 ecn none []");
    says("+0 send 100\n+0 nothing\n", "x.pkt:8: nothing was expected, but at 0.1 s came\n"
                                      "    > PA 1+100 ack 1 win 65535 ecn none []");
    says("+0 > A 1\n", "x.pkt:7: expected\n    +0 > A 1\n  came nothing");
    says("+0 < PA 1+10 ack 1\n+0.01 > A 1 ack 11\n", "x.pkt:8: expected\n    +0.01 > A 1 ack 11\n  came\n"
                                                     "    +0 > A 1 ack 11 win 65525 ecn none []");
    says("+0 receive 10\n", "x.pkt:7: expected 10, came EAGAIN");
    says("+0 check cwnd 11\n", "x.pkt:7: expected cwnd 11, came 10");
    says("+0 check state CLOSE-WAIT\n", "x.pkt:7: expected state CLOSE-WAIT, came ESTABLISHED");
    says("+0 event gone\n", "x.pkt:7: expected gone, came none");
}

void mistakes_are_told(void **)
{
    says("+0 frobnicate\n", "x.pkt:7: 'frobnicate' is not known");
    says("+x send 5\n", "x.pkt:7: a time is written +SECONDS or +SECONDS..SECONDS");
    says("+0 < Q 1\n", "x.pkt:7: flags of FSRPAUEW expected, not 'Q'");
    says("+0 < A 1 wim 5\n", "x.pkt:7: 'wim' of a segment is not understood");
    says("+0 send 5 6\n", "x.pkt:7: '6' is too much");
    says("set mtu 1000\n", "x.pkt:7: 'mtu' has to stand before the first line that does something");
    assert_string_equal(run_file("/nonexistent/x.pkt").c_str(), "/nonexistent/x.pkt: cannot be read");
}

// The watch over all scripts would be blind otherwise.
void wrong_transitions_are_found(void **)
{
    using vma::inet::TcpState;
    vma::inet::Connection c;
    c.state = TcpState::kEstablished;
    vma::inet::Transitions watch;
    watch.change(c, TcpState::kCloseWait);
    assert_string_equal(watch.wrong().c_str(), "");
    watch.change(c, TcpState::kClosed); // nobody has aborted it
    watch.change(c, TcpState::kLastAck);
    assert_string_equal(watch.wrong().c_str(), "a connection goes from ESTABLISHED to CLOSED");
    vma::inet::Transitions again;
    again.change(c, TcpState::kLastAck);
    assert_string_equal(again.wrong().c_str(), "a connection goes from ESTABLISHED to LAST-ACK");
    for (auto &from : vma::inet::Transitions::seen) // what is seen from here on are the scripts
        std::fill(std::begin(from), std::end(from), false);
}

// The last case: the scripts have been everywhere.
void each_transition_was_seen(void **)
{
    for (const vma::inet::Transition &t : vma::inet::kTransitions) {
        if (!vma::inet::Transitions::seen_once(t))
            print_error("no script goes from %s to %s\n", vma::inet::Transitions::name(t.from).c_str(),
                        vma::inet::Transitions::name(t.to).c_str());
        assert_true(vma::inet::Transitions::seen_once(t));
    }
}

void run(void **state)
{
    const std::string said = run_file(static_cast<const char *>(*state));
    if (!said.empty())
        UNIT_FAIL(said.c_str());
}

} // namespace

int main(int count, char **arguments)
{
    std::vector<std::string> files(arguments + 1, arguments + count); // named: those alone
    std::error_code error;
    const bool all = files.empty();
    if (all)
        for (const auto &entry : std::filesystem::directory_iterator(folder(), error))
            if (entry.path().extension() == ".pkt")
                files.push_back(entry.path().string());
    if (files.empty()) {
        print_error("no script in %s\n", folder().c_str());
        return 1;
    }
    std::sort(files.begin(), files.end());
    std::vector<CMUnitTest> tests = {cmocka_unit_test(faults_are_found), cmocka_unit_test(mistakes_are_told),
                                     cmocka_unit_test(wrong_transitions_are_found)};
    for (std::string &file : files) {
        const char *const name = file.c_str() + file.rfind('/') + 1;
        tests.push_back({name, run, nullptr, nullptr, file.data()});
    }
    if (all)
        tests.push_back(cmocka_unit_test(each_transition_was_seen));
    return _cmocka_run_group_tests("scripts", tests.data(), tests.size(), nullptr, nullptr);
}
