// SPDX-License-Identifier: BSD-2-Clause
// libvma-check: what is wrong with libvma.conf, and which rule a socket would meet. See man/libvma-check.1.
#include "util/libvma_check/check.hpp"

int main(int argc, char **argv)
{
    return libvma_check::check("libvma-check", argc, argv);
}
