// SPDX-License-Identifier: BSD-2-Clause
// What a device gives to the objects that all devices share. It is asked when objects are opened and when control
// events are read, never on the data path: there the seam is libfabric's own operation tables.
#pragma once

#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

namespace vma::ofi {

struct Fabric;
struct Domain;
struct Query;
class InfoList;

// A device's part of one open domain.
class DeviceDomain
{
public:
    virtual ~DeviceDomain() = default;
};

// A device's part of one open fabric.
class DeviceFabric
{
public:
    virtual ~DeviceFabric() = default;

    // Reads what arrived and posts events. Without `wait` it returns at once where another thread is at it.
    virtual void progress(bool wait) noexcept = 0;
    // Readable when progress() has something to do. Event queues nest it in their own wait sets.
    virtual int wait_fd() const noexcept = 0;
    // What other processes ask of this one is done, and nothing else; service_fd() is readable when there is such, -1
    // where there never is. Event queues that make no progress do this.
    virtual void serve() noexcept {}
    virtual int service_fd() const noexcept { return -1; }
    // Fills the domain's `fid.mr` and `device`. The info has a domain_attr whose name, if any, is to be compared.
    virtual int domain(Domain &domain, const fi_info &info) noexcept = 0;
    virtual int passive_ep(fi_info *info, fid_pep **pep, void *context) noexcept = 0;
    virtual int endpoint(Domain &domain, fi_info *info, fid_ep **ep, void *context) noexcept = 0;
    virtual int shared_receive(Domain &domain, fi_rx_attr *attr, fid_ep **ep, void *context) noexcept = 0;
    virtual int completion_queue(Domain &domain, fi_cq_attr *attr, fid_cq **cq, void *context) noexcept = 0;
    // A table of calls of its own; nullptr: it has none of that name.
    virtual void *ops(const char *) noexcept { return nullptr; }
};

struct Device {
    const char *name; // of its fabric
    // Adds what it offers for a call of fi_getinfo.
    void (*list)(const Query &query, InfoList &list) noexcept;
    std::unique_ptr<DeviceFabric> (*open)(Fabric &fabric, int *error) noexcept;
    void (*open_libraries)() noexcept; // that it finds at run time; nullptr: none
};

extern const Device kLocalDevice;
extern const Device kVerbsDevice;
extern const Device kEtherDevice;

// All of them, in the order of preference.
inline constexpr const Device *kDevices[] = {&kLocalDevice, &kVerbsDevice, &kEtherDevice};

} // namespace vma::ofi
