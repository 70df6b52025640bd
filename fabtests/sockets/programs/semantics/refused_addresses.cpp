// SPDX-License-Identifier: BSD-2-Clause
// Memory that reaches behind the last address that a program can have: the kernel refuses it before it asks the socket,
// whether anything is there or not, and takes nothing of that.
#include <array>
#include <climits>

#include "fabtests/sockets/programs/semantics/refused.hpp"

namespace {

using namespace fabtest;

char g_buffer[16];
char *volatile g_high = reinterpret_cast<char *>(std::uintptr_t{0} - 8192); // the compiler would see what is wrong

// Two parts that are wrong, or these and a good one.
struct Wrong {
    std::array<iovec, 3> parts;
    std::size_t count;

    msghdr message()
    {
        msghdr made = {};
        made.msg_iov = parts.data();
        made.msg_iovlen = count;
        return made;
    }
};

void add_messages(std::vector<Row> &rows, const std::string &name, const Wrong &wrong)
{
    const int count = static_cast<int>(wrong.count);
    rows.push_back({"readv" + name, [=](int fd) { return ::readv(fd, wrong.parts.data(), count); }});
    rows.push_back({"writev" + name, [=](int fd) { return ::writev(fd, wrong.parts.data(), count); }});
    for (const int flags : {0, static_cast<int>(MSG_TRUNC), static_cast<int>(MSG_PEEK)})
        rows.push_back({"recvmsg with flags " + std::to_string(flags) + name, [=](int fd) {
                            Wrong copy = wrong;
                            msghdr m = copy.message();
                            return ::recvmsg(fd, &m, flags | MSG_DONTWAIT);
                        }});
    rows.push_back({"sendmsg" + name, [=](int fd) {
                        Wrong copy = wrong;
                        const msghdr m = copy.message();
                        return ::sendmsg(fd, &m, MSG_DONTWAIT);
                    }});
}

void add_high(std::vector<Row> &rows)
{
    char *const high = g_high;
    for (const std::size_t size : {std::size_t{10}, std::size_t{0}}) {
        const std::string tail = " behind all, " + std::to_string(size);
        for (const int flags : {0, static_cast<int>(MSG_TRUNC), static_cast<int>(MSG_PEEK)})
            rows.push_back({"recv with flags " + std::to_string(flags) + tail,
                            [=](int fd) { return ::recv(fd, high, size, flags | MSG_DONTWAIT); }});
        rows.push_back({"read" + tail, [=](int fd) { return ::read(fd, high, size); }});
        rows.push_back({"write" + tail, [=](int fd) { return size == 0 ? 0 : ::write(fd, high, size); }});
        add_messages(rows, tail, {{{{high, size}, {high, size}}}, 2});
        add_messages(rows, tail + ", and a good part", {{{{high, size}, {high, size}, {g_buffer, 2}}}, 3});
    }
}

// The lengths of all three are 2^64: a sum that wraps is 0.
void add_long(std::vector<Row> &rows)
{
    volatile std::size_t most = SSIZE_MAX;
    const std::size_t size = most;
    rows.push_back({"read of SSIZE_MAX", [=](int fd) { return ::read(fd, g_buffer, size); }});
    rows.push_back({"write of SSIZE_MAX", [=](int fd) { return ::write(fd, g_buffer, size); }});
    add_messages(rows, " of SSIZE_MAX twice", {{{{g_buffer, size}, {g_buffer, size}}}, 2});
    add_messages(rows, " of 2^64", {{{{g_buffer, size}, {g_buffer, size}, {g_buffer, 2}}}, 3});
}

void add_beyond(std::vector<Row> &rows)
{
    add_high(rows);
    add_long(rows);
}

} // namespace

SCENARIO(refused_beyond_all_addresses)
{
    compare(me, add_beyond);
}

SCENARIO(refused_beyond_all_addresses_with_bytes_there)
{
    compare_with_bytes_there(me, add_beyond);
}
