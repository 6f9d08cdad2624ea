# Asks through grpcio with its default settings. The argument is the port. Prints what it got as JSON.
import json
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
address = f"127.0.0.1:{sys.argv[1]}"


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def request(user):
    entry = field(1, b"user") + field(2, user)
    return field(1, b"edge") + field(2, field(1, entry))


def code(answer):
    # The overall code is the first field.
    return answer[1] if answer[:1] == b"\x08" else None


def failure(call):
    try:
        return code(call())
    except grpc.RpcError as error:
        return error.code().name


channel = grpc.insecure_channel(address)
call = channel.unary_unary(METHOD)
got = {"calls": [code(call(request(b"ann"), timeout=10)) for _ in range(4)]}
many = [call.future(request(b"bob"), timeout=30) for _ in range(3000)]
codes = [code(answer.result()) for answer in many]
got["many"] = {str(number): codes.count(number) for number in sorted(set(codes))}

health = health_pb2_grpc.HealthStub(channel)
asked = health_pb2.HealthCheckRequest(service="")
got["health"] = health.Check(asked, timeout=10).status
watched = health.Watch(asked)
got["watched"] = next(watched).status
watched.cancel()
got["services"] = sorted(ProtoReflectionDescriptorDatabase(channel).get_services())

got["unknown"] = failure(lambda: channel.unary_unary("/example.Other/Call")(b"", timeout=10))
got["empty"] = failure(lambda: call(b"", timeout=10))
got["garbage"] = failure(lambda: call(b"\xff\xff", timeout=10))
got["long"] = failure(lambda: call(b"x" * 200000, timeout=10))
zipped = grpc.insecure_channel(address, compression=grpc.Compression.Gzip).unary_unary(METHOD)
got["zipped"] = failure(lambda: zipped(request(b"z" * 100), timeout=10))
large = (("x-a", "y" * 12000), ("x-b", "y" * 8000))
got["large"] = failure(lambda: call(request(b"cleo"), timeout=10, metadata=large))
got["after"] = failure(lambda: call(request(b"cleo"), timeout=10))
print(json.dumps(got))
