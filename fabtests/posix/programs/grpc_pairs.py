# SPDX-License-Identifier: BSD-2-Clause
"""gRPC by python3-grpcio, with bytes as messages. Usage: grpc_pairs.py server PORT | client PORT TIMES"""

import concurrent.futures
import os
import sys

import grpc

PATIENCE = 60 * float(os.environ["FABTESTS_PATIENCE"])  # seconds


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details):
        if handler_call_details.method == "/echo/one":
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        if handler_call_details.method == "/echo/stream":
            return grpc.stream_stream_rpc_method_handler(lambda requests, _: iter(requests))
        return None


def serve(port):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[Echo()])
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    server.wait_for_termination()


def ask(port, times):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        one, stream = channel.unary_unary("/echo/one"), channel.stream_stream("/echo/stream")
        for number in range(200 * times):
            number %= 200
            message = b"%d" % number * (number + 1)
            assert one(message, timeout=PATIENCE, wait_for_ready=True) == message
        large = bytes(range(256)) * 8000
        assert one(large, timeout=PATIENCE) == large
        futures = [one.future(b"%d" % number, timeout=PATIENCE) for number in range(100)]
        assert [future.result() for future in futures] == [b"%d" % number for number in range(100)]
        messages = [b"%d " % number * number for number in range(400)]
        assert list(stream(iter(messages), timeout=PATIENCE)) == messages
        try:
            channel.unary_unary("/echo/none")(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    print("all as sent")


if __name__ == "__main__":
    (serve if sys.argv[1] == "server" else ask)(*map(int, sys.argv[2:]))
