// SPDX-License-Identifier: BSD-2-Clause
#include "compat/src/config/log_callback.hpp"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "compat/src/config/aliases.hpp"
#include "compat/src/config/log.hpp"

namespace vma::config {

namespace {

constexpr const char *kVariable = "VMA_LOG_CB_FUNC_PTR";

// Does the address lie in the code of a loaded object? The first that says 1 ends the search.
int has_code_at(dl_phdr_info *object, std::size_t, void *argument)
{
    const std::uintptr_t address = *static_cast<const std::uintptr_t *>(argument);
    for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = object->dlpi_phdr[i];
        const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && address >= start &&
            address - start < segment.p_memsz)
            return 1;
    }
    return 0;
}

} // namespace

LogCallback take_log_callback()
{
    const char *const text = variable(kVariable);
    void *pointer = nullptr;
    char rest = '\0';
    if (text == nullptr)
        return nullptr;
    const bool valid = std::sscanf(text, "%p %c", &pointer, &rest) == 1;
    auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const bool found = valid && ::dl_iterate_phdr(has_code_at, &address) == 1;
    if (!found)
        VMA_LOG(kWarn, "%s=%s is not valid (expected a function of this process, as %%p prints it): not looked at",
                kVariable, text);
    ::unsetenv(kVariable);
    return found ? reinterpret_cast<LogCallback>(pointer) : nullptr;
}

} // namespace vma::config
