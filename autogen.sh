#!/bin/sh
# Makes ./configure from configure.ac. Needs autoconf, automake and pkg-config.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf --install --force "$@"
