// SPDX-License-Identifier: BSD-2-Clause
// What tests of the provider's objects share: a directory of their own, an open fabric, an event queue, and events read
// with a bound on the time that a broken provider may take. Programs use fi_*; none of it needs libfabric.so.
#pragma once

#include "fabtests/unit.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#include "fabtests/patience.hpp"
#include "ofi/address.hpp"
#include "ofi/info/info.hpp"

extern "C" FI_EXT_INI;

namespace vma::test {

inline const int kPatience = patience::milliseconds(); // never waited for unless something is broken
inline constexpr std::uint32_t kApi = FI_VERSION(1, 17);

// An empty directory for endpoints' names, removed at the end.
class OwnDirectory
{
public:
    OwnDirectory()
    {
        char path[] = "/tmp/vma-test-XXXXXX";
        path_ = ::mkdtemp(path);
        ::setenv("FI_VMA_DIR", path_.c_str(), 1);
    }
    ~OwnDirectory()
    {
        for (const std::string &name : names())
            ::unlink((path_ + "/" + name).c_str());
        ::rmdir(path_.c_str());
    }
    OwnDirectory(const OwnDirectory &) = delete;
    OwnDirectory &operator=(const OwnDirectory &) = delete;

    const std::string &path() const { return path_; }
    std::vector<std::string> names() const
    {
        std::vector<std::string> found;
        DIR *list = ::opendir(path_.c_str());
        while (const dirent *entry = list != nullptr ? ::readdir(list) : nullptr) {
            if (entry->d_name[0] != '.')
                found.emplace_back(entry->d_name);
        }
        if (list != nullptr)
            ::closedir(list);
        return found;
    }

private:
    std::string path_;
};

inline ofi::InfoPtr ask(const char *node, const char *service, std::uint64_t flags, const fi_info *hints,
                        int *error = nullptr)
{
    fi_info *info = nullptr;
    const int result = fi_prov_ini()->getinfo(kApi, node, service, flags, hints, &info);
    if (error != nullptr)
        *error = result;
    else
        assert_int_equal(result, 0);
    return ofi::InfoPtr(info);
}

inline int open_descriptors()
{
    int count = 0;
    DIR *list = ::opendir("/proc/self/fd");
    assert_non_null(list);
    if (list == nullptr)
        return 0;
    while (::readdir(list) != nullptr)
        ++count;
    ::closedir(list);
    return count;
}

struct Event {
    ssize_t result = 0;
    std::uint32_t event = 0;
    fid_t fid = nullptr;
    ofi::InfoPtr info;
    std::string data;
    int err = 0;
};

// One fabric with an event queue.
struct Net {
    ofi::InfoPtr info;
    fid_fabric *fabric = nullptr;
    fid_eq *eq = nullptr;
    fid_domain *domain = nullptr; // with the first endpoint
    fid_cq *cq = nullptr;

    explicit Net(const char *node = "127.0.0.1", const fi_info *hints = nullptr)
    {
        info = ask(node, "0", FI_SOURCE, hints);
        assert_int_equal(fi_prov_ini()->fabric(info->fabric_attr, &fabric, nullptr), 0);
        fi_eq_attr attr{};
        attr.wait_obj = FI_WAIT_UNSPEC;
        attr.flags = FI_WRITE;
        assert_int_equal(fi_eq_open(fabric, &attr, &eq, nullptr), 0);
    }
    ~Net()
    {
        if (cq != nullptr)
            assert_int_equal(fi_close(&cq->fid), 0);
        if (domain != nullptr)
            assert_int_equal(fi_close(&domain->fid), 0);
        if (eq != nullptr)
            assert_int_equal(fi_close(&eq->fid), 0);
        assert_int_equal(fi_close(&fabric->fid), 0);
    }
    Net(const Net &) = delete;
    Net &operator=(const Net &) = delete;

    // A passive endpoint that listens. The address tells where.
    fid_pep *listen(ofi::Address &address, fid_eq *events = nullptr)
    {
        fid_pep *pep = nullptr;
        assert_int_equal(fi_passive_ep(fabric, info.get(), &pep, nullptr), 0);
        assert_int_equal(fi_pep_bind(pep, events != nullptr ? &events->fid : &eq->fid, 0), 0);
        assert_int_equal(fi_listen(pep), 0);
        std::size_t length = sizeof(sockaddr_in6);
        assert_int_equal(fi_getname(&pep->fid, &address.v6, &length), 0);
        return pep;
    }

    // An active endpoint, bound to the queues. `model` is the fabric's own info or that of a request.
    fid_ep *endpoint(fi_info *model = nullptr, void *context = nullptr)
    {
        if (domain == nullptr) {
            fi_cq_attr attr{};
            attr.format = FI_CQ_FORMAT_DATA;
            assert_int_equal(fi_domain(fabric, info.get(), &domain, nullptr), 0);
            assert_int_equal(fi_cq_open(domain, &attr, &cq, nullptr), 0);
        }
        fid_ep *ep = nullptr;
        assert_int_equal(fi_endpoint(domain, model != nullptr ? model : info.get(), &ep, context), 0);
        assert_int_equal(fi_ep_bind(ep, &eq->fid, 0), 0);
        assert_int_equal(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
        return ep;
    }

    Event take(ssize_t result, std::uint32_t event, const void *buffer)
    {
        Event got;
        got.result = result;
        got.event = event;
        if (result == -FI_EAVAIL) {
            fi_eq_err_entry entry{};
            assert_int_equal(fi_eq_readerr(eq, &entry, 0), sizeof(entry));
            got.fid = entry.fid;
            got.err = entry.err;
            if (entry.err_data_size > 0)
                got.data.assign(static_cast<const char *>(entry.err_data), entry.err_data_size);
        } else if (result >= static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
            fi_eq_cm_entry entry{};
            std::memcpy(&entry, buffer, sizeof(entry));
            got.fid = entry.fid;
            if (event == FI_CONNREQ)
                got.info.reset(entry.info);
            got.data.assign(static_cast<const char *>(buffer) + sizeof(entry),
                            static_cast<std::size_t>(result) - sizeof(entry));
        }
        return got;
    }
    Event wait(int milliseconds = kPatience)
    {
        alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 512];
        std::uint32_t event = ~0U;
        const ssize_t result = fi_eq_sread(eq, &event, buffer, sizeof(buffer), milliseconds, 0);
        return take(result, event, buffer);
    }
    Event poll()
    {
        alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 512];
        std::uint32_t event = ~0U;
        const ssize_t result = fi_eq_read(eq, &event, buffer, sizeof(buffer), 0);
        return take(result, event, buffer);
    }
};

template <typename Value> Value option(fid_ep *ep, unsigned name)
{
    Value value{};
    std::size_t length = sizeof value;
    assert_int_equal(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, static_cast<int>(name), &value, &length), 0);
    assert_int_equal(length, sizeof value);
    return value;
}

} // namespace vma::test
