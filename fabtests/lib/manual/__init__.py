# SPDX-License-Identifier: BSD-2-Clause
"""A page of examples, and the terminals at which they are typed."""
