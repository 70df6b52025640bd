/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extra API of libvma.so, for C and C++: what sockets have no call for. Layout and numbers are those of libvma 8.7
 * to 9.8, so that programs built with either header work with either library. What each call does: vma_extra(3).
 *
 * All calls return -1 with errno where they fail, and may be made by any thread.
 */
#ifndef VMA_EXTRA_H
#define VMA_EXTRA_H

#pragma GCC system_header /* arrays without a length in structs, enumerators of 64 bits: extensions of both languages */

/*
 * No more than these: a program may have macros by the names of what other headers declare. They bring struct iovec,
 * and pthread_t and struct timespec unless the compiler is held to ISO C.
 */
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__STRICT_ANSI__) && !defined(__cplusplus)
#include <pthread.h>
#include <time.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * ---- socket options, all of SOL_SOCKET ------------------------------------------------------------------------------
 */

#define SO_VMA_GET_API 2800   /* get, of descriptor -1: see vma_get_api() */
#define SO_VMA_USER_DATA 2801 /* set, get: 8 bytes, in completions of the socket; its descriptor until it is set */
#define SO_VMA_RING_ALLOC_LOGIC 2810 /* set: struct vma_ring_alloc_logic_attr */
#define SO_VMA_RING_USER_MEMORY 2811 /* set, get: struct iovec */
#define SO_VMA_FLOW_TAG 2820         /* set: 4 bytes */
#define SO_VMA_SHUTDOWN_RX 2821      /* set, any value: the socket receives no more */

/*
 * ---- flags
 * ------------------------------------------------------------------------------------------------------------
 */

#define MSG_VMA_ZCOPY_FORCE 0x01000000 /* recvfrom_zcopy: without a copy or not at all */
#define MSG_VMA_ZCOPY 0x00040000       /* recvfrom_zcopy gave packets */

/* Of send() and its kind: the path is walked, and nothing sent. */
#define VMA_SND_FLAGS_DUMMY MSG_SYN

/*
 * ---- packets without a copy
 * --------------------------------------------------------------------------------------------
 */

#pragma pack(push, 1)
/* One packet: `sz_iov` parts of the receive buffers. The next one, if there is one, stands behind them. */
struct vma_packet_t {
    void *packet_id;
    size_t sz_iov;
    struct iovec iov[];
};

struct vma_packets_t {
    size_t n_packet_num;
    struct vma_packet_t pkts[];
};

struct vma_info_t {
    size_t struct_sz; /* of what the library filled: a later one may be longer */
    void *packet_id;  /* for free_packets() after VMA_PACKET_HOLD */
    struct sockaddr_in *src;
    struct sockaddr_in *dst;
    size_t payload_sz;                      /* bytes */
    uint32_t socket_ready_queue_pkt_count;  /* packets that wait to be read */
    uint32_t socket_ready_queue_byte_count; /* and their bytes */
    struct timespec hw_timestamp;           /* 0: not known */
    struct timespec sw_timestamp;
};
#pragma pack(pop)

typedef enum {
    VMA_PACKET_DROP = 0, /* the socket never sees it */
    VMA_PACKET_RECV = 1, /* it goes the usual way */
    VMA_PACKET_HOLD = 2  /* the program has it until free_packets() */
} vma_recv_callback_retval_t;

typedef vma_recv_callback_retval_t (*vma_recv_callback_t)(int fd, size_t sz_iov, struct iovec iov[],
                                                          struct vma_info_t *vma_info, void *context);

/*
 * ---- SocketXtreme
 * --------------------------------------------------------------------------------------------------------
 */

/* A buffer of a packet; given back by socketxtreme_free_vma_packets() or socketxtreme_free_vma_buff(). */
struct vma_buff_t {
    struct vma_buff_t *next;
    void *payload;
    uint16_t len;
};

struct vma_packet_desc_t {
    size_t num_bufs;
    uint16_t total_len;
    struct vma_buff_t *buff_lst;
    struct timespec hw_timestamp;
};

/* Bits of vma_completion_t.events, beside those of epoll. */
typedef enum {
    VMA_SOCKETXTREME_PACKET = (1ULL << 32),
    VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED = (1ULL << 33)
} vma_socketxtreme_events_t;

struct vma_completion_t {
    struct vma_packet_desc_t packet;
    uint64_t events;
    uint64_t user_data;
    struct sockaddr_in src;
    int listen_fd; /* of VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED; user_data is the new descriptor */
};

/*
 * ---- rings
 * ------------------------------------------------------------------------------------------------------------------
 */

typedef enum {
    RING_LOGIC_PER_INTERFACE = 0,
    RING_LOGIC_PER_IP = 1,
    RING_LOGIC_PER_SOCKET = 10,
    RING_LOGIC_PER_USER_ID = 11,
    RING_LOGIC_PER_THREAD = 20,
    RING_LOGIC_PER_CORE = 30,
    RING_LOGIC_PER_CORE_ATTACH_THREADS = 31,
    RING_LOGIC_LAST = 32
} ring_logic_t;

typedef enum {
    VMA_RING_ALLOC_MASK_RING_PROFILE_KEY = 1,
    VMA_RING_ALLOC_MASK_RING_USER_ID = 2,
    VMA_RING_ALLOC_MASK_RING_INGRESS = 4,
    VMA_RING_ALLOC_MASK_RING_ENGRESS = 8
} vma_ring_alloc_logic_attr_comp_mask;

typedef int vma_ring_profile_key;

struct vma_ring_alloc_logic_attr {
    uint32_t comp_mask; /* VMA_RING_ALLOC_MASK_...: which fields are meant */
    ring_logic_t ring_alloc_logic;
    uint32_t ring_profile_key;
    uint32_t user_id;
    uint32_t ingress : 1;
    uint32_t engress : 1;
    uint32_t reserved : 30;
};

typedef enum { VMA_RING_ATTR_LAST = 0 } vma_ring_type_attr_mask; /* of comp_mask below: there are none yet */

typedef enum { VMA_RING_PACKET = 0, VMA_RING_EXTERNAL_MEM = 1 } vma_ring_type;

typedef enum { VMA_HW_PP_EN = 1, VMA_HW_PP_BURST_EN = 8 } mlx_hw_device_cap;

struct vma_packet_queue_ring_attr {
    uint32_t comp_mask;
};

struct vma_external_mem_attr {
    uint32_t comp_mask;
};

struct vma_ring_type_attr {
    uint32_t comp_mask;
    vma_ring_type ring_type;
    union {
        struct vma_packet_queue_ring_attr ring_pktq;
        struct vma_external_mem_attr ring_ext;
    };
};

typedef enum { VMA_MODIFY_RING_CQ_MODERATION = 1, VMA_MODIFY_RING_CQ_ARM = 2 } vma_modify_ring_mask;

struct vma_cq_moderation_attr {
    uint32_t cq_moderation_count;
    uint32_t cq_moderation_period_usec;
};

struct vma_cq_arm_attr {
    uint8_t unused[8];
};

struct vma_modify_ring_attr {
    uint32_t comp_bit_mask;
    int ring_fd;
    union {
        struct vma_cq_moderation_attr cq_moderation;
        struct vma_cq_arm_attr cq_arm;
    };
};

/* SO_MAX_PACING_RATE, instead of a number of bytes a second. */
struct vma_rate_limit_t {
    uint32_t rate;         /* Kbit/s */
    uint32_t max_burst_sz; /* bytes */
    uint16_t typical_pkt_sz;
};

/*
 * ---- registers of a ConnectX: get_ring_direct_descriptors
 * ----------------------------------------------------------------
 */

typedef enum { DATA_VALID_DEV = 0, DATA_VALID_SQ = 1, DATA_VALID_RQ = 2 } vma_mlx_hw_valid_data_mask;

struct dev_data {
    uint32_t vendor_id;
    uint32_t vendor_part_id;
    uint32_t device_cap;
};

struct hw_cq_data {
    void *buf;
    volatile uint32_t *dbrec;
    uint32_t cq_size;
    uint32_t cqe_size;
    uint32_t cqn;
    void *uar;
    uint32_t *cons_idx;
};

struct hw_wq_data {
    void *buf;
    uint32_t wqe_cnt;
    uint32_t stride;
    volatile uint32_t *dbrec;
    struct hw_cq_data cq_data;
};

struct hw_rq_data {
    struct hw_wq_data wq_data;
    uint32_t *head;
    uint32_t *tail;
};

struct hw_sq_data {
    struct hw_wq_data wq_data;
    uint32_t sq_num;
    struct {
        void *reg;
        uint32_t size;
        uint32_t offset;
    } bf;
};

struct vma_mlx_hw_device_data {
    uint32_t valid_mask;
    struct dev_data dev_data;
    struct hw_sq_data sq_data;
    struct hw_rq_data rq_data;
};

/*
 * ---- ioctl: memory of the program's own
 * ------------------------------------------------------------------------------------
 */

enum { CMSG_VMA_IOCTL_USER_ALLOC = 2900 };

/* Flags of vma_cmsg_ioctl_user_alloc_t; the short names are of this library only. */
enum {
    VMA_IOCTL_USER_ALLOC_FLAG_TX = 1,
    VMA_IOCTL_USER_ALLOC_FLAG_RX = 2,
    VMA_IOCTL_USER_ALLOC_TX = VMA_IOCTL_USER_ALLOC_FLAG_TX,
    VMA_IOCTL_USER_ALLOC_RX = VMA_IOCTL_USER_ALLOC_FLAG_RX
};

#pragma pack(push, 1)
struct vma_cmsg_ioctl_user_alloc_t {
    uint8_t flags;
    void *(*memalloc)(size_t);
    void (*memfree)(void *);
};
#pragma pack(pop)

/*
 * ---- the table
 * ----------------------------------------------------------------------------------------------------------------
 */

/* Bits of vma_extra_supported_mask: what this library carries out here. Every entry can be called all the same. */
typedef enum {
    VMA_EXTRA_API_REGISTER_RECV_CALLBACK = 1 << 0,
    VMA_EXTRA_API_RECVFROM_ZCOPY = 1 << 1,
    VMA_EXTRA_API_FREE_PACKETS = 1 << 2,
    VMA_EXTRA_API_ADD_CONF_RULE = 1 << 3,
    VMA_EXTRA_API_THREAD_OFFLOAD = 1 << 4,
    VMA_EXTRA_API_DUMP_FD_STATS = 1 << 5,
    VMA_EXTRA_API_SOCKETXTREME_POLL = 1 << 6,
    VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS = 1 << 7,
    VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF = 1 << 8,
    VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF = 1 << 9,
    VMA_EXTRA_API_GET_SOCKET_RINGS_NUM = 1 << 10,
    VMA_EXTRA_API_GET_SOCKET_RINGS_FDS = 1 << 11,
    VMA_EXTRA_API_GET_SOCKET_TX_RING_FD = 1 << 12,
    VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER = 1 << 13,
    VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS = 1 << 14,
    VMA_EXTRA_API_ADD_RING_PROFILE = 1 << 16,
    VMA_EXTRA_API_REGISTER_MEMORY_ON_RING = 1 << 17,
    VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING = 1 << 18,
    VMA_EXTRA_API_MODIFY_RING = 1 << 20,
    VMA_EXTRA_API_IOCTL = 1 << 21
} vma_extra_api_mask;

#pragma pack(push, 1)
struct vma_api_t {
    int (*register_recv_callback)(int s, vma_recv_callback_t callback, void *context);
    int (*recvfrom_zcopy)(int s, void *buf, size_t len, int *flags, struct sockaddr *from, socklen_t *fromlen);
    int (*free_packets)(int s, struct vma_packet_t *pkts, size_t count);
    int (*add_conf_rule)(const char *config_line);
    int (*thread_offload)(int offload, pthread_t tid);
    int (*socketxtreme_poll)(int fd, struct vma_completion_t *completions, unsigned int ncompletions, int flags);
    int (*get_socket_rings_num)(int fd);
    int (*get_socket_rings_fds)(int fd, int *ring_fds, int ring_fds_sz);
    int (*get_socket_tx_ring_fd)(int sock_fd, struct sockaddr *to, socklen_t tolen);
    int (*socketxtreme_free_vma_packets)(struct vma_packet_desc_t *packets, int num);
    int (*socketxtreme_ref_vma_buff)(struct vma_buff_t *buff);
    int (*socketxtreme_free_vma_buff)(struct vma_buff_t *buff);
    int (*dump_fd_stats)(int fd, int log_level);
    int (*vma_add_ring_profile)(struct vma_ring_type_attr *profile, int *key);
    int (*get_socket_network_header)(int fd, void *ptr, uint16_t *len);
    int (*get_ring_direct_descriptors)(int fd, struct vma_mlx_hw_device_data *data);
    int (*register_memory_on_ring)(int fd, void *addr, size_t length, uint32_t *key);
    int (*deregister_memory_on_ring)(int fd, void *addr, size_t length);
    int (*vma_modify_ring)(struct vma_modify_ring_attr *mr_data);
    uint64_t vma_extra_supported_mask;
    int (*ioctl)(void *cmsg_hdr, size_t cmsg_len);
};
#pragma pack(pop)

/* The table of the library that this program runs with; NULL: it runs without. It is never freed. */
static inline struct vma_api_t *vma_get_api(void)
{
    struct vma_api_t *api = NULL;
    socklen_t length = sizeof(api);
    if (getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &length) < 0)
        return NULL;
    return api;
}

#ifdef __cplusplus
}
#endif

#endif /* VMA_EXTRA_H */
