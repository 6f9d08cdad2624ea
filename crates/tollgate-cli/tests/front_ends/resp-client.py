# Asks through redis-py with its default settings. The first argument is the port, the second the version of
# the protocol (empty: the library's own choice), the third the password (empty: none). Prints what it got as
# JSON.
import json
import sys

import redis

port, version, password = sys.argv[1:4]
more = {"protocol": int(version)} if version else {}
if password:
    more["password"] = password
client = redis.Redis(host="127.0.0.1", port=int(port), **more)
got = {"ping": client.ping()}
got["calls"] = [client.execute_command("CL.THROTTLE", f"py{version}", 2, 1, 3600) for _ in range(4)]
try:
    client.execute_command("CL.THROTTLE", "py", "x", 1, 3600)
except redis.ResponseError as error:
    got["error"] = str(error)
pipeline = client.pipeline(transaction=False)
for _ in range(1000):
    pipeline.execute_command("CL.THROTTLE", f"py-pipe{version}", 99, 1, 3600)
got["passed"] = sum(1 for answer in pipeline.execute() if answer[0] == 0)
# As the library does by default: between MULTI and EXEC.
pipeline = client.pipeline()
for _ in range(3):
    pipeline.execute_command("CL.THROTTLE", f"py-multi{version}", 1, 1, 3600)
got["multi"] = pipeline.execute()
pipeline.execute_command("CL.THROTTLE", f"py-multi2{version}", 1, 1, 3600)
pipeline.execute_command("NOPE")
try:
    pipeline.execute()
except redis.RedisError as error:
    got["aborted"] = str(error)
got["untouched"] = client.execute_command("CL.THROTTLE", f"py-multi2{version}", 1, 1, 3600)
binary = [client.execute_command("CL.THROTTLE", b"\xff\x00" + version.encode(), 0, 1, 3600)[0] for _ in range(2)]
got["binary"] = binary


def text(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {text(name): text(item) for name, item in value.items()}
    if isinstance(value, list):
        return [text(item) for item in value]
    return value


got["check"] = text(client.execute_command("TOLLGATE.CHECK", "path", "/", "header.x-user", f"py{version}"))
other = redis.Redis(host="127.0.0.1", port=int(port), db=1, client_name="me", **more)
got["other"] = other.execute_command("CL.THROTTLE", f"py{version}", 2, 1, 3600)
print(json.dumps(got))
