"""Request lines, versions, targets, Host, Connection, HEAD and ends: what is taken, what is refused."""

from tests.transcripts.steps import CLOSED, EOF, KEPT, Wait, answer, case, get, post, raw

BAD = "400 invalid_request"
HOST = b"Host: localhost"


def line(text: bytes) -> bytes:
    return raw(text, HOST)


VERSIONS = [
    case("1.0 ends", get(version=b"HTTP/1.0"), "200", end=CLOSED),
    case(
        "1.0 with keep-alive goes on",
        get(b"Connection: keep-alive", version=b"HTTP/1.0"),
        answer("200", connection="keep-alive"),
        end=KEPT,
    ),
    case(
        "1.0 with Keep-Alive twice",
        get(b"Connection: Keep-Alive", version=b"HTTP/1.0") * 2,
        answer("200", connection="keep-alive"),
        answer("200", connection="keep-alive"),
        end=KEPT,
    ),
    case("1.0 with a body", post(version=b"HTTP/1.0"), "200", end=CLOSED),
    case("1.0 with both tokens ends", get(b"Connection: keep-alive, close", version=b"HTTP/1.0"), "200"),
    case("HTTP/0.9", b"GET /healthz\r\n\r\n", BAD),
    case("HTTP/0.9 spelled out", line(b"GET /healthz HTTP/0.9"), BAD),
    # RFC 9110 2.5 would read it as 1.1; nobody sends it, and a proxy in front might read it otherwise.
    case("HTTP/1.2", line(b"GET /healthz HTTP/1.2"), BAD),
    case("HTTP/2.0", line(b"GET /healthz HTTP/2.0"), BAD),
    case("HTTP/3.0", line(b"GET /healthz HTTP/3.0"), BAD),
    case("HTTP/1.10", line(b"GET /healthz HTTP/1.10"), BAD),
    case("HTTP/11", line(b"GET /healthz HTTP/11"), BAD),
    case("HTTP/1", line(b"GET /healthz HTTP/1"), BAD),
    case("http/1.1", line(b"GET /healthz http/1.1"), BAD),
    case("ICY", line(b"GET /healthz ICY/1.1"), BAD),
    case("nothing after the slash", line(b"GET /healthz HTTP/"), BAD),
]

LINES = [
    case("two spaces before the target", line(b"GET  /healthz HTTP/1.1"), BAD),
    case("two spaces behind the target", line(b"GET /healthz  HTTP/1.1"), BAD),
    case("a tab between", line(b"GET\t/healthz HTTP/1.1"), BAD),
    case("a space at the end", line(b"GET /healthz HTTP/1.1 "), BAD),
    case("a space in front", line(b" GET /healthz HTTP/1.1"), BAD),
    case("no target", line(b"GET HTTP/1.1"), BAD),
    case("no method", line(b"/healthz HTTP/1.1"), BAD),
    case("only a word", line(b"GET"), BAD),
    case("a space in the target", line(b"GET /health z HTTP/1.1"), BAD),
    case("a control byte in the target", line(b"GET /health\x01z HTTP/1.1"), BAD),
    case("a NUL in the target", line(b"GET /health\x00z HTTP/1.1"), BAD),
    case("DEL in the target", line(b"GET /health\x7fz HTTP/1.1"), BAD),
    case("a byte above 127 in the target", line(b"GET /health\xffz HTTP/1.1"), BAD),
    case("a fragment", line(b"GET /healthz#here HTTP/1.1"), BAD),
    case("one empty line in front", b"\r\n" + get(), "200", end=KEPT),
    case("a bare LF in front", b"\n" + get(), BAD),
    case("a bare CR in front", b"\r" + get(), BAD),
    # RFC 9112 2.2 asks for one at least; there is a limit on everything.
    case("some empty lines in front", b"\r\n" * 16 + get(), "200", end=KEPT),
    case("more empty lines in front", b"\r\n" * 17 + get(), BAD),
    case("empty lines without end", b"\r\n" * 20_000, BAD),
    # The method is case-sensitive and any token (RFC 9110 9.1); one that the path does not take is 405.
    case("a method nobody knows", line(b"BREW /healthz HTTP/1.1"), "405 method_not_allowed", end=KEPT),
    case("a method in lower case", line(b"get /healthz HTTP/1.1"), "405 method_not_allowed", end=KEPT),
    case("a long method", line(b"A" * 40 + b" /healthz HTTP/1.1"), "405 method_not_allowed", end=KEPT),
    case("a very long method", line(b"A" * 41 + b" /healthz HTTP/1.1"), BAD),
    case("a method that is no token", line(b"G(T /healthz HTTP/1.1"), BAD),
    case("a method with a byte above 127", line(b"G\xc3\x84T /healthz HTTP/1.1"), BAD),
    case("an empty method", line(b" /healthz HTTP/1.1"), BAD),
    case(
        "a wrong method tells the right ones",
        get(method=b"DELETE"),
        answer("405 method_not_allowed", allow="GET, HEAD"),
        end=KEPT,
    ),
    case(
        "a wrong method of a topic",
        get(method=b"OPTIONS", path=b"/v0/topics/t"),
        answer("405 method_not_allowed", allow="DELETE, GET, HEAD, PATCH, POST, PUT"),
        end=KEPT,
    ),
    case("an unknown path", get(path=b"/nowhere"), "404 not_found", end=KEPT),
    case("an unknown path below a known one", get(path=b"/v0/topics/t/nothing"), "404 not_found", end=KEPT),
    case("%2F does not separate", get(path=b"/v0%2Ftopics"), "404 not_found", end=KEPT),
    case("a long target", get(path=b"/" + b"a" * 8000), "404 not_found", end=KEPT),
    case("a long query", get(path=b"/healthz?" + b"a" * 20_000), "200", end=KEPT),
    case("garbage in one line", b"\x00\x01\x02garbage\r\n\r\n", BAD),
    case("garbage without an end", b"\x80\x81nonsense" * 20, Wait(11), "400|408"),
    case(
        "a TLS ClientHello",
        bytes.fromhex("16030100c8010000c40303") + bytes(range(100)) + bytes(90),
        Wait(11),
        "400|408",
    ),
    case("an SSH client", b"SSH-2.0-OpenSSH_9.2\r\n", Wait(11), "400|408"),
]

TARGETS = [
    case("absolute-form", get(path=b"http://localhost/healthz"), "200", end=KEPT),
    case("absolute-form with a port", get(path=b"http://localhost:4000/healthz?a=b"), "200", end=KEPT),
    case("absolute-form in capitals", get(path=b"HTTP://LOCALHOST/healthz"), "200", end=KEPT),
    # The target's authority replaces Host (RFC 9112 3.2.2).
    case(
        "absolute-form rules over Host",
        raw(b"GET http://localhost/healthz HTTP/1.1", b"Host: other.example"),
        "200",
        end=KEPT,
    ),
    case(
        "absolute-form of another name",
        get(path=b"http://other.example/healthz"),
        "421 misdirected_request",
        end=KEPT,
    ),
    case("absolute-form needs Host too", raw(b"GET http://localhost/healthz HTTP/1.1"), BAD),
    case("absolute-form without a path", get(path=b"http://localhost"), "404 not_found", end=KEPT),
    case("absolute-form without slashes", get(path=b"https:/healthz"), BAD),
    case("absolute-form without an authority", get(path=b"http:///healthz"), BAD),
    case("absolute-form with a user", get(path=b"http://me@localhost/healthz"), BAD),
    case("another scheme", get(path=b"ftp://localhost/healthz"), BAD),
    case("no scheme and no slash", get(path=b"healthz"), BAD),
    case("authority-form", raw(b"CONNECT localhost:80 HTTP/1.1", HOST), BAD),
    case("asterisk-form", raw(b"OPTIONS * HTTP/1.1", HOST), "404 not_found", end=KEPT),
    case("asterisk-form of GET", get(path=b"*"), BAD),
]

HOSTS = [
    case("none", raw(b"GET /healthz HTTP/1.1"), BAD),
    case("two", raw(b"GET /healthz HTTP/1.1", HOST, b"Host: other"), BAD),
    case("two that are equal", raw(b"GET /healthz HTTP/1.1", HOST, HOST), BAD),
    case("empty", raw(b"GET /healthz HTTP/1.1", b"Host:"), "421 misdirected_request", end=KEPT),
    case("two in one", raw(b"GET /healthz HTTP/1.1", b"Host: localhost, other"), BAD),
    case("a space inside", raw(b"GET /healthz HTTP/1.1", b"Host: local host"), BAD),
    case("a path", raw(b"GET /healthz HTTP/1.1", b"Host: localhost/x"), BAD),
    case("a user", raw(b"GET /healthz HTTP/1.1", b"Host: me@localhost"), BAD),
    case("a query", raw(b"GET /healthz HTTP/1.1", b"Host: localhost?x"), BAD),
    case("a port that is no number", raw(b"GET /healthz HTTP/1.1", b"Host: localhost:http"), BAD),
    case("a byte above 127", raw(b"GET /healthz HTTP/1.1", b"Host: localh\xf6st"), BAD),
    case("an open bracket", raw(b"GET /healthz HTTP/1.1", b"Host: [::1"), BAD),
    case("with a port", raw(b"GET /healthz HTTP/1.1", b"Host: localhost:4000"), "200", end=KEPT),
    case("IPv6", raw(b"GET /healthz HTTP/1.1", b"Host: [::1]:4000"), "200", end=KEPT),
    case("IPv4", raw(b"GET /healthz HTTP/1.1", b"hOsT:127.0.0.1:4000"), "200", end=KEPT),
    case(
        "another name",
        raw(b"GET /healthz HTTP/1.1", b"Host: rebound.example"),
        "421 misdirected_request",
        end=KEPT,
    ),
    # HTTP/1.0 may come without (RFC 9110 7.2), but a name that is not given is none of this server's.
    case("none, on 1.0", raw(b"GET /healthz HTTP/1.0"), "421 misdirected_request"),
    case("white space around", raw(b"GET /healthz HTTP/1.1", b"Host: \t localhost \t"), "200", end=KEPT),
]

CONNECTION = [
    case("close", get(b"Connection: close"), answer("200", connection="close"), end=CLOSED),
    case("CLOSE", get(b"Connection: CLOSE"), answer("200", connection="close"), end=CLOSED),
    case("close in a list", get(b"Connection: x , close"), answer("200", connection="close"), end=CLOSED),
    case("close in a second field", get(b"Connection: x", b"Connection: close"), "200", end=CLOSED),
    case("keep-alive and close", get(b"Connection: keep-alive, close"), "200", end=CLOSED),
    case("keep-alive", get(b"Connection: keep-alive"), "200", end=KEPT),
    case("an unknown token", get(b"Connection: closer, x-close"), "200", end=KEPT),
    case("empty", get(b"Connection:"), "200", end=KEPT),
    case("empty list", get(b"Connection: , ,"), "200", end=KEPT),
    case("close on an error", get(b"Connection: close", path=b"/x"), answer("404", connection="close")),
    case("close with a body", post(b"{}", b"Connection: close"), answer("200", connection="close")),
]

HEADS = [
    case("HEAD", get(method=b"HEAD"), "HEAD 200", end=KEPT),
    case("HEAD then GET", get(method=b"HEAD") + get(), "HEAD 200", "200", end=KEPT),
    case("HEAD of nothing", get(method=b"HEAD", path=b"/nowhere"), "HEAD 404", end=KEPT),
    case("HEAD of an absent topic", get(method=b"HEAD", path=b"/v0/topics/absent"), "HEAD 404", end=KEPT),
    case("HEAD where there is no GET", get(method=b"HEAD", path=b"/v0/topics/t/diff"), "HEAD 405", end=KEPT),
    case("HEAD with close", get(b"Connection: close", method=b"HEAD"), "HEAD 200", end=CLOSED),
    case("HEAD of a list", get(method=b"HEAD", path=b"/v0/topics"), "HEAD 200", end=KEPT),
]

ENDS = [
    case("nothing at all", EOF, end=CLOSED),
    case("only an empty line", b"\r\n", EOF, end=CLOSED),
    case("after a whole request", get(), EOF, "200", end=CLOSED),
    case("after a whole body", post(), EOF, "200", end=CLOSED),
    case("after an answer", get(), "200", EOF, end=CLOSED),
    case("in a request line", b"GET /hea", EOF, answer(BAD, maybe=True), end=CLOSED),
    case("in a head", get()[:-2], EOF, answer(BAD, maybe=True), end=CLOSED),
    case(
        "in the head behind a whole one", get() + get()[:-3], EOF, "200", answer(BAD, maybe=True), end=CLOSED
    ),
    case("in a body", post()[:-1], EOF, answer(BAD, maybe=True), end=CLOSED),
    case("before a body", post(b"", length=b"5"), EOF, answer(BAD, maybe=True), end=CLOSED),
    case("after an error", get(path=b"/x"), EOF, "404", end=CLOSED),
    case("after a bad head", b"\x00\r\n\r\n", EOF, BAD, end=CLOSED),
]
