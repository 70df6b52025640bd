// SPDX-License-Identifier: BSD-2-Clause
// What tests do to the simulated NIC: a new world, the clock, faults, the wire, counts.
#include "contrib/lab/sim/world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace vma::sim {
namespace {

template <typename Set> void free_all(Set &objects)
{
    for (auto *object : objects)
        delete object;
    objects.clear();
}

template <typename Map> void free_values(Map &objects)
{
    for (const auto &[key, object] : objects)
        delete object;
    objects.clear();
}

void free_objects(World &w)
{
    cm_reset();
    free_all(w.flows);
    free_values(w.qps);
    free_all(w.srqs);
    free_all(w.cqs);
    free_all(w.channels);
    free_all(w.ahs);
    free_values(w.mrs);
    free_all(w.dms);
    free_all(w.pds);
    free_all(w.contexts);
    w.unacked.clear();
    w.devices.clear();
}

void add_device(World &w, const DeviceConfig &config)
{
    auto made = std::make_unique<Device>();
    static_cast<ibv_device &>(*made) = {};
    made->config = config;
    made->place = static_cast<unsigned>(w.devices.size());
    made->node_type = IBV_NODE_CA;
    made->transport_type = IBV_TRANSPORT_IB;
    const std::string name = config.name.empty() ? "sim" + std::to_string(made->place) : config.name;
    std::snprintf(made->name, sizeof(made->name), "%s", name.c_str());
    std::snprintf(made->dev_name, sizeof(made->dev_name), "uverbs-%s", name.substr(0, 32).c_str());
    for (const std::string &address : config.addresses) {
        ibv_gid gid;
        if (gid_of(address, gid)) {
            made->gids.push_back(gid);
        } else {
            std::fprintf(stderr, "sim: device %s: \"%s\" is no IP address\n", made->name, address.c_str());
            std::abort();
        }
    }
    if (config.wire >= 0)
        made->wire = std::make_unique<RealWire>(
            w.mutex, config.wire, config.host,
            [device = made.get()](std::span<const std::uint8_t> frame) { return take_frame(*device, frame); });
    w.devices.push_back(std::move(made));
}

// A test that names what is not there is wrong, and shall know where.
template <typename Object> Object &there(Object *object, const char *what, unsigned number)
{
    if (object == nullptr) {
        std::fprintf(stderr, "sim: there is no %s %u\n", what, number);
        std::abort();
    }
    return *object;
}

Device &device_at(unsigned place)
{
    auto &all = world().devices;
    return there(place < all.size() ? all[place].get() : nullptr, "device", place);
}

Qp &qp_at(std::uint32_t number)
{
    const auto found = world().qps.find(number);
    return there(found == world().qps.end() ? nullptr : found->second, "QP", number);
}

void each_context(const Device &device, const std::function<void(Context &)> &act)
{
    for (Context *context : world().contexts) {
        if (context->nic == &device)
            act(*context);
    }
}

void set_port(unsigned place, bool up)
{
    const std::lock_guard guard(world().mutex);
    Device &device = device_at(place);
    if (std::exchange(device.up, up) == up || device.removed)
        return;
    const ibv_event_type type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
    each_context(device, [type](Context &context) { async_event(&context.context, type, nullptr); });
}

unsigned unacked(const World &w)
{
    auto found = static_cast<unsigned>(w.unacked.size()) + w.cm_unacked;
    for (const Cq *cq : w.cqs)
        found += cq->given - cq->comp_events_completed;
    return found;
}

Live live(const World &w)
{
    const auto count = [](const auto &objects) { return static_cast<unsigned>(objects.size()); };
    Live made{};
    made.contexts = count(w.contexts);
    for (const auto &device : w.devices)
        made.contexts -= device->cm_context != nullptr;
    made.pds = count(w.pds);
    made.mrs = count(w.mrs);
    made.dms = count(w.dms);
    made.comp_channels = count(w.channels);
    made.cqs = count(w.cqs);
    made.srqs = count(w.srqs);
    made.qps = count(w.qps);
    made.ahs = count(w.ahs);
    made.flows = count(w.flows);
    made.event_channels = count(w.cm_channels);
    made.ids = count(w.ids);
    made.unacked = unacked(w);
    return made;
}

} // namespace

World &world()
{
    // What is left at exit goes before the world it is in.
    struct Cleaner {
        ~Cleaner() { reset({}); }
    };
    static World one;
    static const Cleaner cleaner;
    return one;
}

unsigned Live::total() const
{
    return contexts + pds + mrs + dms + comp_channels + cqs + srqs + qps + ahs + flows + event_channels + ids + unacked;
}

void reset(const Config &config)
{
    World &w = world();
    w.timers.stop();
    for (const auto &device : w.devices)
        device->wire.reset();
    const std::lock_guard guard(w.mutex);
    free_objects(w);
    w.config = config;
    w.timers.start(config.clock == Clock::manual);
    w.cuts.clear();
    w.route_faults.clear();
    w.faults.clear();
    w.rnr_waits = w.cm_unacked = 0;
    w.frame_loss = 0;
    w.random = 0;
    w.stats = {};
    for (const DeviceConfig &device : config.devices)
        add_device(w, device);
}

Ns now()
{
    const std::lock_guard guard(world().mutex);
    return world().timers.now();
}

void advance(Ns by)
{
    const std::lock_guard guard(world().mutex);
    world().timers.advance(by);
}

Ns next_due()
{
    const std::lock_guard guard(world().mutex);
    return world().timers.next();
}

void cut(unsigned device, unsigned other)
{
    const std::lock_guard guard(world().mutex);
    world().cuts.insert(std::minmax(device, other));
}

void join(unsigned device, unsigned other)
{
    const std::lock_guard guard(world().mutex);
    world().cuts.erase(std::minmax(device, other));
}

void port_down(unsigned device)
{
    set_port(device, false);
}
void port_up(unsigned device)
{
    set_port(device, true);
}

void replace_peers(unsigned place)
{
    const std::lock_guard guard(world().mutex);
    cm_peers_replaced(device_at(place));
}

void remove_device(unsigned place)
{
    World &w = world();
    const std::lock_guard guard(w.mutex);
    Device &device = device_at(place);
    if (std::exchange(device.removed, true))
        return;
    each_context(device, [](Context &context) { async_event(&context.context, IBV_EVENT_DEVICE_FATAL, nullptr); });
    for (const auto &[number, qp] : w.qps) {
        if (&nic(qp->context) == &device && qp->state != IBV_QPS_RESET)
            to_error(*qp);
    }
    cm_device_removed(device);
}

void drop_completion(std::uint32_t qp_num)
{
    const std::lock_guard guard(world().mutex);
    qp_at(qp_num).drop_completion = true;
}

void break_qp(std::uint32_t qp_num)
{
    const std::lock_guard guard(world().mutex);
    Qp &qp = qp_at(qp_num);
    async_event(qp.context, IBV_EVENT_QP_FATAL, &qp);
    to_error(qp);
}

void force_rnr(std::uint32_t qp_num, unsigned times)
{
    const std::lock_guard guard(world().mutex);
    qp_at(qp_num).forced_rnr = times;
}

void fail_post(std::uint32_t qp_num, int error)
{
    const std::lock_guard guard(world().mutex);
    qp_at(qp_num).post_error = error;
}

bool fail_call(std::string_view function, unsigned n, int error)
{
    const std::lock_guard guard(world().mutex);
    if (!known_function(function) || n == 0)
        return false;
    world().faults[std::string(function)] = {n - 1, error};
    return true;
}

void fail_route(const std::string &address, int status)
{
    const std::lock_guard guard(world().mutex);
    ibv_gid gid;
    if (gid_of(address, gid))
        world().route_faults[std::string(reinterpret_cast<const char *>(gid.raw), sizeof(gid.raw))] = status;
}

Stats stats()
{
    const std::lock_guard guard(world().mutex);
    Stats made = world().stats;
    made.live = live(world());
    return made;
}

void wait_acknowledged(std::unique_lock<std::mutex> &lock, const char *what, const std::function<bool()> &done)
{
    if (world().acknowledged.wait_for(lock, world().config.ack_patience, done))
        return;
    std::fprintf(stderr, "sim: %s() waits for events that are not acknowledged; it would wait for ever\n", what);
    std::abort();
}

} // namespace vma::sim
