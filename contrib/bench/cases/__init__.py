# SPDX-License-Identifier: BSD-2-Clause
"""The benchmarks, in the order in which they run. A new one is a file here and a line below."""
from __future__ import annotations

from benchlib.model import Case

from .apart import Bridge, Namespaces, Published, Users
from .asyncio_echo import AsyncioEcho
from .call_cost import CallCost
from .connect_cost import ConnectBeforeFirstByte, ConnectCost
from .echo_threads import EchoThreads
from .iperf import Iperf
from .libfabric import Libfabric
from .many_conn import FewerIdle, FewerPlain, ManyIdle, ManyPlain
from .memory import Memory
from .nginx import NginxClose, NginxKeepAlive
from .programs import HaproxyNginx, NodeHttp, Pgbench, Rsync, ZeroMq
from .redis import RedisMany, RedisOne
from .short_conn import ConnectionCalls, ShortConnections
from .sockperf_latency import SockperfLatency
from .sockperf_throughput import SockperfThroughput
from .sockperf_udp import UdpEpollLatency, UdpEpollThroughput, UdpLatency, UdpThroughput
from .tcp_rr import TcpRr
from .udp_many import UdpMany
from .udp_mixed import UdpMixed
from .udp_multicast import UdpMulticast
from .wire import WireLatency, WireMulticast, WireNginx, WireReceive, WireTcpReceive

ALL: tuple[type[Case], ...] = (SockperfLatency, SockperfThroughput, TcpRr, Iperf, RedisMany, RedisOne, NginxKeepAlive,
                               NginxClose, AsyncioEcho, EchoThreads, Memory, FewerPlain, ManyPlain, FewerIdle, ManyIdle,
                               ConnectCost, ConnectBeforeFirstByte,
                               ShortConnections, ConnectionCalls, CallCost, Libfabric, UdpLatency, UdpThroughput, UdpEpollLatency, UdpEpollThroughput,
                               UdpMulticast, UdpMixed, UdpMany, WireLatency, WireReceive, WireMulticast, WireTcpReceive, WireNginx,
                               HaproxyNginx, NodeHttp, Pgbench, Rsync, ZeroMq, Users, Namespaces, Bridge, Published)
