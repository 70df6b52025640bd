// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/intercept/export.hpp"

#include "compat/src/intercept/liburing.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>

#include "compat/src/libc/sections.hpp"
#include "compat/src/table/uring.hpp"

namespace vma::intercept {

namespace {

[[VMA_TABLE]] constinit Scopes g_scopes;
[[VMA_TABLE]] constinit Owners g_owners;

const char *const kNames[] = {
#define X(name) #name,
    VMA_LIBURING_FUNCTIONS(X)
#undef X
};

// By the name of its file, liburing*.so*: bundles put something of their own in the middle.
bool is_liburings_file(const char *path)
{
    constexpr char kName[] = "liburing";
    if (path == nullptr)
        return false;
    const char *const slash = strrchr(path, '/');
    const char *const name = slash != nullptr ? slash + 1 : path;
    return strncmp(name, kName, sizeof kName - 1) == 0 && strstr(name, ".so") != nullptr;
}

// ---- an object of the process

struct Object {
    std::uintptr_t at; // one address in it
    std::uintptr_t begin;
    std::uintptr_t end;
    const char *path; // empty: the program's
};

// dl_iterate_phdr()'s, for each of them.
int find_object(dl_phdr_info *info, std::size_t, void *data)
{
    auto &object = *static_cast<Object *>(data);
    std::uintptr_t begin = UINTPTR_MAX;
    std::uintptr_t end = 0;
    bool has = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD)
            continue;
        const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
        begin = std::min(begin, start);
        end = std::max(end, start + segment.p_memsz);
        has = has || (object.at >= start && object.at < start + segment.p_memsz);
    }
    if (!has)
        return 0;
    object.begin = begin;
    object.end = end;
    object.path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    return 1;
}

// Code that was made by the program itself is in none: the page around it, which finds what the program finds.
Object object_at(const void *address)
{
    constexpr std::uintptr_t kPage = 4096;
    Object object = {reinterpret_cast<std::uintptr_t>(address), 0, 0, ""};
    if (::dl_iterate_phdr(&find_object, &object) == 0) {
        object.begin = object.at & ~(kPage - 1);
        object.end = object.begin + kPage;
    }
    return object;
}

// ---- where its functions are

bool is_ours(const void *function)
{
    static const char in_our_data = 0;
    Dl_info here = {};
    Dl_info there = {};
    return ::dladdr(&in_our_data, &here) != 0 && ::dladdr(function, &there) != 0 && here.dli_fbase == there.dli_fbase;
}

// `object` is a handle, RTLD_NEXT, or nullptr: nothing is found. It stays where it is, whoever closes it.
Behind find_in(void *object, const char *name)
{
    void *const found = object != nullptr ? ::dlsym(object, name) : nullptr;
    Dl_info where = {};
    if (found == nullptr || is_ours(found))
        return {};
    if (::dladdr(found, &where) == 0 || where.dli_fname == nullptr)
        return {found, false};
    ::dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return {found, is_liburings_file(where.dli_fname)};
}

// False: there is none of them.
bool find_all(Scope &scope, void *object)
{
    bool any = false;
    for (std::size_t i = 0; i < kLiburings; ++i)
        if (scope.functions[i].function == nullptr) {
            scope.functions[i] = find_in(object, kNames[i]);
            any = any || scope.functions[i].function != nullptr;
        }
    return any;
}

bool find_all_in(Scope &scope, const char *path)
{
    void *const object = ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    const bool any = object != nullptr && find_all(scope, object);
    if (object != nullptr)
        ::dlclose(object);
    return any;
}

// One that was found for another caller: this one calls for an object of which it knows nothing (a plug-in's function
// that ends with a call leaves its caller's address).
void take_anothers(Scope &scope)
{
    if (g_scopes.count.load(std::memory_order_acquire) != 0)
        std::copy(std::begin(g_scopes.all[0].functions), std::end(g_scopes.all[0].functions), scope.functions);
}

// Liburing's, and not only called so; or ours, which has called a function of liburing's that ends with the call of
// another one.
bool is_inner(const Object &object, const Scope &scope)
{
    return (is_liburings_file(object.path) && scope.has(scope[Liburings::io_uring_submit].function)) ||
           is_ours(reinterpret_cast<const void *>(object.at));
}

// What the program finds by itself is found without its name, by which the loader would look for the file.
Scope look_up(const Object &object)
{
    Scope scope = {object.begin, object.end, false, {}};
    const bool own = object.path[0] != 0 && find_all_in(scope, object.path);
    const bool next = find_all(scope, RTLD_NEXT);
    if (!own && !next && !find_all_in(scope, "liburing.so.2") && !find_all_in(scope, "liburing.so.1"))
        take_anothers(scope);
    scope.is_inner = is_inner(object, scope);
    ::dlerror(); // what was not found is not the program's mistake
    return scope;
}

bool has_any(const Scope &scope)
{
    return std::any_of(std::begin(scope.functions), std::end(scope.functions),
                       [](const Behind &behind) { return behind.function != nullptr; });
}

// Not one that finds nothing: what it means may be loaded later.
const Scope *keep(const Scope &scope)
{
    if (!has_any(scope))
        return nullptr;
    const sock::LockGuard guard(sock::g_urings.lock); // which a child of fork() finds free
    const int count = g_scopes.count.load(std::memory_order_relaxed);
    for (int i = 0; i < count; ++i)
        if (g_scopes.all[i].begin == scope.begin && g_scopes.all[i].end == scope.end)
            return &g_scopes.all[i];
    if (count == Scopes::kMost)
        return nullptr;
    g_scopes.all[count] = scope;
    g_scopes.count.store(count + 1, std::memory_order_release);
    return &g_scopes.all[count];
}

void keep_ours()
{
    static const char in_our_data = 0;
    if (known_scope(&in_our_data) == nullptr)
        keep(look_up(object_at(&in_our_data)));
}

// Also that of the liburing that it has found, whose functions will call each other, and ours.
const Scope *keep_with_inner(const Scope &scope)
{
    const Scope *const kept = keep(scope);
    if (kept != nullptr)
        keep_ours();
    const auto *const found = std::find_if(std::begin(scope.functions), std::end(scope.functions),
                                           [](const Behind &behind) { return behind.is_liburings; });
    if (found != std::end(scope.functions) && known_scope(found->function) == nullptr)
        keep(look_up(object_at(found->function)));
    return kept;
}

} // namespace

const Scope *known_scope(const void *caller)
{
    const int count = g_scopes.count.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i)
        if (g_scopes.all[i].has(caller))
            return &g_scopes.all[i];
    return nullptr;
}

const Scope *scope_of(const void *caller)
{
    if (const Scope *const known = known_scope(caller)) [[likely]]
        return known;
    const KeepErrno keep;
    return keep_with_inner(look_up(object_at(caller)));
}

Behind find_behind(Liburings which, const void *caller)
{
    if (const Scope *const known = known_scope(caller)) [[likely]]
        return (*known)[which];
    const KeepErrno keep;
    const Scope scope = look_up(object_at(caller));
    keep_with_inner(scope);
    return scope[which];
}

bool is_inner_call(const void *caller)
{
    if (const Scope *const known = known_scope(caller)) [[likely]]
        return known->is_inner;
    const KeepErrno keep;
    const Object object = object_at(caller);
    return is_inner(object, look_up(object));
}

namespace {

Owners::Owner *owner_of(const void *head)
{
    const int end = g_owners.end.load(std::memory_order_acquire);
    for (int i = 0; i < end; ++i)
        if (g_owners.all[i].head.load(std::memory_order_acquire) == head)
            return &g_owners.all[i];
    return nullptr;
}

// nullptr: it is not known.
const Scope *scope_of_owner(const LiburingUring &uring)
{
    const Owners::Owner *const owner = uring.submissions.head != nullptr ? owner_of(uring.submissions.head) : nullptr;
    return owner != nullptr ? owner->scope.load(std::memory_order_relaxed) : nullptr;
}

bool is_structure(const LiburingUring *uring)
{
    constexpr std::uintptr_t kNumbers = 65536;
    const auto at = reinterpret_cast<std::uintptr_t>(uring);
    return at >= kNumbers && at % alignof(LiburingUring) == 0;
}

} // namespace

void own(const LiburingUring &uring, const void *caller)
{
    const Scope *const scope = scope_of(caller);
    if (scope == nullptr)
        return;
    const KeepErrno keep;
    const sock::LockGuard guard(sock::g_urings.lock);
    Owners::Owner *owner = owner_of(uring.submissions.head);
    if (owner == nullptr)
        owner = owner_of(nullptr);
    const int end = g_owners.end.load(std::memory_order_relaxed);
    if (owner == nullptr && end < Owners::kMost)
        owner = &g_owners.all[end];
    if (owner == nullptr)
        return;
    owner->scope.store(scope, std::memory_order_relaxed);
    owner->head.store(uring.submissions.head, std::memory_order_release);
    if (owner == &g_owners.all[end])
        g_owners.end.store(end + 1, std::memory_order_release);
}

void disown(const LiburingUring &uring)
{
    const sock::LockGuard guard(sock::g_urings.lock);
    if (uring.submissions.head != nullptr)
        if (Owners::Owner *const owner = owner_of(uring.submissions.head))
            owner->head.store(nullptr, std::memory_order_release);
}

Met meet(const LiburingUring *uring, Liburings which, const void *caller)
{
    const Scope *const callers = known_scope(caller);
    if ((callers != nullptr && !(*callers)[which].is_liburings && (*callers)[which].function != nullptr) ||
        !is_structure(uring))
        return {callers != nullptr ? (*callers)[which] : find_behind(which, caller), {}};
    const Scope *const owner = scope_of_owner(*uring);
    if (owner == nullptr)
        return {find_behind(which, caller), {}};
    const sock::UringReference found = sock::find_liburing(uring->submissions.head, uring->fd);
    if (!found || found->inherited.load(std::memory_order_relaxed) || libc::in_vfork_child()) [[unlikely]]
        return {(*owner)[which], {}};
    return {(*owner)[which], found};
}

Met meet_used(const LiburingUring *uring, Liburings which, const void *caller)
{
    const Met met = meet(uring, which, caller);
    if (met.read || !met.behind.is_liburings) [[likely]]
        return met;
    const Scope *const callers = known_scope(caller); // liburing's and ours are, by now
    const KeepErrno keep;
    if (!sock::sandboxed() && (callers == nullptr || !callers->is_inner))
        sock::ring_seen(kNames[static_cast<std::size_t>(which)]);
    return met;
}

} // namespace vma::intercept
