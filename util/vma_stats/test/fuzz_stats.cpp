// SPDX-License-Identifier: BSD-2-Clause
// A fuzzer of vma_stats' reader and of its views: whatever stands in a process's file, nothing is read beyond it,
// everything ends, and nothing is printed that a terminal would follow. An input is a file's length, 4 bytes, and then
// changes of a sound file: where (4 bytes), how many bytes (1), the bytes; all little endian, and where they are beyond
// an end, what is left of them.
//
// With clang: `make util/vma_stats/test/fuzz_stats`, then `util/vma_stats/test/fuzz_stats -max_total_time=60 FOUND
// CORPUS`, where FOUND is an empty folder and CORPUS is corpus/stats beside this file.
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "util/vma_stats/live_rows.hpp"
#include "util/vma_stats/metrics/process_metrics.hpp"
#include "util/vma_stats/views.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace {

using namespace vma::stats;

constexpr std::uint32_t kSlots = 4;
constexpr std::size_t kSize = file_size(kSlots);
using Image = std::vector<std::uint8_t>;

void promise(bool kept)
{
    if (!kept)
        __builtin_trap();
}

void fill_slot(Slot &slot, int fd)
{
    Facts &f = slot.facts;
    f.fd = fd;
    f.protocol = fd % 2 == 0 ? IPPROTO_UDP : IPPROTO_TCP;
    f.family = 4;
    f.way = Way::kPort;
    f.flags = kHasLocal | kHasPeer | kHasInterface;
    f.ring = 1;
    f.group_count = 2;
    slot.now.rx.packets = slot.now.tx.packets = slot.now.rx.os_packets = 3;
}

// As a process leaves it.
Image sound_file()
{
    static Header h; // of some 20 KiB
    write_sizes(h, kSlots);
    h.magic = kMagic;
    h.slots_used = 3;
    h.pid = 1;
    h.state = State::kRunning;
    strcpy(h.program, "fuzzed");
    for (Mux &set : h.epoll)
        set.fd = -1;
    h.epoll[0].fd = 7;
    h.epoll[0].now.ready = h.select[0].now.ready = h.poll[3].now.timeouts = 1;
    h.rings[0].kind = RingKind::kEthernet;
    h.rings[1].kind = RingKind::kTap;
    h.queues[0].used = 1;
    h.pools[0].is_rx = h.pools[1].is_tx = 1;
    static Slot slots[kSlots];
    for (std::uint32_t i = 0; i < kSlots; ++i)
        fill_slot(slots[i], i < 3 ? static_cast<int>(i) + 5 : -1);
    Image image(kSize);
    memcpy(image.data(), &h, sizeof h);
    memcpy(image.data() + sizeof h, slots, sizeof slots);
    return image;
}

std::uint32_t number(const std::uint8_t *&data, std::size_t &size, std::size_t bytes)
{
    std::uint32_t value = 0;
    const std::size_t count = std::min(bytes, size);
    memcpy(&value, data, count);
    data += count;
    size -= count;
    return value;
}

Image changed(Image image, const std::uint8_t *data, std::size_t size)
{
    image.resize(std::min<std::size_t>(number(data, size, 4), kSize));
    while (size > 5) {
        const std::size_t at = number(data, size, 4);
        const std::size_t wanted = number(data, size, 1);
        const std::size_t room = at < image.size() ? image.size() - at : 0;
        const std::size_t count = std::min({wanted, size, room});
        if (count != 0)
            memcpy(image.data() + at, data, count);
        data += std::min(wanted, size);
        size -= std::min(wanted, size);
    }
    return image;
}

// A file of this process alone, which is not a link.
class File
{
public:
    File()
    {
        char name[] = "/tmp/fuzz_stats_XXXXXX";
        fd_ = ::mkstemp(name);
        promise(fd_ >= 0);
        path_ = name;
    }
    ~File()
    {
        ::unlink(path_.c_str());
        ::close(fd_);
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    const std::string &write(const Image &image) const
    {
        promise(::ftruncate(fd_, static_cast<off_t>(image.size())) == 0);
        promise(::pwrite(fd_, image.data(), image.size(), 0) == static_cast<ssize_t>(image.size()));
        return path_;
    }

private:
    int fd_ = -1;
    std::string path_;
};

// What is printed while it lives.
class Output
{
public:
    Output() : before_(stdout) { stdout = ::open_memstream(&text_, &length_); }
    ~Output()
    {
        fclose(stdout);
        stdout = before_;
        promise(is_harmless());
        free(text_);
    }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

private:
    // Uninstrumented: to see each of its comparisons tells the fuzzer nothing, and would take a fifth of its time.
    __attribute__((no_sanitize("coverage"))) bool is_harmless() const
    {
        for (std::size_t i = 0; i < length_; ++i) {
            const auto byte = static_cast<unsigned char>(text_[i]);
            if ((byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7f)
                return false;
        }
        return true;
    }

    FILE *before_;
    char *text_ = nullptr;
    std::size_t length_ = 0;
};

// What is told of one snapshot, whatever was before.
void show_alone(const vma_stats::Snapshot &s, const vma_stats::Options &options)
{
    const Output output;
    vma_stats::print_net(s, options);
    vma_stats::Exposition out;
    std::size_t room = 2;
    const vma_stats::Labels labels = vma_stats::labels_of_process(1, vma_stats::program_of(s), "root");
    vma_stats::add_process(out, labels, s);
    vma_stats::add_sockets(out, labels, s, options, room);
    fputs(out.text().c_str(), stdout);
}

vma_stats::Snapshot read_sound(const std::string &path)
{
    vma_stats::Snapshot read;
    std::string error;
    promise(vma_stats::read_snapshot(path, read, error));
    return read;
}

void show(const vma_stats::Shown &shown)
{
    const Output output;
    vma_stats::print_lines(shown, 0);
    vma_stats::print_full(shown);
    vma_stats::print_groups(shown);
    vma_stats::print_json(shown, true);
    std::size_t sockets = 0;
    std::size_t offloaded = 0;
    std::vector<std::string> rows = vma_stats::make_rows(shown, {}, sockets, offloaded);
    promise(offloaded <= sockets && sockets <= shown.now->slots.size());
    for (const auto &lines : {vma_stats::mux_lines(shown), vma_stats::port_lines(shown)})
        rows.insert(rows.end(), lines.begin(), lines.end());
    for (const std::string &row : rows)
        puts(row.c_str());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    static const Image sound = sound_file();
    static const File file;
    static const vma_stats::Options options;
    static const vma_stats::Snapshot before = read_sound(file.write(sound));
    vma_stats::Snapshot now;
    std::string error;
    if (!vma_stats::read_snapshot(file.write(changed(sound, data, size)), now, error)) {
        promise(!error.empty());
        return 0;
    }
    promise(now.slots.size() <= kSlots);
    vma_stats::add_reasons(now);
    show_alone(now, options);
    show({&now, nullptr, &options});
    show({&now, &before, &options});
    show({&before, &now, &options});
    return 0;
}
