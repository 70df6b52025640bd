// SPDX-License-Identifier: BSD-2-Clause
// Starts the members of a mesh on this host, each as a process of its own, and gives the verdict on them.
#include "util/vma_lat/roles/mesh.hpp"

#include "util/vma_lat/clock.hpp"
#include "util/vma_lat/roles/session.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace vma::lat {

namespace {

constexpr std::uint64_t kGraceNs = 5 * kSecond; // beyond --timeout, for members to end when one has failed

struct Child {
    pid_t pid = -1;
    int status = 0; // as waitpid has it
    bool ended = false;
    bool given_up = false; // it did not end by itself
};

class Family
{
public:
    explicit Family(const Options &options) : options_(options), children_(options.mesh.processes) {}

    Failure start()
    {
        std::string peers;
        std::vector<Fd> listeners(children_.size());
        for (Fd &listener : listeners) {
            Address address;
            if (auto failure =
                    resolve(options_.address.empty() ? loopback() : options_.address, 0, options_.family, address))
                return failure;
            if (auto failure = listen_control(address, listener))
                return failure;
            peers += (peers.empty() ? "" : ",") + local_address(listener.get()).text();
        }
        for (std::size_t rank = 0; rank < children_.size(); ++rank) {
            if (auto failure = start_one(rank, peers, listeners[rank].get()))
                return failure;
            std::printf("rank %zu is process %d\n", rank, static_cast<int>(children_[rank].pid));
        }
        std::fflush(stdout);
        return {};
    }

    // Until all have ended. When one has failed the others find out by themselves; those that don't are killed.
    void await()
    {
        std::uint64_t deadline = 0;
        bool told = false;
        while (std::any_of(children_.begin(), children_.end(), [](const Child &each) { return !each.ended; })) {
            for (Child &child : children_) {
                if (!child.ended && waitpid(child.pid, &child.status, WNOHANG) == child.pid) {
                    child.ended = true;
                    if (child.status != 0 && deadline == 0)
                        deadline = now_ns() + options_.load.timeout_ns + kGraceNs;
                }
            }
            if (stopped() && !told) {
                told = true;
                signal_all(SIGTERM);
                deadline = now_ns() + kGraceNs;
            }
            if (deadline != 0 && now_ns() > deadline) {
                for (Child &child : children_)
                    child.given_up = child.given_up || !child.ended;
                signal_all(SIGKILL);
            }
            poll(nullptr, 0, kTickMs / 5);
        }
    }

    void signal_all(int number)
    {
        for (const Child &child : children_) {
            if (child.pid > 0 && !child.ended)
                kill(child.pid, number);
        }
    }

    int verdict() const
    {
        if (stopped()) {
            std::printf("mesh: FAILED: interrupted\n");
            return kExitInterrupted;
        }
        int status = kExitFine;
        std::string killed; // the cause of what the others saw, so they are named first
        std::string ended;
        for (std::size_t rank = 0; rank < children_.size(); ++rank) {
            const Child &child = children_[rank];
            if (child.status == 0)
                continue;
            const bool by_signal = WIFSIGNALED(child.status);
            const int code = by_signal ? static_cast<int>(kExitServer) : WEXITSTATUS(child.status);
            status = status == kExitFine || code == kExitData ? code : status;
            std::string &words = by_signal ? killed : ended;
            words += format("%srank %zu (process %d) ", words.empty() ? "" : "; ", rank, static_cast<int>(child.pid));
            words += child.given_up ? "did not end and was killed"
                     : by_signal    ? format("was killed by signal %d (%s)", WTERMSIG(child.status),
                                             strsignal(WTERMSIG(child.status)))
                                    : format("ended with status %d", code);
        }
        const std::string words = killed + (killed.empty() || ended.empty() ? "" : "; ") + ended;
        const MeshPlan &plan = options_.mesh;
        if (status != kExitFine) {
            std::printf("mesh: FAILED: %s\n", words.c_str());
            return status;
        }
        const unsigned long long blocks = std::uint64_t{plan.processes} * (plan.processes - 1) * plan.count;
        std::printf("mesh: passed: %u processes, %llu blocks of %u bytes verified, none damaged\n", plan.processes,
                    blocks, plan.size);
        return kExitFine;
    }

private:
    std::string loopback() const { return options_.family == AF_INET6 ? "::1" : "127.0.0.1"; }

    std::vector<std::string> arguments(std::size_t rank, const std::string &peers, int listener) const
    {
        const MeshPlan &plan = options_.mesh;
        std::vector<std::string> all = {"vma_lat",     "mesh",
                                        "--rank",      std::to_string(rank),
                                        "--peers",     peers,
                                        "--listen-fd", std::to_string(listener),
                                        "--size",      std::to_string(plan.size),
                                        "--window",    std::to_string(plan.window),
                                        "--count",     std::to_string(plan.count),
                                        "--seed",      std::to_string(plan.seed),
                                        "--provider",  plan.provider,
                                        "--wait",      name_of(plan.progress.wait),
                                        "--cq",        plan.progress.shared ? "shared" : "own",
                                        "--threads",   plan.progress.each ? "each" : "one",
                                        "--timeout",   std::to_string(options_.load.timeout_ns / kMillisecond)};
        if (!options_.domain.empty())
            all.insert(all.end(), {"--domain", options_.domain});
        return all;
    }

    Failure start_one(std::size_t rank, const std::string &peers, int listener)
    {
        std::vector<std::string> words = arguments(rank, peers, listener);
        std::vector<char *> argv;
        argv.reserve(words.size() + 1);
        for (std::string &word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        std::fflush(stdout);
        const pid_t parent = getpid();
        const pid_t pid = fork();
        if (pid < 0)
            return system_error("fork");
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() == parent && fcntl(listener, F_SETFD, 0) == 0)
                execv("/proc/self/exe", argv.data());
            _exit(kExitFailed);
        }
        children_[rank].pid = pid;
        return {};
    }

    const Options &options_;
    std::vector<Child> children_;
};

} // namespace

int be_mesh(const Options &options)
{
    if (options.rank >= 0)
        return be_member(options);
    Family family(options);
    auto failure = family.start();
    if (failure) {
        complain(*failure);
        family.signal_all(SIGKILL);
        return failure->status;
    }
    family.await();
    return family.verdict();
}

} // namespace vma::lat
