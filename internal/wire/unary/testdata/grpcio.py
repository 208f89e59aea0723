"""What a client that is not made of Go sees: Python's grpcio, which has an
HTTP/2 stack of its own. Its argument is the server's address."""
import concurrent.futures
import sys
import time

import grpc

channel = grpc.insecure_channel(sys.argv[1])
echo, worker, fail, big, meta, hang, none = (
    channel.unary_unary("/test.Test/" + name)
    for name in ("Echo", "Worker", "Fail", "Big", "Meta", "Hang", "None")
)


def expect(got, want):
    if got != want:
        sys.exit(f"got {got!r:.200}, want {want!r:.200}")


def error(method, request, **options):
    try:
        method(request, **{"timeout": 10, **options})
    except grpc.RpcError as e:
        return e.code().name, e.details()
    return "OK", ""


for method in (echo, worker):
    for request in (b"", b"hello", b"x" * 200_000):
        expect(method(request, timeout=10), request)
expect(echo(b"z" * 100_000, timeout=10, compression=grpc.Compression.Gzip), b"z" * 100_000)
expect(len(big(b"250000", timeout=10)), 250_000)
metadata = (("x-one", "1"), ("x-two", "2"), ("x-two", "3"), ("large", "l" * 6000))
expect(meta(b"", metadata=metadata, timeout=10), b'["1" "2,3" ""]')

expect(error(fail, "100 % ü\n".encode()), ("INVALID_ARGUMENT", "100 % ü\n"))
expect(error(none, b"")[0], "UNIMPLEMENTED")
expect(error(hang, b"", timeout=0.1)[0], "DEADLINE_EXCEEDED")
expect(error(echo, b"x" * 300_000)[0], "RESOURCE_EXHAUSTED")
expect(error(echo, b"x" * 30_000, compression=grpc.Compression.Deflate)[0], "UNIMPLEMENTED")
call = hang.future(b"", timeout=10)
time.sleep(0.1)
expect(call.cancel(), True)

with concurrent.futures.ThreadPoolExecutor(32) as pool:
    requests = [b"%d" % i for i in range(2000)]
    answers = pool.map(lambda r: echo(r, timeout=10), requests)
    expect(list(answers), requests)
print("grpcio", grpc.__version__)
