# SPDX-License-Identifier: BSD-2-Clause
"""The layout of <mellanox/vma_extra.h>, in C and C++: every size and offset that binaries built with libvma's header count on."""

import os
import subprocess

import pytest

from lib import build, patience

INCLUDE = build.TOP / "include"

# struct: size, alignment, {field: offset}
LAYOUT = {
    "vma_packets_t": (8, 1, {"n_packet_num": 0, "pkts": 8}),
    "vma_packet_t": (16, 1, {"packet_id": 0, "sz_iov": 8, "iov": 16}),
    "vma_info_t": (80, 1, {"struct_sz": 0, "packet_id": 8, "src": 16, "dst": 24, "payload_sz": 32,
                           "socket_ready_queue_pkt_count": 40, "socket_ready_queue_byte_count": 44,
                           "hw_timestamp": 48, "sw_timestamp": 64}),
    "vma_buff_t": (24, 8, {"next": 0, "payload": 8, "len": 16}),
    "vma_packet_desc_t": (40, 8, {"num_bufs": 0, "total_len": 8, "buff_lst": 16, "hw_timestamp": 24}),
    "vma_completion_t": (80, 8, {"packet": 0, "events": 40, "user_data": 48, "src": 56, "listen_fd": 72}),
    "vma_rate_limit_t": (12, 4, {"rate": 0, "max_burst_sz": 4, "typical_pkt_sz": 8}),
    "vma_ring_alloc_logic_attr": (20, 4, {"comp_mask": 0, "ring_alloc_logic": 4, "ring_profile_key": 8, "user_id": 12}),
    "vma_cmsg_ioctl_user_alloc_t": (17, 1, {"flags": 0, "memalloc": 1, "memfree": 9}),
    "vma_ring_type_attr": (12, 4, {"comp_mask": 0, "ring_type": 4, "ring_pktq": 8, "ring_ext": 8}),
    "vma_modify_ring_attr": (16, 4, {"comp_bit_mask": 0, "ring_fd": 4, "cq_moderation": 8, "cq_arm": 8}),
    "dev_data": (12, 4, {"vendor_id": 0, "vendor_part_id": 4, "device_cap": 8}),
    "hw_cq_data": (48, 8, {"buf": 0, "dbrec": 8, "cq_size": 16, "cqe_size": 20, "cqn": 24, "uar": 32, "cons_idx": 40}),
    "hw_wq_data": (72, 8, {"buf": 0, "wqe_cnt": 8, "stride": 12, "dbrec": 16, "cq_data": 24}),
    "hw_rq_data": (88, 8, {"wq_data": 0, "head": 72, "tail": 80}),
    "hw_sq_data": (96, 8, {"wq_data": 0, "sq_num": 72, "bf": 80}),
    "vma_mlx_hw_device_data": (200, 8, {"valid_mask": 0, "dev_data": 4, "sq_data": 16, "rq_data": 112}),
    "vma_api_t": (168, 1, {name: 8 * place for place, name in enumerate((
        "register_recv_callback", "recvfrom_zcopy", "free_packets", "add_conf_rule", "thread_offload", "socketxtreme_poll",
        "get_socket_rings_num", "get_socket_rings_fds", "get_socket_tx_ring_fd", "socketxtreme_free_vma_packets",
        "socketxtreme_ref_vma_buff", "socketxtreme_free_vma_buff", "dump_fd_stats", "vma_add_ring_profile",
        "get_socket_network_header", "get_ring_direct_descriptors", "register_memory_on_ring",
        "deregister_memory_on_ring", "vma_modify_ring", "vma_extra_supported_mask", "ioctl"))}),
}

CONSTANTS = {
    "SO_VMA_GET_API": 2800, "SO_VMA_USER_DATA": 2801, "SO_VMA_RING_ALLOC_LOGIC": 2810, "SO_VMA_RING_USER_MEMORY": 2811,
    "SO_VMA_FLOW_TAG": 2820, "SO_VMA_SHUTDOWN_RX": 2821, "MSG_VMA_ZCOPY_FORCE": 0x01000000, "MSG_VMA_ZCOPY": 0x00040000,
    "VMA_SND_FLAGS_DUMMY": 0x400, "CMSG_VMA_IOCTL_USER_ALLOC": 2900, "VMA_IOCTL_USER_ALLOC_TX": 1,
    "VMA_IOCTL_USER_ALLOC_RX": 2, "VMA_IOCTL_USER_ALLOC_FLAG_TX": 1, "VMA_IOCTL_USER_ALLOC_FLAG_RX": 2, "VMA_PACKET_DROP": 0, "VMA_PACKET_RECV": 1, "VMA_PACKET_HOLD": 2,
    "VMA_SOCKETXTREME_PACKET": 1 << 32, "VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED": 1 << 33,
    "RING_LOGIC_PER_INTERFACE": 0, "RING_LOGIC_PER_IP": 1, "RING_LOGIC_PER_SOCKET": 10, "RING_LOGIC_PER_USER_ID": 11,
    "RING_LOGIC_PER_THREAD": 20, "RING_LOGIC_PER_CORE": 30, "RING_LOGIC_PER_CORE_ATTACH_THREADS": 31, "RING_LOGIC_LAST": 32,
    "VMA_RING_ALLOC_MASK_RING_PROFILE_KEY": 1, "VMA_RING_ALLOC_MASK_RING_USER_ID": 2,
    "VMA_RING_ALLOC_MASK_RING_INGRESS": 4, "VMA_RING_ALLOC_MASK_RING_ENGRESS": 8,
    "VMA_MODIFY_RING_CQ_MODERATION": 1, "VMA_MODIFY_RING_CQ_ARM": 2, "VMA_RING_PACKET": 0, "VMA_RING_EXTERNAL_MEM": 1,
    "VMA_HW_PP_EN": 1, "VMA_HW_PP_BURST_EN": 8, "DATA_VALID_DEV": 0, "DATA_VALID_SQ": 1, "DATA_VALID_RQ": 2,
    "VMA_RING_ATTR_LAST": 0,
}

# What programs ask for by #ifdef.
MACROS = ("SO_VMA_GET_API", "SO_VMA_USER_DATA", "SO_VMA_RING_ALLOC_LOGIC", "SO_VMA_RING_USER_MEMORY", "SO_VMA_FLOW_TAG", "SO_VMA_SHUTDOWN_RX",
          "MSG_VMA_ZCOPY_FORCE", "MSG_VMA_ZCOPY", "VMA_SND_FLAGS_DUMMY")

TYPES = ("vma_recv_callback_retval_t", "vma_recv_callback_t", "vma_socketxtreme_events_t", "ring_logic_t", "vma_ring_profile_key",
         "vma_ring_type", "vma_ring_type_attr_mask", "vma_ring_alloc_logic_attr_comp_mask", "vma_modify_ring_mask", "mlx_hw_device_cap",
         "vma_mlx_hw_valid_data_mask", "vma_extra_api_mask")

# Functions of headers that libvma's header does not include: programs that wrap them have them as macros, of any kind.
WRAPPED = ("readv", "writev", "preadv", "pwritev", "process_vm_readv", "pthread_create", "pthread_join", "time", "nanosleep", "clock_gettime",
           "open", "creat", "poll", "ppoll", "epoll_wait", "close", "dup", "read", "write", "pipe", "fork", "fcntl", "ioctl", "malloc", "free")


def source(cxx):
    check = "static_assert" if cxx else "_Static_assert"
    align = "alignof" if cxx else "_Alignof"
    lines = ["#include <mellanox/vma_extra.h>", "#include <stddef.h>"]
    for name, (size, alignment, fields) in LAYOUT.items():
        lines.append(f'{check}(sizeof(struct {name}) == {size}, "size of {name}");')
        lines.append(f'{check}({align}(struct {name}) == {alignment}, "alignment of {name}");')
        lines += [f'{check}(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");'
                  for field, offset in fields.items()]
    lines += [f'{check}((unsigned long long)({name}) == {value}ULL, "{name}");' for name, value in CONSTANTS.items()]
    lines += [f"{name} of_type_{name};" for name in TYPES]
    for name in MACROS:
        lines += [f"#ifndef {name}", f"#error {name} is no macro", "#endif"]
    lines.append("int main(void) { return vma_get_api() == NULL ? 0 : 1; }")
    return "\n".join(lines) + "\n"


def wrapping_source():
    """A program with macros that no declaration of these functions survives."""
    lines = [f"#define {name}(first, ...) no_declaration_{name} (first" for name in WRAPPED]
    lines += ["#include <mellanox/vma_extra.h>"] + [f"#undef {name}" for name in WRAPPED]
    lines += ["struct iovec part;", "struct timespec moment;", "static int loads(struct vma_api_t *api) { return api->ioctl(0, 0); }"]
    lines.append("int main(void) { struct vma_api_t *api = vma_get_api(); return api == NULL ? 0 : loads(api); }")
    return "\n".join(lines) + "\n"


def build_and_run(language, text, tmp_path):
    cxx = "++" in language
    file = tmp_path / ("program.cpp" if cxx else "program.c")
    file.write_text(text)
    compiler = build.tool(os.environ.get("CXX", "c++") if cxx else os.environ.get("CC", "cc"))
    done = subprocess.run([compiler, f"-std={language}", "-Wall", "-Wextra", "-Wno-invalid-offsetof", "-Werror", "-I", INCLUDE,
                           file, "-o", tmp_path / "program"], capture_output=True, text=True, timeout=patience.seconds())
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "program"], timeout=patience.seconds()).returncode == 0, "a table without the library"


@pytest.mark.parametrize("language", ["c99", "c11", "gnu99", "gnu17", "c++11", "c++20"])
def test_layout(language, tmp_path):
    build_and_run(language, source("++" in language), tmp_path)


@pytest.mark.parametrize("language", ["gnu99", "gnu17", "c++11", "gnu++20"])
def test_names_that_a_program_has_as_macros(language, tmp_path):
    """The header declares nothing that libvma's does not: it did not compile behind a macro readv()."""
    build_and_run(language, wrapping_source(), tmp_path)
