// SPDX-License-Identifier: BSD-2-Clause
// The page of metrics as text, the sums behind it, and the requests and addresses by which it is asked for.
#include "fabtests/unit.hpp"

#include <netinet/in.h>
#include <string.h>

#include <initializer_list>
#include <string>

#include "util/vma_stats/metrics/exposition.hpp"
#include "util/vma_stats/metrics/http.hpp"
#include "util/vma_stats/metrics/listen_address.hpp"
#include "util/vma_stats/metrics/process_metrics.hpp"
#include "util/vma_stats/metrics/totals.hpp"
#include "util/vma_stats/options.hpp"

using namespace vma_stats;
using namespace vma::stats;

namespace {

constexpr Family kBytes = {"x_bytes_total", MetricType::kCounter, "Bytes, by \"way\"\\\nand user"};
constexpr Family kTime = {"x_seconds", MetricType::kGauge, "How long"};

// ---- the text -------------------------------------------------------------------------------------------------------

void test_families_are_together(void **)
{
    Exposition out;
    out.add(kBytes, Labels().add("way", "a"), 1);
    out.add_seconds(kTime, {}, 1500000007);
    out.add(kBytes, Labels().add("way", "b").add("user", "root"), UINT64_MAX);
    assert_string_equal(out.text().c_str(), "# HELP x_bytes_total Bytes, by \"way\"\\\\\\nand user\n"
                                            "# TYPE x_bytes_total counter\n"
                                            "x_bytes_total{way=\"a\"} 1\n"
                                            "x_bytes_total{way=\"b\",user=\"root\"} 18446744073709551615\n"
                                            "# HELP x_seconds How long\n"
                                            "# TYPE x_seconds gauge\n"
                                            "x_seconds 1.500000007\n");
}

void test_percent(void **)
{
    Exposition out;
    for (const std::uint32_t percent : {0U, 7U, 87U, 100U})
        out.add_percent(kTime, {}, percent);
    assert_non_null(strstr(out.text().c_str(), "x_seconds 0.00\nx_seconds 0.07\nx_seconds 0.87\nx_seconds 1.00\n"));
}

std::string label_of(std::string_view value)
{
    return Labels().add("l", value).text();
}

void test_labels_are_escaped(void **)
{
    assert_string_equal(label_of("a\"b\\c\nd").c_str(), "l=\"a\\\"b\\\\c\\nd\"");
    assert_string_equal(label_of("").c_str(), "l=\"\"");
    assert_string_equal(label_of("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80").c_str(),
                        "l=\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

// Of one such byte Prometheus refuses the whole page.
void test_labels_are_utf8(void **)
{
    assert_string_equal(label_of("caf\xe9").c_str(), "l=\"caf?\"");          // Latin-1
    assert_string_equal(label_of("a\xe2\x82").c_str(), "l=\"a??\"");         // cut
    assert_string_equal(label_of("\xc0\xaf").c_str(), "l=\"??\"");           // overlong
    assert_string_equal(label_of("\xe0\x80\xaf").c_str(), "l=\"???\"");      //
    assert_string_equal(label_of("\xf0\x80\x80\xaf").c_str(), "l=\"????\""); //
    assert_string_equal(label_of("\xed\xa0\x80").c_str(), "l=\"???\"");      // a surrogate
    assert_string_equal(label_of("\xf4\x90\x80\x80").c_str(), "l=\"????\""); // beyond U+10FFFF
    assert_string_equal(label_of("\xff\x80z").c_str(), "l=\"??z\"");         //
    assert_string_equal(label_of("\xc3\"").c_str(), "l=\"?\\\"\"");          // the quote is not swallowed
}

// ---- the sums -------------------------------------------------------------------------------------------------------

Slot open_slot(int fd, std::uint8_t protocol, Way way)
{
    Slot slot = {};
    slot.facts.fd = fd;
    slot.facts.protocol = protocol;
    slot.facts.way = way;
    return slot;
}

Snapshot sample()
{
    Snapshot s = {};
    strcpy(s.header.program, "gen");
    strcpy(s.header.library, "1.0");
    for (Mux &set : s.header.epoll)
        set.fd = -1;
    s.header.closed.tcp.rx.bytes = 1000;
    s.header.closed.tcp_sockets = 4;
    s.header.closed.epoll.poll_hit = 6;
    s.slots = {open_slot(5, IPPROTO_TCP, Way::kLocal), open_slot(6, IPPROTO_TCP, Way::kPinned),
               open_slot(-1, IPPROTO_TCP, Way::kLocal), open_slot(7, IPPROTO_UDP, Way::kPort)};
    s.slots[0].now.rx.bytes = 20;
    s.slots[0].zero.rx.bytes = 20; // --zero
    s.slots[0].now.in.bytes = 25;
    s.slots[1].now.rx.os_bytes = 3;
    s.slots[2].now.rx.bytes = 70000; // nobody's
    s.slots[3].now.tx.packets = 2;
    s.slots[3].now.tx.bytes = 300;
    s.slots[3].facts.pacing_rate = 1;
    s.slots[3].facts.paced_from = 100;
    s.header.epoll[0].fd = 9;
    s.header.epoll[0].now.poll_hit = 1;
    s.header.epoll[1].now.poll_hit = 50; // closed: it is in `closed`
    s.header.select[3].now.timeouts = 2;
    s.header.select[4].now.timeouts = 3;
    return s;
}

void test_totals_have_what_is_closed(void **)
{
    const Totals t = totals_of(sample());
    assert_int_equal(t.tcp.counted.rx.bytes, 1020);
    assert_int_equal(t.tcp.counted.rx.os_bytes, 3);
    assert_int_equal(t.tcp.queued_bytes, 5);
    assert_int_equal(t.tcp.closed, 4);
    assert_int_equal(t.tcp.open[static_cast<std::size_t>(Way::kLocal)], 1);
    assert_int_equal(t.tcp.open[static_cast<std::size_t>(Way::kPinned)], 1);
    assert_int_equal(t.udp.open[static_cast<std::size_t>(Way::kPort)], 1);
    assert_int_equal(t.udp.counted.tx.packets, 2);
    assert_int_equal(t.udp.counted.tx.paced_bytes, 200);
    assert_int_equal(t.epoll.counted.poll_hit, 7);
    assert_int_equal(t.select.counted.timeouts, 5);
}

std::string page_of(const Snapshot &s, std::size_t sockets)
{
    Exposition out;
    const Options options;
    const Labels labels = labels_of_process(12, "gen", "ro\"ot");
    add_process(out, labels, s);
    add_sockets(out, labels, s, options, sockets);
    return out.text();
}

bool has(const std::string &page, const char *line)
{
    return page.find(line) != std::string::npos;
}

void test_page(void **)
{
    const std::string page = page_of(sample(), 0);
    assert_true(has(page, "vma_process_info{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",version=\"1.0\"} 1\n"));
    assert_true(has(page, "vma_receive_bytes_total{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",protocol=\"tcp\","
                          "path=\"device\"} 1020\n"));
    assert_true(
        has(page, "vma_sockets{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",protocol=\"udp\",way=\"port\"} 1\n"));
    assert_false(has(page, "vma_socket_"));
}

void test_page_of_sockets_is_bounded(void **)
{
    Snapshot s = sample();
    s.slots.push_back(s.slots[0]); // a file that names one twice
    assert_true(has(page_of(s, 10), "fd=\"7\""));
    const std::string few = page_of(s, 2);
    assert_true(has(few, "fd=\"5\"") && has(few, "fd=\"6\"") && !has(few, "fd=\"7\""));
    const std::string all = page_of(s, 10);
    const std::size_t first = all.find("vma_socket_info{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",fd=\"5\"");
    assert_true(first != std::string::npos && all.find("fd=\"5\"", all.find('\n', first)) != std::string::npos);
    assert_true(all.find("vma_socket_info{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",fd=\"5\"", first + 1) ==
                std::string::npos);
}

// Devices and queues of one name are one series.
void test_same_names_are_added(void **)
{
    Snapshot s = sample();
    for (Ring *ring : {&s.header.rings[0], &s.header.rings[2]}) {
        ring->kind = RingKind::kEthernet;
        strcpy(ring->name, "eth0");
        ring->rx_bytes = 7;
    }
    for (Queue *queue : {&s.header.queues[0], &s.header.queues[1]}) {
        queue->used = 1;
        strcpy(queue->name, "local");
        queue->polls = 5;
    }
    const std::string page = page_of(s, 0);
    assert_true(has(page, "kind=\"ethernet\",device=\"eth0\"} 14\n"));
    assert_true(has(page, "vma_queue_polls_total{pid=\"12\",program=\"gen\",user=\"ro\\\"ot\",queue=\"local\"} 10\n"));
    assert_false(has(page, "vma_queue_receive_frames"));
}

// ---- requests -------------------------------------------------------------------------------------------------------

http::Reading read(const char *bytes)
{
    http::Request request;
    return http::read_request(bytes, request);
}

void test_requests(void **)
{
    using http::Reading;
    http::Request r;
    assert_true(http::read_request("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n", r) == Reading::kWhole);
    assert_true(r.method == "GET" && r.path == "/metrics");
    assert_true(http::read_request("GET http://h:1/metrics HTTP/1.0\n\n", r) == Reading::kWhole);
    assert_true(r.path == "/metrics");
    assert_true(http::read_request("\r\nHEAD http://h HTTP/1.1\r\nhOST: \r\nA:\tb\r\n\r\nrest", r) == Reading::kWhole);
    assert_true(r.method == "HEAD" && r.path == "/");
    for (const char *part :
         {"", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost"})
        assert_true(read(part) == Reading::kMore);
    for (const char *bad : {"\n", "GET /\r\n", "GET / HTTP/2.0\r\n", "GET / HTTP/1.x\r\n", "GET  / HTTP/1.1\r\n",
                            "G(T / HTTP/1.1\r\n", "GET /\x01 HTTP/1.1\r\n", "GET / HTTP/1.1\r\nno colon\r\n",
                            "GET / HTTP/1.1\r\n folded: x\r\n", "GET / HTTP/1.1\r\nA b: x\r\n",
                            "GET / HTTP/1.1\r\nA: \x1b\r\n", "GET / HTTP/1.1\r\nA: b\r\n\r\n", " / HTTP/1.1\r\n"})
        assert_true(read(bad) == Reading::kBad);
}

void test_long_requests(void **)
{
    const std::string line(http::kMostRequest + 1, 'a');
    assert_true(read(line.c_str()) == http::Reading::kTooLarge);
    assert_true(read(("GET / HTTP/1.1\r\nHost: x\r\nA: " + line + "\r\n\r\n").c_str()) == http::Reading::kTooLarge);
    assert_true(read(std::string(http::kMostRequest, 'a').c_str()) == http::Reading::kMore);
}

void test_answers(void **)
{
    unsigned pages = 0;
    const auto page = [&pages] { return std::string(++pages, 'x'); };
    const auto ask = [&page](const char *method, const char *path) { return http::answer({method, path}, page); };
    assert_string_equal(ask("GET", "/metrics").c_str(),
                        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "Content-Length: 1\r\nConnection: close\r\n\r\nx");
    const std::string head = ask("HEAD", "/metrics");
    assert_true(has(head, "Content-Length: 2\r\n") && head.substr(head.size() - 4) == "\r\n\r\n");
    assert_true(ask("GET", "/").substr(0, 12) == "HTTP/1.1 200");
    assert_true(ask("GET", "/metrics/").substr(0, 12) == "HTTP/1.1 404");
    assert_true(has(ask("POST", "/metrics"), "HTTP/1.1 405 Method Not Allowed\r\n"));
    assert_true(has(ask("POST", "/metrics"), "\r\nAllow: GET, HEAD\r\n"));
    assert_int_equal(pages, 2);
}

void test_addresses(void **)
{
    ListenAddress a;
    assert_true(read_listen_address("9477", a));
    const auto &v4 = reinterpret_cast<const sockaddr_in &>(a.bytes);
    assert_true(a.bytes.ss_family == AF_INET && v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK) &&
                v4.sin_port == htons(9477));
    assert_true(read_listen_address("0.0.0.0:0", a) && v4.sin_addr.s_addr == 0);
    assert_true(read_listen_address("localhost:1", a) && v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    assert_true(read_listen_address("[::1]:80", a) && a.bytes.ss_family == AF_INET6);
    assert_true(read_listen_address("unix:/run/x.sock", a) && a.path == "/run/x.sock");
    const std::string too_long = "unix:" + std::string(108, 'p');
    for (const char *bad : {"", ":", "host:80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "::1:80", "[::1]",
                            "1.2.3.4:8x", "1.2.3.4: 8", "unix:", too_long.c_str()})
        assert_false(read_listen_address(bad, a));
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_families_are_together),
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_labels_are_utf8),
        cmocka_unit_test(test_totals_have_what_is_closed),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_page_of_sockets_is_bounded),
        cmocka_unit_test(test_same_names_are_added),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_long_requests),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
